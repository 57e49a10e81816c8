#!/usr/bin/env python3
"""Makes a data set of the kind of fill50k: a filled circle, its outline as the hint, a caption with both colours.

    .venv/bin/python tools/make_fill50k.py data/circles --count 1000 --size 512

Pair i depends on the seed and i only, so a larger set begins with the smaller one.
"""

import argparse

import numpy as np

from pair_set import PairSet, count, size

COLOURS = {
    "black": (0, 0, 0), "white": (255, 255, 255), "gray": (128, 128, 128), "silver": (192, 192, 192),
    "red": (255, 0, 0), "dark red": (139, 0, 0), "tomato": (255, 99, 71), "coral": (255, 127, 80),
    "orange": (255, 165, 0), "gold": (255, 215, 0), "yellow": (255, 255, 0), "khaki": (240, 230, 140),
    "olive": (128, 128, 0), "green": (0, 128, 0), "lime": (0, 255, 0), "sea green": (46, 139, 87),
    "teal": (0, 128, 128), "turquoise": (64, 224, 208), "cyan": (0, 255, 255), "sky blue": (135, 206, 235),
    "steel blue": (70, 130, 180), "blue": (0, 0, 255), "navy": (0, 0, 128), "indigo": (75, 0, 130),
    "violet": (238, 130, 238), "purple": (128, 0, 128), "magenta": (255, 0, 255), "pink": (255, 192, 203),
    "brown": (165, 42, 42), "chocolate": (210, 105, 30), "tan": (210, 180, 140), "beige": (245, 245, 220),
}


def blend(coverage, above, below):
    mixed = coverage[..., None] * np.array(above) + (1 - coverage[..., None]) * np.array(below)
    return np.rint(mixed).astype(np.uint8)


def pair(random, width, height):
    """Hint, picture and caption. Edges are one pixel soft."""
    circle, background = random.choice(len(COLOURS), 2, replace=False)
    names = list(COLOURS)
    radius = random.uniform(0.1, 0.4) * min(width, height)
    x = random.uniform(radius, width - radius)
    y = random.uniform(radius, height - radius)
    rows, columns = np.mgrid[0:height, 0:width] + 0.5
    distance = np.hypot(columns - x, rows - y)
    inside = np.clip(radius - distance + 0.5, 0, 1)
    outline = np.clip(1.5 - np.abs(distance - radius), 0, 1)
    source = blend(outline, (255, 255, 255), (0, 0, 0))
    target = blend(inside, COLOURS[names[circle]], COLOURS[names[background]])
    return source, target, f"{names[circle]} circle with {names[background]} background"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", help="folder to make")
    parser.add_argument("--count", type=count, default=100, help="pairs (100)")
    parser.add_argument("--size", type=size, default=(512, 512), help="pixels, 512 or 128x192 (512)")
    parser.add_argument("--seed", type=int, default=42)
    options = parser.parse_args()
    with PairSet(options.out) as pairs:
        for i in range(options.count):
            pairs.add(*pair(np.random.default_rng([options.seed, i]), *options.size))


if __name__ == "__main__":
    main()
