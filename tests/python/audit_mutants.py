"""Every change to an audit's files is noticed by tools/audit.py, and told as what it is.

    audit_mutants.py AUDIT WEIGHTS SCRATCH

AUDIT holds steps 0 and 1 of two ranks and is restored after each change. All runs share this process, since importing
diffusers takes longer than redoing a step.
"""

import contextlib
import io
import json
import os
import shutil
import sys
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
import audit as program


def run(folder, weights, *flags):
    """Exit status and all that was printed."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(out):
        status = program.main([str(folder), "--weights", str(weights), "--threads", "1", *flags])
    return status, out.getvalue()


@contextlib.contextmanager
def restored(*paths):
    content = {path: path.read_bytes() for path in paths}
    try:
        yield
    finally:
        for path, data in content.items():
            path.write_bytes(data)


class RankFile:
    """A rank's file, to be changed."""

    def __init__(self, path):
        self.path = path
        with safe_open(path, "pt") as file:
            self.metadata = file.metadata() or {}
        self.tensors = load_file(path)
        self.facts = json.loads(self.metadata.get("stagecraft_audit", "{}"))

    def largest(self, prefix):
        keys = [key for key in self.tensors if key.startswith(prefix)]
        return max(keys, key=lambda key: self.tensors[key].numel()) if keys else None

    def save(self):
        save_file(self.tensors, self.path, self.metadata | {"stagecraft_audit": json.dumps(self.facts)})


def open_ranks(step):
    return [RankFile(path) for path in sorted(step.glob("rank_*.safetensors"))]


# Mutations of a step: functions of its ranks' files, which they change.


def number(prefix, work, everywhere=False):
    """Changes the largest such tensor of the first rank that has one, or of all ranks."""
    def mutate(ranks):
        holders = [(rank, rank.largest(prefix)) for rank in ranks if rank.largest(prefix)]
        for rank, key in holders if everywhere else holders[:1]:
            rank.tensors[key] = work(rank.tensors[key].clone())
    return mutate


def fact(key, work, everywhere=False):
    """Changes a fact in rank 1's metadata, or in all ranks'."""
    def mutate(ranks):
        for rank in ranks if everywhere else ranks[1:2]:
            rank.facts[key] = work(rank.facts[key])
    return mutate


def first_with(ranks, prefix):
    """The first rank that has such a tensor, and its largest one."""
    return next((rank, rank.largest(prefix)) for rank in ranks if rank.largest(prefix))


def lose_gradient(ranks):
    """As if a parameter had no path to the loss, its moments gone too."""
    rank, key = first_with(ranks, "gradient.")
    name = key.removeprefix("gradient.")
    for kind in ("gradient", "exp_avg", "exp_avg_sq"):
        del rank.tensors[f"{kind}.{name}"]
    rank.facts["no_gradient"].append(name)
    rank.facts["adam_steps"][name] = 0


def forget_moments(ranks):
    """As a run that starts Adam anew in each step and is right otherwise."""
    settings = json.loads((ranks[0].path.parents[1] / "audit.json").read_text(encoding="utf-8"))["optimizer"]
    for rank in ranks:
        factor = min(1.0, settings["max_grad_norm"] / (rank.facts["gradient_norm"] + 1e-6))
        for name in rank.facts["adam_steps"]:
            for kind in ("exp_avg", "exp_avg_sq"):
                del rank.tensors[f"{kind}.{name}"]
            weight = rank.tensors[f"before.{name}"].clone().requires_grad_(True)
            weight.grad = rank.tensors[f"gradient.{name}"] * factor
            torch.optim.AdamW([weight], lr=rank.facts["learning_rate"], betas=(settings["beta1"], settings["beta2"]),
                              eps=settings["eps"], weight_decay=settings["weight_decay"]).step()
            rank.tensors[f"after.{name}"] = weight.detach()
            rank.facts["adam_steps"][name] = 0


def recount(ranks):
    for rank in ranks:
        rank.facts["adam_steps"] = dict.fromkeys(rank.facts["adam_steps"], 2)


def add(amount):
    def work(tensor):
        tensor.view(-1)[0] += amount
        return tensor
    return work


def times(factor):
    return lambda value: value * factor


def first_digest_zero(digests):
    return {name: "0" * 64 if at == 0 else digest for at, (name, digest) in enumerate(digests.items())}


