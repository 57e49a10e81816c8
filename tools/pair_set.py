"""A data set in the layout of fill50k, written whole or not at all. Shared by the generators."""

import argparse
import json
import os
import shutil
import sys
from pathlib import Path

from PIL import Image


def size(text):
    """"512" or "128x192" (width x height) as a pair."""
    parts = text.lower().split("x")
    try:
        numbers = [int(part) for part in parts]
    except ValueError:
        numbers = []
    if len(numbers) not in (1, 2) or not all(16 <= number <= 4096 for number in numbers):
        raise argparse.ArgumentTypeError(f"{text!r} is not a size; 512 or 128x192, 16 to 4096")
    return numbers[0], numbers[-1]


def count(text):
    if not text.isdigit() or not 1 <= int(text) <= 1_000_000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000000")
    return int(text)


class PairSet:
    """`with PairSet(out) as pairs: pairs.add(source, target, prompt)`; arrays are uint8 [H, W, 3]."""

    def __init__(self, out):
        self.out = Path(out)
        self.partial = self.out.with_name(self.out.name + ".partial")
        self.lines = []

    def __enter__(self):
        if self.out.exists() and (not self.out.is_dir() or any(self.out.iterdir())):
            sys.exit(f"{self.out} is there and not empty; remove it or name another folder")
        shutil.rmtree(self.partial, ignore_errors=True)
        for kind in ("source", "target"):
            (self.partial / kind).mkdir(parents=True)
        return self

    def add(self, source, target, prompt):
        name = f"{len(self.lines):06d}.png"
        Image.fromarray(source).save(self.partial / "source" / name)
        Image.fromarray(target).save(self.partial / "target" / name)
        self.lines.append(json.dumps(
            {"source": f"source/{name}", "target": f"target/{name}", "prompt": prompt}))

    def __exit__(self, kind, error, trace):
        if kind is not None:
            shutil.rmtree(self.partial, ignore_errors=True)
            return
        (self.partial / "prompt.json").write_text("\n".join(self.lines) + "\n", encoding="utf-8")
        os.replace(self.partial, self.out)
        print(f"{self.out}: {len(self.lines)} pairs")
