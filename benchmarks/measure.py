"""Measures Stagecraft beside diffusers, in turn, and prints tables.

    measure.py one-process [--size tiny|middle|real] [--rounds N]   a step of one process ÷ diffusers' step
    measure.py pipeline    [--size tiny|middle|real] [--rounds N]   a step of four processes ÷ diffusers' in one
    measure.py memory      [--size tiny|middle|real]                predicted ÷ measured peak of each rank;
                                                                     fullest rank ÷ one process
    measure.py memory-runs [--size tiny|middle|real]                the same for ten chosen runs: ranks, micro-batches,
                                                                     recompute, schedules, trainable parts
    measure.py time        [--size tiny|middle|real] [--rounds N]   simulated ÷ measured, with costs measured
                                                                     just before, for one and two processes

Every process has one thread. Both programs do the same work: batch in micro-batches, clipping, AdamW; the
first step of a run is not counted. The two run in turn, --rounds times; a ratio is taken in each round, the
table shows the median and the range. CPU seconds (user and system, all processes) stand beside wall seconds:
on a shared machine they are the steadier figure. Needs the programs in build/release/bin.
"""

import argparse
import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
BIN = ROOT / "build/release/bin"

# Training file, pixels, batch, micro-batch, steps of a run.
SIZES = {
    "tiny": (ROOT / "configs/train/tiny_demo.yaml", (128, 192), 8, 2, 9),
    "middle": (HERE / "middle.yaml", (256, 256), 4, 1, 6),
    "real": (ROOT / "configs/train/sd15_controlnet.yaml", (256, 256), 4, 1, 3),
}
ONE_PROCESS_CAP_MIB = 20000

# Ranks, batch, micro-batch, flags of `partition`, what is recomputed (a part of a block's name; "" is every block).
CHOSEN_RUNS = [
    (2, 4, 1, [], None),
    (2, 4, 1, [], ""),
    (2, 4, 2, ["--schedule", "gpipe"], ".attentions."),
    (4, 4, 1, [], None),
    (4, 4, 1, [], ".attentions."),
    (4, 4, 1, ["--schedule", "gpipe"], ""),
    (4, 4, 2, [], None),
    (2, 2, 1, ["--only-mid-control"], None),
    (4, 4, 1, ["--only-mid-control"], ".resnets."),
    (4, 2, 1, ["--what", "unet"], ""),
]
# Left free beside what a run is predicted to hold, or it is not started.
SPARE_MIB = 2500


def run(command, **options):
    command = [str(part) for part in command]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return done.stdout


