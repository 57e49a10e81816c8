"""What `pipetrain --audit DIR` wrote, opened, checked and merged. Keys: docs/audit.md. Shared by audit.py.

Keys, types and shapes are checked before anything is computed: whoever gets a Step can read from it.
"""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

FORMAT = "stagecraft audit 1"
SHARED = ("learning_rate", "gradient_norm")
NUMBER = (int, float)

# What JSON must hold: a type, a list of one kind, a table with any keys (...), or a table with these.
FACTS = {
    "plan_hash": str, "width": int, "height": int, "batch": int, "micro_batches": [int], "ranks": int, "steps": [int],
    "trainable": {"what": str, "sd_locked": bool, "only_mid_control": bool},
    "optimizer": {key: NUMBER for key in ("learning_rate", "beta1", "beta2", "eps", "weight_decay", "warmup_steps",
                                          "max_grad_norm")},
    "noise": {"timesteps": int, "linear_start": NUMBER, "linear_end": NUMBER},
    "unet": {"in_channels": int, "cross_attention_dim": int},
}
CONTROLNET = {"controlnet": {"conditioning_channels": int}}
RANK_FACTS = {
    "plan_hash": str, "step": int, "rank": int, "learning_rate": NUMBER, "gradient_norm": NUMBER, "no_gradient": [str],
    "adam_steps": {...: int}, "frozen_sha256": {...: str},
}


class Unusable(Exception):
    """There is nothing to compare: one line for the user."""


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(
        a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))


def misfit(value, wanted, where=""):
    """The first part of `value` that is not as wanted, in words; None when all is."""
    parts = None
    if isinstance(wanted, dict) and isinstance(value, dict):
        keys = value if ... in wanted else wanted
        parts = [(key, value.get(key), wanted.get(key, wanted.get(...))) for key in keys]
    elif isinstance(wanted, list) and isinstance(value, list):
        parts = [(at, part, wanted[0]) for at, part in enumerate(value)]
    elif isinstance(wanted, (type, tuple)) and isinstance(value, wanted) and (type(value) is bool) == (wanted is bool):
        parts = []
    if parts is None:
        return f"{where} is {'missing' if value is None else json.dumps(value)[:40]}"
    faults = (misfit(part, kind, f"{where}.{key}".lstrip(".")) for key, part, kind in parts)
    return next(filter(None, faults), None)


def demand(path, value, wanted):
    fault = misfit(value, wanted)
    if fault:
        raise Unusable(f"{path}: damaged: {fault}")


class RankFile:
    """One rank's file of one step; tensors are read when they are asked for."""

    def __init__(self, path):
        self.path = path
        if not path.is_file():
            raise Unusable(f"{path}: missing; every rank writes one file for each audited step")
        try:
            self.file = safe_open(path, "pt")
            self.facts = json.loads((self.file.metadata() or {})["stagecraft_audit"])
            self.keys = set(self.file.keys())
        except (SafetensorError, OSError) as error:
            raise Unusable(f"{path}: damaged: {error}") from None
        except (KeyError, ValueError):
            raise Unusable(f"{path}: not a file that pipetrain --audit wrote") from None
        if not isinstance(self.facts, dict) or self.facts.get("format") != FORMAT:
            raise Unusable(f"{path}: not written by a pipetrain that this program knows ({FORMAT!r})")
        demand(path, self.facts, RANK_FACTS)

    def demand_kind(self, key, shape, dtype="F32"):
        part = self.file.get_slice(key)
        if part.get_shape() != shape or part.get_dtype() != dtype:
            raise Unusable(f"{self.path}: {key} is {part.get_dtype()} {part.get_shape()}, {dtype} {shape} expected")

    def read(self, key):
        try:
            # A copy: the file is mapped, and optimizers write where they are told to.
            return self.file.get_tensor(key).clone()
        except SafetensorError as error:
            raise Unusable(f"{self.path}: damaged: {error}") from None