# Changes made at once to step 1, the flags of audit.py, and for each the part of a line that only that change brings.
WRONG = [
    ([], [(number("gradient.", lambda t: add(0.1 * t.norm())(t)), "WRONG: gradient"),
          (number("samples", add(1)), "used other samples"),
          (number("target", add(1e-3)), "another noise"),
          (number("losses", add(1e-3)), "WRONG: loss"),
          (fact("gradient_norm", times(1.001), everywhere=True), "WRONG: norm"),
          (fact("learning_rate", times(1.001), everywhere=True), "WRONG: learning rate"),
          (fact("frozen_sha256", first_digest_zero), "frozen parameters have changed")]),
    ([], [(number("before.", add(1e-3)), "is not what step 0 left"),
          (number("exp_avg.", add(1e-3)), "worst exp_avg."),
          (number("latents", times(1.001)), "WRONG: prediction"),
          (number("timesteps", add(1)), "used other timesteps"),
          (fact("learning_rate", times(1.001)), "rank 1 says learning_rate"),
          (fact("gradient_norm", times(1.001)), "rank 1 says gradient_norm")]),
    ([], [(number("exp_avg_sq.", times(1.001)), "worst exp_avg_sq."),
          (number("prediction", add(1e-2)), "WRONG: prediction")]),
    ([], [(forget_moments, "Adam has made 0 steps, 1 expected"),
          (forget_moments, "WRONG: moments")]),
    (["--steps", "1"], [(number("after.", add(1e-3)), "WRONG: update"),
                        (number("context", times(1.01), everywhere=True), "WRONG: prediction"),
                        (lose_gradient, "diffusers has a gradient, the run has none")]),
    (["--steps", "1"], [(number("after.", add(float("nan"))), "WRONG: optimizer"),
                        (number("hint", times(1.01), everywhere=True), "WRONG: prediction"),
                        (recount, "Adam has made 2 steps, 1 expected")]),
    (["--steps", "1"], [(number("gradient.", add(1e-3)), "WRONG: optimizer"),
                        (number("noise", times(1.001), everywhere=True), "WRONG: prediction")]),
    (["--steps", "1"], [(number("gradient.", add(float("nan"))), "WRONG: gradient: inf"),
                        (fact("learning_rate", times(float("nan")), everywhere=True), "WRONG: learning rate")]),
    (["--follow"], [(number("losses", add(1e-3)), "WRONG: loss"),
                    (fact("gradient_norm", times(1.001), everywhere=True), "WRONG: norm"),
                    (number("after.", add(1e-3)), "WRONG: update"),
                    (lose_gradient, "diffusers has a gradient, the run has none")]),
    (["--follow"], [(forget_moments, "Adam has made 0 steps, 1 expected"),
                    (forget_moments, "WRONG: update")]),
    (["--follow", "--steps", "1"], [(number("exp_avg.", times(2)), "WRONG: update")]),
]


def without(key):
    def work(ranks):
        del ranks[1].facts[key]
    return work


def drop(prefix):
    def work(ranks):
        rank, key = first_with(ranks, prefix)
        del rank.tensors[key]
    return work


# One change to step 1 each, and the part of the one line that refuses it.
REFUSED = [
    (number("gradient.", lambda t: t[1:].contiguous()), "expected"),
    (number("before.", lambda t: t[None]), "expected"),
    (number("latents", lambda t: t[:, :, 1:].contiguous()), "latents is F32"),
    (number("hint", lambda t: t[:, :1].contiguous()), "hint is F32"),
    (number("losses", lambda t: t.double()), "losses is F64 [3], F32 [3] expected"),
    (drop("exp_avg_sq."), "no rank's file holds exp_avg_sq."),
    (fact("adam_steps", lambda steps: dict.fromkeys(steps, 0)), "should not be there"),
    (without("gradient_norm"), "rank_1.safetensors: damaged: gradient_norm is missing"),
    (fact("learning_rate", str), "rank_1.safetensors: damaged: learning_rate is"),
    (fact("adam_steps", lambda steps: dict.fromkeys(steps, None)), "damaged: adam_steps."),
    (fact("step", lambda step: step + 1), "files of another run or step"),
    (fact("format", lambda _: "another"), "not written by a pipetrain that this program knows"),
]


