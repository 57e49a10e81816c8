"""What `pipetrain --audit DIR` wrote, read back and merged. Keys: docs/audit.md. Shared by audit.py."""

import json
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

FORMAT = "stagecraft audit 1"
SHARED = ("format", "plan_hash", "step", "learning_rate", "gradient_norm")


class Unusable(Exception):
    """There is nothing to compare: one line for the user."""


def same_bits(a, b):
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(
        a.contiguous().view(-1).view(torch.uint8), b.contiguous().view(-1).view(torch.uint8))


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
        if self.facts.get("format") != FORMAT:
            raise Unusable(f"{path}: format {self.facts.get('format')!r}, this program reads {FORMAT!r}")

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
        self.ranks = audit.ranks[number]
        self.facts = self.ranks[0].facts
        self.batch, self.place, self.adam_steps, self.frozen = {}, {}, {}, {}
        self.no_gradient = set()
        for rank, file in enumerate(self.ranks):
            self._check_facts(audit, rank, file)
            for key in sorted(file.keys):
                self._place(key, rank, file)
            self.adam_steps |= file.facts["adam_steps"]
            self.no_gradient |= set(file.facts["no_gradient"])
            for name, digest in file.facts["frozen_sha256"].items():
                if self.frozen.setdefault(name, digest) != digest:
                    self.complaints.append(f"rank {rank} holds other values of {name} than a rank before it")
        for name in ("samples", "timesteps", "latents", "noise", "context", "prediction", "target", "losses"):
            self._require(name, audit)
        if "controlnet" in audit.facts:
            self._require("hint", audit)
        if not same_bits(self.batch["noise"], self.batch["target"]):
            self.complaints.append("the loss compares with another noise than was added to the latents")
        if not self.trainable:
            raise Unusable(f"{self.ranks[0].path.parent}: no trainable parameter in any file")

    def _check_facts(self, audit, rank, file):
        wanted = {"plan_hash": audit.facts["plan_hash"], "step": self.number, "rank": rank}
        for key, value in wanted.items():
            if file.facts.get(key) != value:
                raise Unusable(f"{file.path}: {key} {file.facts.get(key)!r}, {value!r} expected; "
                               "files of another run or step")
        for key in SHARED:
            if file.facts.get(key) != self.facts.get(key):
                self.complaints.append(f"rank {rank} says {key} {file.facts.get(key)}, rank 0 {self.facts.get(key)}")

    def _place(self, key, rank, file):
        if "." in key:
            if key in self.place:
                raise Unusable(f"{file.path}: {key} is in {self.place[key].path} too")
            self.place[key] = file
            return
        tensor = file.read(key)
        if key not in self.batch:
            self.batch[key] = tensor
        elif not same_bits(tensor, self.batch[key]):
            self.complaints.append(f"rank {rank} used other {key} than a rank before it")

    def _require(self, name, audit):
        if name not in self.batch:
            raise Unusable(f"{self.ranks[0].path.parent}: no rank's file holds {name}")
        if len(self.batch[name]) != audit.facts["batch"]:
            raise Unusable(f"{self.ranks[0].path.parent}: {name} of {len(self.batch[name])} samples, "
                           f"{audit.facts['batch']} expected")

    @property
    def trainable(self):
        return sorted(key.removeprefix("before.") for key in self.place if key.startswith("before."))

    def has(self, kind, name):
        return f"{kind}.{name}" in self.place

    def read(self, kind, name):
        key = f"{kind}.{name}"
        if key not in self.place:
            raise Unusable(f"{self.ranks[0].path.parent}: no rank's file holds {key}")
        return self.place[key].read(key)


class Audit:
    """The folder as a whole; every file of the chosen steps is there and open."""

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
        self.numbers = chosen if chosen is not None else self.facts["steps"]
        for number in self.numbers:
            if number not in self.facts["steps"]:
                raise Unusable(f"{path}: step {number} was not audited; {self.facts['steps']} were")
        self.ranks = {number: self._open(number) for number in self.numbers}

    def _open(self, number):
        folder = self.folder / f"step_{number:06d}"
        if not folder.is_dir():
            raise Unusable(f"{folder}: missing; the run ended before step {number}, or the folder is incomplete "
                           "(--steps chooses among those that are there)")
        return [RankFile(folder / f"rank_{rank}.safetensors") for rank in range(self.facts["ranks"])]

    def steps(self):
        for number in self.numbers:
            yield Step(self, number)