class Step:
    """All ranks' files of one step. `complaints` holds what does not fit together."""

    def __init__(self, audit, number):
        self.number = number
        self.complaints = []
        self.folder = audit.folder / f"step_{number:06d}"
        if not self.folder.is_dir():
            raise Unusable(f"{self.folder}: missing; the run ended before step {number}, or the folder is incomplete "
                           "(--steps chooses among those that are there)")
        self.ranks = [RankFile(self.folder / f"rank_{rank}.safetensors") for rank in range(audit.facts["ranks"])]
        self.facts = self.ranks[0].facts
        self.batch, self.place, self.adam_steps, self.frozen = {}, {}, {}, {}
        self.no_gradient = set()
        self.kinds = batch_kinds(audit.facts)
        self.timesteps = audit.facts["noise"]["timesteps"]
        for rank, file in enumerate(self.ranks):
            self._check_facts(audit, rank, file)
            for key in sorted(file.keys):
                self._place(key, file)
            self.adam_steps |= file.facts["adam_steps"]
            self.no_gradient |= set(file.facts["no_gradient"])
            for name, digest in file.facts["frozen_sha256"].items():
                if self.frozen.setdefault(name, digest) != digest:
                    self.complaints.append(f"rank {rank} holds other values of {name} than a rank before it")
        self.trainable = sorted(self.adam_steps)
        self._check_parameters()

    def _check_facts(self, audit, rank, file):
        wanted = {"plan_hash": audit.facts["plan_hash"], "step": self.number, "rank": rank}
        for key, value in wanted.items():
            if file.facts[key] != value:
                raise Unusable(f"{file.path}: {key} {file.facts[key]!r}, {value!r} expected; "
                               "files of another run or step")
        for key in SHARED:
            if file.facts[key] != self.facts[key]:
                self.complaints.append(f"rank {rank} says {key} {file.facts[key]}, rank 0 {self.facts[key]}")

    def _place(self, key, file):
        if key in self.kinds:
            file.demand_kind(key, *self.kinds[key])
        elif key in self.place:
            raise Unusable(f"{file.path}: {key} is in {self.place[key].path} too")
        else:
            self.place[key] = file

    def _check_parameters(self):
        """Every trainable parameter has what its step count and `no_gradient` say, in one shape; no more is there."""
        if not self.trainable:
            raise Unusable(f"{self.folder}: no trainable parameter in any file")
        wanted = set()
        for name in self.trainable:
            kinds = ["before", "after"]
            if name not in self.no_gradient:
                kinds.append("gradient")
            if self.adam_steps[name] > 0:
                kinds += ["exp_avg", "exp_avg_sq"]
            shape = self._file("before", name).file.get_slice(f"before.{name}").get_shape()
            for kind in kinds:
                self._file(kind, name).demand_kind(f"{kind}.{name}", shape)
                wanted.add(f"{kind}.{name}")
        for key in sorted(self.place.keys() - wanted):
            raise Unusable(f"{self.place[key].path}: {key} should not be there")

    def _file(self, kind, name):
        key = f"{kind}.{name}"
        if key not in self.place:
            raise Unusable(f"{self.folder}: no rank's file holds {key}")
        return self.place[key]

    def read_batch(self):
        for rank, file in enumerate(self.ranks):
            for key in sorted(file.keys & self.kinds.keys()):
                tensor = file.read(key)
                if not same_bits(self.batch.setdefault(key, tensor), tensor):
                    self.complaints.append(f"rank {rank} used other {key} than a rank before it")
        for key in self.kinds.keys() - self.batch.keys():
            raise Unusable(f"{self.folder}: no rank's file holds {key}")
        if not ((self.batch["timesteps"] >= 0) & (self.batch["timesteps"] < self.timesteps)).all():
            raise Unusable(f"{self.folder}: damaged: a timestep is not in 0 to {self.timesteps - 1}")
        if not same_bits(self.batch["noise"], self.batch["target"]):
            self.complaints.append("the loss compares with another noise than was added to the latents")

    def read(self, kind, name):
        return self._file(kind, name).read(f"{kind}.{name}")


def batch_kinds(facts):
    """Shape and dtype of every tensor of the batch."""
    samples, width, height = facts["batch"], facts["width"], facts["height"]
    latents = [samples, facts["unet"]["in_channels"], height // 8, width // 8]
    kinds = {
        "samples": ([samples, 2], "I64"), "timesteps": ([samples], "I64"), "losses": ([samples],),
        "context": ([samples, 77, facts["unet"]["cross_attention_dim"]],),
        **{name: (latents,) for name in ("latents", "noise", "prediction", "target")}}
    if "controlnet" in facts:
        kinds["hint"] = ([samples, facts["controlnet"]["conditioning_channels"], height, width],)
    return kinds


class Audit:
    """The folder as a whole; every file of the chosen steps is there, open and has the keys and shapes it must have."""

    def __init__(self, folder, chosen):
        self.folder = Path(folder)
        path = self.folder / "audit.json"
        try:
            self.facts = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise Unusable(f"{path}: {error.strerror}; give the folder of pipetrain --audit") from None
        except ValueError as error:
            raise Unusable(f"{path}: damaged: {error}") from None
        if not isinstance(self.facts, dict) or self.facts.get("format") != FORMAT:
            raise Unusable(f"{path}: not written by a pipetrain that this program knows ({FORMAT!r})")
        demand(path, self.facts, FACTS | (CONTROLNET if "controlnet" in self.facts else {}))
        sizes = self.facts["micro_batches"]
        if min(sizes, default=0) < 1 or sum(sizes) != self.facts["batch"] or self.facts["ranks"] < 1:
            raise Unusable(f"{path}: damaged: {self.facts['batch']} samples as {sizes} on {self.facts['ranks']} ranks")
        self.numbers = sorted(chosen if chosen is not None else self.facts["steps"])
        if not self.numbers:
            raise Unusable(f"{path}: damaged: no step in it")
        for number in self.numbers:
            if number not in self.facts["steps"]:
                raise Unusable(f"{path}: step {number} was not audited; {self.facts['steps']} were")
        self.opened = [Step(self, number) for number in self.numbers]

    def steps(self):
        """Each step with its batch, which leaves with the step."""
        while self.opened:
            step = self.opened.pop(0)
            step.read_batch()
            yield step
