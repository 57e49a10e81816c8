#!/usr/bin/env python3
"""What a rank holds before it has loaded anything of the model, and how long a program takes to start.

    benchmarks/idle_rank.py [RUNS]      needs build/release/bin (tools/setup.sh)

Trains the tiny demo for one step on two ranks, RUNS times (5), and prints medians: `process_base` of measured.json (resident size, and
docs/memory-model.md's line), the seconds of `pipetrain --help`, and what a process grows by that opens the picture decoder.
Rank 0 reads the hints, rank 1 no picture.
"""

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
BIN = os.path.join(ROOT, "build/release/bin")
PYTHON = os.path.join(os.environ.get("STAGECRAFT_VENV", os.path.join(ROOT, ".venv")), "bin/python")
MIB = 1 << 20


OPEN_DECODER = """
import ctypes, sys
def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096
before = resident()
ctypes.CDLL(sys.argv[1])
print(resident() - before)
"""


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout


def spread(values, unit):
    return f"median {statistics.median(values):.3f} {unit}, {min(values):.3f} to {max(values):.3f}"


def main():
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    with tempfile.TemporaryDirectory() as folder:
        run(PYTHON, "tools/make_fill50k.py", f"{folder}/data", "--count", "2", "--size", "64")
        run(PYTHON, "tools/make_clip_vocab.py", f"{folder}/tokenizer")
        config = "configs/train/tiny_demo.yaml"
        run(f"{BIN}/partition", "--config", config, "--cluster", "configs/clusters/local_cpu_2.yaml", "--width", "64",
            "--height", "64", "--batch", "2", "--micro-batch", "1", "-o", f"{folder}/plan.yaml")
        bases, starts, decoders = [], [], []
        for turn in range(runs):
            out = f"{folder}/run{turn}"
            run(f"{BIN}/pipetrain", "--plan", f"{folder}/plan.yaml", "--config", config, "--init-random", "1",
                "--tokenizer", f"{folder}/tokenizer", "--data", f"{folder}/data", "--out", out, "--steps", "1")
            with open(f"{out}/measured.json") as file:
                bases.append([rank["memory"]["process_base"] / MIB for rank in json.load(file)["ranks"]])
            begin = time.monotonic()
            run(f"{BIN}/pipetrain", "--help")
            starts.append(time.monotonic() - begin)
            decoders.append(int(run(sys.executable, "-c", OPEN_DECODER, f"{BIN}/libstagecraft_pictures.so")) / MIB)
    print(f"{platform.machine()}, {os.cpu_count()} cores, {runs} runs")
    for rank, values in enumerate(zip(*bases)):
        print(f"process base of rank {rank}: {spread(values, 'MiB')}")
    print(f"picture decoder on top: {spread(decoders, 'MiB')}")
    print(f"pipetrain --help: {spread(starts, 's')}")


if __name__ == "__main__":
    main()