def replaced(*path, by=None):
    """A change of audit.json: the value at `path` becomes `by`, or is gone."""
    def mutate(facts):
        for key in path[:-1]:
            facts = facts[key]
        facts.pop(path[-1])
        if by is not None:
            facts[path[-1]] = by
    return mutate


REFUSED_FACTS = [
    (replaced("ranks"), "audit.json: damaged: ranks is missing"),
    (replaced("batch", by="3"), 'audit.json: damaged: batch is "3"'),
    (replaced("optimizer", "eps"), "audit.json: damaged: optimizer.eps is missing"),
    (replaced("micro_batches", by=[2, 2]), "audit.json: damaged: 3 samples as [2, 2]"),
    (replaced("steps", by=[]), "audit.json: damaged: no step"),
    (replaced("unet", "block_out_channels", by=7), "another model"),
    (replaced("controlnet", "block_out_channels", by=7), "another model"),
]


def check(holds, what, printed):
    if not holds:
        raise SystemExit(f"{what}: not noticed as it should be; printed:\n{printed}")


@contextlib.contextmanager
def mutated(step, *mutations):
    with restored(*step.iterdir()):
        ranks = open_ranks(step)
        for mutate in mutations:
            mutate(ranks)
        for rank in ranks:
            rank.save()
        yield


def check_wrong(folder, weights):
    for flags, changes in WRONG:
        with mutated(folder / "step_000001", *dict.fromkeys(mutate for mutate, _ in changes)):
            status, printed = run(folder, weights, *flags)
        for _, told in changes:
            check(status == 1 and told in printed, f"{flags}, told as {told!r}, status {status}", printed)


def refused(told, *arguments):
    status, printed = run(*arguments)
    check(status == 2 and told in printed and printed.count("\n") == 1, f"{told!r}, status {status}", printed)


def check_damage(folder, weights):
    for mutate, told in REFUSED:
        with mutated(folder / "step_000001", mutate):
            refused(told, folder, weights, "--steps", "1")
    path = folder / "audit.json"
    for mutate, told in REFUSED_FACTS:
        with restored(path):
            facts = json.loads(path.read_text(encoding="utf-8"))
            mutate(facts)
            path.write_text(json.dumps(facts), encoding="utf-8")
            refused(told, folder, weights)


def check_missing(folder, weights, scratch):
    path = folder / "step_000001" / "rank_1.safetensors"
    with restored(path):
        path.write_bytes(path.read_bytes()[:-100])
        refused("rank_1.safetensors: damaged", folder, weights)
        path.unlink()
        refused("rank_1.safetensors: missing", folder, weights)
    os.rename(folder / "step_000001", scratch / "aside")
    refused("step_000001: missing", folder, weights)
    os.rename(scratch / "aside", folder / "step_000001")
    refused("step 7 was not audited", folder, weights, "--steps", "7")
    refused("audit.json", scratch, weights)
    refused("no unet/ in it", folder, scratch)


def check_other_weights(folder, weights, scratch):
    other = scratch / "other"
    shutil.copytree(weights / "unet", other / "unet")
    status, printed = run(folder, other, "--steps", "0")
    check(status == 0, "a folder without controlnet/, where the ControlNet cannot be compared", printed)
    shutil.copytree(weights / "controlnet", other / "controlnet")
    for part in ("controlnet", "unet"):
        file = RankFile(other / part / "diffusion_pytorch_model.safetensors")
        file.tensors["conv_in.bias"] = add(1e-3)(file.tensors["conv_in.bias"])
        file.save()
        refused(f"not the weights of this run: {part}.conv_in.bias", folder, other)


def check_unexpected(folder, weights):
    """Whatever goes wrong otherwise is one line and not the status of a wrong run."""
    reference, program.Reference = program.Reference, lambda *_: {}["a key"]
    refused("audit: KeyError: 'a key'", folder, weights)
    program.Reference = reference


def main(folder, weights, scratch):
    folder, weights, scratch = Path(folder), Path(weights), Path(scratch)
    scratch.mkdir()
    status, printed = run(folder, weights)
    check(status == 0, "the untouched audit", printed)
    check_wrong(folder, weights)
    check_damage(folder, weights)
    check_missing(folder, weights, scratch)
    check_other_weights(folder, weights, scratch)
    check_unexpected(folder, weights)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
