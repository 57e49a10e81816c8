"""Every change to an audit's files is noticed by tools/audit.py.

    audit_mutants.py AUDIT WEIGHTS SCRATCH

AUDIT holds steps 0 and 1 of two ranks and is restored after each change.
"""

import contextlib
import io
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
def restored(path):
    content = path.read_bytes()
    try:
        yield
    finally:
        path.write_bytes(content)


def change(path, key, work):
    with safe_open(path, "pt") as file:
        metadata = file.metadata()
    tensors = load_file(path)
    tensors[key] = work(tensors[key].clone())
    save_file(tensors, path, metadata)


def holder(folder, prefix):
    """A rank's file with such a tensor, and its largest one."""
    for path in sorted(folder.glob("rank_*.safetensors")):
        with safe_open(path, "pt") as file:
            keys = [key for key in file.keys() if key.startswith(prefix)]
            if keys:
                return path, max(keys, key=lambda key: file.get_tensor(key).numel())
    raise SystemExit(f"no {prefix} in {folder}")


def first_number(amount):
    def work(tensor):
        tensor.view(-1)[0] += amount
        return tensor
    return work


# What is changed at once: tensor, how, and the part of a line that only this change brings.
ROUNDS = [
    [("gradient.", lambda t: first_number(0.1 * t.norm())(t), "WRONG: gradient"),
     ("samples", first_number(1), "used other samples"),
     ("target", first_number(1e-3), "another noise"),
     ("losses", first_number(1e-3), "WRONG: loss")],
    [("gradient.", first_number(1e-3), "WRONG: optimizer")],
    [("before.", first_number(1e-3), "is not what step 0 left")],
    [("after.", first_number(1e-3), "WRONG: optimizer"),
     ("prediction", first_number(1e-2), "WRONG: prediction")],
    [("exp_avg.", lambda t: t * 2, "WRONG: optimizer")],
    [("latents", lambda t: t * 1.001, "WRONG: prediction"),
     ("timesteps", first_number(1), "used other timesteps")],
]


def check(holds, what, printed):
    if not holds:
        raise SystemExit(f"{what}: not noticed as it should be; printed:\n{printed}")


def check_changes(folder, weights):
    step = folder / "step_000001"
    for changes in ROUNDS:
        with contextlib.ExitStack() as stack:
            for path in step.iterdir():
                stack.enter_context(restored(path))
            for prefix, work, _ in changes:
                change(*holder(step, prefix), work)
            status, printed = run(folder, weights)
        for prefix, _, told in changes:
            check(status == 1 and told in printed, f"{prefix}, told as {told!r}", printed)


def check_refusals(folder, weights, scratch):
    def refused(what, told, *arguments):
        status, printed = run(*arguments)
        check(status == 2 and told in printed and printed.count("\n") == 1, what, printed)

    path = folder / "step_000001" / "rank_1.safetensors"
    with restored(path):
        path.write_bytes(path.read_bytes()[:-100])
        refused("torn file", "rank_1.safetensors: damaged", folder, weights)
        path.unlink()
        refused("missing file", "rank_1.safetensors: missing", folder, weights)
    os.rename(folder / "step_000001", scratch / "aside")
    refused("missing step", "step_000001: missing", folder, weights)
    status, printed = run(folder, weights, "--steps", "0")
    check(status == 0, "the step that is there", printed)
    os.rename(scratch / "aside", folder / "step_000001")
    refused("step out of reach", "step 7 was not audited", folder, weights, "--steps", "7")
    refused("not an audit", "audit.json", scratch, weights)
    refused("no weights", "no unet/ in it", folder, scratch)

    other = scratch / "other"
    shutil.copytree(weights / "unet", other / "unet")
    file = other / "unet" / "diffusion_pytorch_model.safetensors"
    change(file, "conv_in.bias", first_number(1e-3))
    refused("other weights", "not the weights of this run: unet.conv_in.bias", folder, other)


def main(folder, weights, scratch):
    folder, weights, scratch = Path(folder), Path(weights), Path(scratch)
    scratch.mkdir()
    status, printed = run(folder, weights)
    check(status == 0, "the untouched audit", printed)
    check_changes(folder, weights)
    check_refusals(folder, weights, scratch)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(*sys.argv[1:])
