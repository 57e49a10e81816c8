"""What the executor adds to the simulated step: rehearsals of plans for 4 and 8 ranks.

Blocks sleep and processes, messages and executor are real, so that ranks do not compete for cores as long as there are two. Needs
`tools/setup.sh`. Prints a table for docs/benchmarks.md. On a machine that others use, start it as `chrt -r 1 python ...`: a sleeper is
then woken when its time has come, not when its turn has.
"""

import argparse
import json
import pathlib
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = ROOT / "build/release/bin"
CLUSTERS = ROOT / "configs/clusters"

SIZES = {  # training file, flags, factor on the blocks' times
    "tiny": ("tiny_demo.yaml", [], 0.2),
    "real": ("sd15_controlnet.yaml", ["--precision", "fp32", "--width", "256", "--height", "256"], 0.05),
}


def cluster_of(ranks, folder):
    path = folder / f"cpu_{ranks}.yaml"
    path.write_text(f"name: cpu_{ranks}\ndevices:\n"
                    f"  - {{device: {ROOT}/configs/devices/cpu.yaml, count: {ranks}, memory_mib: 16384}}\n"
                    "link: {bandwidth_gb_per_s: 1.5, latency_us: 40}\n")
    return path


def rehearse(size, ranks, options, folder):
    config, flags, scale = SIZES[size]
    cluster, plan = cluster_of(ranks, folder), folder / f"{size}_{ranks}.yaml"
    batch = options.micro_batches * (2 if size == "tiny" else 1)
    subprocess.run([BIN / "partition", "--config", ROOT / "configs/train" / config, *flags, "--batch", str(batch),
                    "--cluster", cluster, "--stages", str(ranks), "-o", plan],
                   check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([BIN / "pipetrain", "--rehearse", plan, "--cluster", cluster, "--steps", str(options.steps),
                           "--scale", str(options.scale or scale), "--scale-memory", str(options.scale_memory), "--json"],
                          check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def row(size, ranks, result):
    step = result["step_seconds"]
    busy = sum(r["busy_seconds"]["median"] for r in result["ranks"]) / sum(r["busy_planned_seconds"] for r in result["ranks"])
    held = "equal" if all(r["held_bytes"] == r["held_planned_bytes"] for r in result["ranks"]) else "DIFFERENT"
    seen = [link["bytes_per_second"] / 1e9 for link in result["links"]]
    return (f"| {size}, times {result['scale']} | {ranks} | {1e3 * result['simulated_free_links_seconds']:.1f} "
            f"| {1e3 * result['simulated_seconds']:.1f} | {1e3 * step['median']:.1f} ± {1e3 * step['spread']:.1f} "
            f"| {result['ratio']:.3f} | {result['ratio_free_links']:.3f} | {busy:.3f} "
            f"| {min(seen):.2f}–{max(seen):.2f} | {held} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--ranks", nargs="+", type=int, default=[4, 8])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--micro-batches", type=int, default=8)
    parser.add_argument("--scale", type=float, help="factor on the blocks' times, instead of each size's own")
    parser.add_argument("--scale-memory", type=float, default=1)
    options = parser.parse_args()
    print("| plan | ranks | simulated, free links, ms | simulated, links seen, ms | rehearsed, ms | ÷ links seen | ÷ free links "
          "| busy ÷ planned | GB/s seen | bytes held |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as name:
        for size in options.sizes:
            for ranks in options.ranks:
                print(row(size, ranks, rehearse(size, ranks, options, pathlib.Path(name))), flush=True)


if __name__ == "__main__":
    main()
