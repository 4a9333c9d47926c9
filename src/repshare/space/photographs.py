"""Synthetic photographs: opaque shapes of many sizes, one over the other (dead leaves: Lee, Mumford and Huang, 2001).

Their edges and smooth parts have the statistics of photographs, so that a filter bank can be made for photographs
without looking at one.
"""

import math

import numpy as np
from numpy.typing import NDArray

from repshare.space import seeded

SHAPES = 120  # in an image, the last on top
SMALLEST, LARGEST = 1.5, 20.0  # radii in pixels; their density falls with the third power
FINER = 2  # pixels are averages over this many along each edge


def draw_leaves(count: int, shape: tuple[int, int, int], seed: int) -> NDArray[np.float32]:
    """Draw images (count, channels, height, width) of mean 0 and variance 1."""
    channels, height, width = shape
    rows, columns = np.mgrid[0 : height * FINER, 0 : width * FINER].astype(np.float32)
    drawn = seeded.uniform((count, SHAPES, 6), seed, "shapes").astype(np.float64)
    colours = seeded.normal((count, SHAPES, channels + 2), seed, "colours").astype(np.float64)
    images = np.zeros((count, channels, height, width), np.float32)
    for number in range(count):
        image = np.full((channels, *rows.shape), 0.5, np.float32)
        for (x, y, size, turn, flatness, kind), colour in zip(drawn[number], colours[number], strict=True):
            radius = FINER * (SMALLEST**-2 + size * (LARGEST**-2 - SMALLEST**-2)) ** -0.5
            across, down = columns - x * columns.shape[1], rows - y * rows.shape[0]
            cosine, sine = math.cos(math.pi * turn), math.sin(math.pi * turn)
            along, aside = across * cosine + down * sine, (down * cosine - across * sine) / (0.4 + 0.6 * flatness)
            round_ = along**2 + aside**2 < radius**2
            inside = round_ if kind < 0.5 else (np.abs(along) < radius) & (np.abs(aside) < radius)
            shade = 0.5 + 0.25 * colour[0] + 0.1 * colour[2:, None] + 0.15 * colour[1] * along[inside] / radius
            image[:, inside] = np.clip(shade, 0, 1)
        images[number] = image.reshape(channels, height, FINER, width, FINER).mean(axis=(2, 4))
    return np.asarray((images - images.mean()) / images.std(), np.float32)
