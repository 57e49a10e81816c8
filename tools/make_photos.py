#!/usr/bin/env python3
"""Makes a data set from the photographs that scikit-image and scikit-learn ship: crops, Canny edges, captions.

    .venv/bin/python tools/make_photos.py data/photos --size 512 --crops 8

Nothing is downloaded. A crop depends on the seed, the photograph and its own number only.
"""

import argparse
import importlib.util
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from skimage.color import rgb2gray
from skimage.feature import canny

from pair_set import PairSet, count, size


def folder_of(package):
    """Without importing it, which takes seconds."""
    found = importlib.util.find_spec(package)
    return Path(found.origin).parent if found else Path(package)


SKIMAGE = folder_of("skimage") / "data"
SKLEARN = folder_of("sklearn") / "datasets" / "images"
PHOTOGRAPHS = [
    (SKIMAGE / "astronaut.png", "an astronaut in an orange suit in front of a flag"),
    (SKIMAGE / "chelsea.png", "the face of a tabby cat"),
    (SKIMAGE / "coffee.png", "a cup of coffee with a spoon on a wooden table"),
    (SKIMAGE / "rocket.jpg", "a rocket on its launch pad in the evening"),
    (SKIMAGE / "motorcycle_left.png", "a motorcycle in a workshop"),
    (SKIMAGE / "hubble_deep_field.jpg", "galaxies in the night sky"),
    (SKIMAGE / "camera.png", "a man with a camera on a tripod, black and white"),
    (SKIMAGE / "coins.png", "old coins in rows, black and white"),
    (SKLEARN / "china.jpg", "a Chinese palace with curved roofs"),
    (SKLEARN / "flower.jpg", "an orange flower in front of green leaves"),
]


def crop(photograph, random, width, height):
    """A part of the photograph, half to the whole of what fits, as uint8 [height, width, 3]."""
    scale = min(photograph.width / width, photograph.height / height) * random.uniform(0.5, 1.0)
    crop_width, crop_height = width * scale, height * scale
    left = random.uniform(0, photograph.width - crop_width)
    top = random.uniform(0, photograph.height - crop_height)
    centre = (left + crop_width / 2) / photograph.width, (top + crop_height / 2) / photograph.height
    box = (left, top, left + crop_width, top + crop_height)
    return np.asarray(photograph.resize((width, height), Image.Resampling.LANCZOS, box=box)), centre


def place(centre):
    """Where the crop lies, in words, so that captions differ."""
    across = ("left", "middle", "right")[min(2, int(centre[0] * 3))]
    down = ("upper", "centre", "lower")[min(2, int(centre[1] * 3))]
    return f"{down} {across}"


def edges(picture):
    found = canny(rgb2gray(picture), sigma=1.5)
    return np.repeat((found * 255).astype(np.uint8)[..., None], 3, axis=2)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="folder to make")
    parser.add_argument("--size", type=size, default=(512, 512), help="pixels, 512 or 128x192 (512)")
    parser.add_argument("--crops", type=count, default=8, help="crops of each photograph (8)")
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()
    missing = [str(path) for path, _ in PHOTOGRAPHS if not path.is_file()]
    if missing:
        sys.exit("not in this scikit-image or scikit-learn: " + ", ".join(missing))
    photographs = [Image.open(path).convert("RGB") for path, _ in PHOTOGRAPHS]
    with PairSet(options.out) as pairs:
        for number in range(options.crops):
            for i, (_, caption) in enumerate(PHOTOGRAPHS):
                random = np.random.default_rng([options.seed, i, number])
                target, centre = crop(photographs[i], random, *options.size)
                pairs.add(edges(target), target, f"a photograph of {caption}, {place(centre)}")


if __name__ == "__main__":
    main()
