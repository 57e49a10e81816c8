"""Saves the models of make_reference.py as a folder that pipetrain --weights reads.

    save_weights.py MODEL.yaml OUT_DIR [SEED]

Nothing is zero, so the layers that a new ControlNet has at zero are seen.
"""

import sys

import torch
import yaml

from make_reference import build


def main(model_file, out, seed=20240607):
    torch.set_num_threads(1)
    with open(model_file, encoding="utf-8") as file:
        config = yaml.safe_load(file)
    for part, model in build(config, torch.Generator().manual_seed(int(seed))).items():
        model.save_pretrained(f"{out}/{part}")


if __name__ == "__main__":
    main(*sys.argv[1:])
