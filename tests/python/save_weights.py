"""Saves the models of make_reference.py as a folder that pipetrain --weights reads.

    save_weights.py MODEL.yaml OUT_DIR [SEED]

Nothing is zero, so the layers that a new ControlNet has at zero are seen.
"""

import sys

import torch
from diffusers_modules import read_model_file
from make_reference import build


def main(model_file, out, seed=20240607):
    torch.set_num_threads(1)
    generator = torch.Generator().manual_seed(int(seed))
    for part, model in build(read_model_file(model_file), generator).items():
        model.save_pretrained(f"{out}/{part}")


if __name__ == "__main__":
    main(*sys.argv[1:])