class Bench:
    def __init__(self, size, work):
        self.config, (self.width, self.height), self.batch, self.micro_batch, self.steps = SIZES[size]
        self.work = Path(work)
        self.model = re.search(r"^model: *(\S+)", self.config.read_text(), re.MULTILINE)[1]
        self.data = self.work / f"photos_{self.width}x{self.height}"
        # Pictures are encoded once; a batch is enough for what is measured.
        if not self.data.exists():
            run([sys.executable, ROOT / "tools/make_photos.py", self.data,
                 "--size", f"{self.width}x{self.height}", "--crops", "1"])
            prompts = self.data / "prompt.json"
            prompts.write_text("".join(prompts.read_text().splitlines(keepends=True)[:self.batch]))
        self.tokenizer = self.work / "tokenizer"
        if not self.tokenizer.exists():
            run([sys.executable, ROOT / "tools/make_clip_vocab.py", self.tokenizer])
        self.cache = self.work / f"cache_{size}"

    def plan(self, ranks, cap_mib=None, profile=False):
        """A plan file and what `partition` said, or None where nothing fits."""
        path = self.work / f"plan_{ranks}_{'measured' if profile else 'shapes'}_{cap_mib or 'free'}.yaml"
        command = [BIN / "partition", "--config", self.config, "--precision", "fp32",
                   "--width", self.width, "--height", self.height, "--batch", self.batch,
                   "--micro-batch", self.micro_batch, "-o", path,
                   "--cluster", ROOT / f"configs/clusters/local_cpu_{ranks}.yaml"]
        if cap_mib:
            command += ["--memory-cap", cap_mib]
        if profile:
            command += ["--profile"]
        done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                              check=False)
        if done.returncode == 13:
            return None
        if done.returncode != 0:
            sys.exit(done.stderr.strip())
        return path

    def chosen_plan(self, number, ranks, batch, micro_batch, flags, recomputed):
        """A plan in which all blocks with `recomputed` in their names run again."""
        path = self.work / f"chosen_{number}.yaml"
        cluster = ROOT / f"configs/clusters/local_cpu_{ranks}.yaml"
        run([BIN / "partition", "--config", self.config, "--precision", "fp32", "--width", self.width,
             "--height", self.height, "--batch", batch, "--micro-batch", micro_batch, "-o", path,
             "--cluster", cluster, "--memory-cap", ONE_PROCESS_CAP_MIB, "--no-recompute", *flags])
        if recomputed is None:
            return path
        what = [flag for flag in flags if flag not in ("--schedule", "gpipe")]
        graph = json.loads(run([BIN / "partition", "graph", "--json", "--model",
                                self.config.parent / self.model, "--width", self.width,
                                "--height", self.height, "--precision", "fp32", *what]))
        names = [block["name"] for block in graph["blocks"]
                 if block["runs"] and block["state"] != "F" and recomputed in block["name"]]
        text, changes = re.subn(r"^recompute: *\[\]$", f"recompute: [{', '.join(names)}]",
                                path.read_text(), flags=re.MULTILINE)
        if changes != 1 or not names:
            sys.exit(f"{path}: no blocks to run again, or no empty list of them")
        path.write_text(text)
        again = path.with_suffix(".again.yaml")
        run([BIN / "partition", "verify", path, "-o", again, "--cluster", cluster])
        return again

    def train(self, plan, steps=None):
        """Seconds of the counted steps, CPU seconds a step of all ranks, measured.json."""
        out = self.work / "run"
        shutil.rmtree(out, ignore_errors=True)
        run([BIN / "pipetrain", "--plan", plan, "--config", self.config, "--init-random", 1,
             "--tokenizer", self.tokenizer, "--data", self.data, "--cache", self.cache,
             "--out", out, "--steps", steps or self.steps, "--timeout", 3600])
        lines = (out / "metrics.jsonl").read_text().splitlines()
        measured = json.loads((out / "measured.json").read_text())
        return ([json.loads(line)["seconds"] for line in lines][1:],
                sum(rank["cpu_seconds"] for rank in measured["ranks"]), measured)

    def diffusers(self):
        out = json.loads(run([sys.executable, HERE / "diffusers_step.py",
                              self.config.parent / self.model, "--width", self.width,
                              "--height", self.height, "--batch", self.batch,
                              "--micro-batch", self.micro_batch, "--threads", 1,
                              "--steps", self.steps]))
        counted = out["steps"][1:]
        return ([step["seconds"] for step in counted],
                statistics.mean(step["cpu_seconds"] for step in counted), out["versions"])


def spread(values, digits=3):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def speed(bench, ranks, rounds):
    plan = bench.plan(ranks, cap_mib=ONE_PROCESS_CAP_MIB if ranks == 1 else None)
    ours, theirs, our_cpu, their_cpu = [], [], [], []
    versions = ""
    for _ in range(rounds):
        seconds, cpu, versions = bench.diffusers()
        theirs.append(statistics.median(seconds))
        their_cpu.append(cpu)
        seconds, cpu, _ = bench.train(plan)
        ours.append(statistics.median(seconds))
        our_cpu.append(cpu)
    batch = bench.batch
    print(f"| | seconds a sample, median (range) of {rounds} runs | CPU seconds a sample |")
    print("|---|---|---|")
    for name, wall, cpu in ((f"diffusers, 1 process ({versions})", theirs, their_cpu),
                            (f"pipetrain, {ranks} process{'es' if ranks > 1 else ''}", ours, our_cpu)):
        print(f"| {name} | {spread([w / batch for w in wall])} | {spread([c / batch for c in cpu])} |")
    print(f"| ratio | {spread([a / b for a, b in zip(ours, theirs)])} "
          f"| {spread([a / b for a, b in zip(our_cpu, their_cpu)])} |")


def predicted_mib(plan_file, without=("process_base",)):
    """Of each rank, without some lines: what `partition report` reads from the plan."""
    report = json.loads(run([BIN / "partition", "report", plan_file, "--json"]))
    sizes = []
    for rank in report["ranks"]:
        lines = rank["predicted"]["memory"]
        sizes.append(sum(value for name, value in lines.items() if name not in without) / 2**20)
    return sizes


def memory(bench):
    one = bench.plan(1, cap_mib=ONE_PROCESS_CAP_MIB)
    low, high = 1, ONE_PROCESS_CAP_MIB  # the least cap that some split fits, to 1 %
    while high > 1.01 * low + 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bench.plan(4, cap_mib=middle) else (middle, high)
    print("| plan | rank | predicted, MiB | measured, MiB | predicted ÷ measured |")
    print("|---|---|---|---|---|")
    fullest = {}
    for name, plan in (("one process", one), ("4 ranks, costs from shapes", bench.plan(4)),
                       ("4 ranks, costs measured", bench.plan(4, profile=True)),
                       ("4 ranks, leanest", bench.plan(4, cap_mib=high))):
        predicted = predicted_mib(plan)
        _, _, measured = bench.train(plan, steps=2)
        peaks = [rank["peak_allocator"] / 2**20 for rank in measured["ranks"]]
        fullest[name] = max(peaks)
        for rank, (p, m) in enumerate(zip(predicted, peaks)):
            print(f"| {name} | {rank} | {p:,.1f} | {m:,.1f} | {p / m:.3f} |")
    for name, peak in fullest.items():
        if name != "one process":
            print(f"\nfullest rank ÷ one process, {name}: {peak / fullest['one process']:.3f}")


def error_table(figures):
    errors = sorted((predicted - measured) / measured for predicted, measured in figures)
    sizes = sorted(abs(error) for error in errors)
    return (f"{len(errors)} ranks: median error {statistics.median(sizes):.2%}, worst {sizes[-1]:.2%}, "
            f"most under {max(0, -errors[0]):.2%}")


def available_mib():
    text = Path("/proc/meminfo").read_text()
    return int(re.search(r"MemAvailable: *(\d+)", text)[1]) / 1024


def memory_runs(bench):
    print("| ranks | micro-batches | flags | recomputed | predicted ÷ measured, by rank | without slack |")
    print("|---|---|---|---|---|---|")
    figures, lean = [], []
    for number, (ranks, batch, micro_batch, flags, recomputed) in enumerate(CHOSEN_RUNS):
        plan = bench.chosen_plan(number, ranks, batch, micro_batch, flags, recomputed)
        shown = "none" if recomputed is None else recomputed or "all"
        start = f"| {ranks} | {batch // micro_batch} x {micro_batch} | {' '.join(flags)} | {shown} |"
        predicted = predicted_mib(plan)
        if sum(predicted) + SPARE_MIB > available_mib():
            print(f"{start} not run: needs {sum(predicted):,.0f} MiB | |")
            continue
        _, _, measured = bench.train(plan, steps=2)
        peaks = [rank["peak_allocator"] / 2**20 for rank in measured["ranks"]]
        plain = predicted_mib(plan, without=("process_base", "slack"))
        figures += zip(predicted, peaks)
        lean += zip(plain, peaks)
        print(start + " " + ", ".join(f"{p:,.0f} / {m:,.0f} = {p / m:.3f}"
                                      for p, m in zip(predicted, peaks)) + " | " +
              ", ".join(f"{p / m:.4f}" for p, m in zip(plain, peaks)) + " |", flush=True)
    print(f"\nwith slack, {error_table(figures)}\nwithout, {error_table(lean)}")


def time(bench, rounds):
    print("| processes | | predicted ÷ measured, median (range) |")
    print("|---|---|---|")
    for ranks in (1, 2):
        step, busy, on_core, without_core = [], [], [], []
        for _ in range(rounds):
            plan = bench.plan(ranks, cap_mib=ONE_PROCESS_CAP_MIB, profile=True)
            report = json.loads(run([BIN / "partition", "report", plan, "--json"]))
            seconds, _, measured = bench.train(plan)
            step.append(report["step_seconds"] / statistics.median(seconds))
            for rank, seen in zip(report["ranks"], measured["ranks"]):
                predicted = rank["predicted"]["busy_seconds"]
                busy.append(predicted / seen["busy_seconds"])
                on_core.append(predicted / seen["busy_cpu_seconds"])
                without_core.append(1 - seen["busy_cpu_seconds"] / seen["busy_seconds"])
        for name, values in (("step", step), ("busy", busy), ("busy on a core", on_core)):
            print(f"| {ranks} | {name} | {spread(values)} |")
        print(f"| {ranks} | share of busy without a core | {spread(without_core)} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["one-process", "pipeline", "memory", "memory-runs", "time"])
    parser.add_argument("--size", choices=SIZES, default="middle")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--work", default=ROOT / "build/benchmarks", help="scratch folder, kept")
    options = parser.parse_args()
    os.environ["OMP_WAIT_POLICY"] = "PASSIVE"
    work = Path(options.work) / options.size
    work.mkdir(parents=True, exist_ok=True)
    bench = Bench(options.size, work)
    print(f"{platform.machine()}, {os.cpu_count()} cores, {bench.config.name}, {bench.width}x{bench.height} "
          f"pixels, batch {bench.batch} as micro-batches of {bench.micro_batch}, fp32, 1 thread a process\n")
    if options.what == "memory":
        memory(bench)
    elif options.what == "memory-runs":
        memory_runs(bench)
    elif options.what == "time":
        time(bench, options.rounds)
    else:
        speed(bench, 1 if options.what == "one-process" else 4, options.rounds)


if __name__ == "__main__":
    main()
