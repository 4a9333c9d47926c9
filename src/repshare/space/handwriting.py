"""Synthetic handwriting: glyphs of one to three strokes, each written several times by an unsteady hand.

The directions that tell glyphs apart, whoever writes them (linear discriminant analysis: Fisher, 1936; Rao, 1948),
also tell apart characters that nobody has drawn here. So few numbers of a vector are enough, without anybody's data.
"""

import math
from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from repshare.space import seeded

Matrix = NDArray[np.float64]
Images = NDArray[np.float32]

GLYPHS, AT_ONCE = 600, 50
COPIES, FEWER_COPIES = 12, 3  # of each: fewer of large images, which take longer
LARGE = 1 << 12  # pixels of an image, from which it is large
MOST_DIRECTIONS = GLYPHS - 1  # glyphs differ in so many directions

STROKES = 3  # at most
ONE, TWO = 0.4, 0.8  # shares of glyphs with one stroke, and with at most two
POINTS = 24  # on a stroke
FINE = 28  # pixels along an edge, at least, that glyphs are drawn in, and then averaged
HEIGHT = 5 / 7  # of the image: a glyph's longer side
STRAIGHT, STEADY = 1 / 3, 2 / 3  # shares of strokes: straight, and at most gently curved
CURVED = 1.8  # times as far out: the inner control points of the others
UNSTEADY = 0.12  # deviation of a control point, where strokes are drawn within −1 … 1
TURN, SLANT, STRETCH, GROWTH = 0.12, 0.2, 0.12, 0.08  # deviations of a copy's rotation, shear and logarithms of scales
MOVE = 0.025  # of the image: deviation of a copy's place
THIN, THICK = 0.032, 0.068  # of the image: the deviation of a pen's profile
INK, FULL = 0.3, 0.7  # of the field on a stroke's middle: where ink begins, and where it is full

GROUND, BLACK = -0.42, 2.8  # of pixels of mean 0 and variance 1, as strokes have them
SHRUNK = 1.0  # mean strengths of directions within glyphs, added to each
KEPT = 0.5  # power of how well a direction tells glyphs apart that is left in its strength


def draw_glyphs(shape: tuple[int, int, int], seed: int) -> Iterator[Images]:
    """Yield some glyphs' copies at a time (glyphs, copies, channels, height, width), in pixels of normalised images.

    Args:
        shape: Channels, height and width of an image. All channels are alike.
        seed: The seed that glyphs are drawn from.
    """
    channels, height, width = shape
    copies = COPIES if height * width <= LARGE else FEWER_COPIES
    kinds = seeded.uniform((GLYPHS, 1 + 3 * STROKES), seed, "glyphs").astype(np.float64)
    controls = seeded.uniform((GLYPHS, STROKES, 4, 2), seed, "strokes").astype(np.float64) * 2 - 1
    for first in range(0, GLYPHS, AT_ONCE):
        glyphs = [
            _write(_make_strokes(kinds[number], controls[number]), copies, shape, seed, number)
            for number in range(first, first + AT_ONCE)
        ]
        yield np.repeat(np.stack(glyphs)[:, :, None], channels, axis=2)


def _make_strokes(kinds: Matrix, controls: Matrix) -> Matrix:
    """The control points of a glyph's strokes (strokes, 4, 2), cubic Bézier curves. Some begin on the last."""
    count = 1 + int(kinds[0] >= ONE) + int(kinds[0] >= TWO)
    strokes, curves = controls[:count].copy(), _bernstein()
    for place, (kind, joined, where) in enumerate(kinds[1:].reshape(STROKES, 3)[:count]):
        stroke = strokes[place]
        if kind < STRAIGHT:
            stroke[1:3] = stroke[0] + np.array([[1 / 3], [2 / 3]]) * (stroke[3] - stroke[0])
        elif kind >= STEADY:
            stroke[1:3] *= CURVED
        if place and joined < 0.5:  # at any point or, as often, at the end
            last = curves @ strokes[place - 1]
            stroke += last[min(int(2 * where * POINTS), POINTS - 1)] - stroke[0]
    return strokes


def _write(strokes: Matrix, copies: int, shape: tuple[int, int, int], seed: int, number: int) -> Images:
    """Copies of a glyph (copies, height, width), no two alike."""
    shaken = seeded.normal((copies, *strokes.shape), seed, "hand", number).astype(np.float64)
    turn, slant, stretch, growth, right, down = seeded.normal((6, copies, 1, 1), seed, "copies", number).astype(float)
    pen = seeded.uniform((copies, 1, 1), seed, "pens", number).astype(np.float64)
    x, y = np.moveaxis(_bernstein() @ (strokes + UNSTEADY * shaken), -1, 0)  # (copies, strokes, POINTS)
    x, y = x * np.exp(STRETCH * stretch) + SLANT * slant * y, y * np.exp(-STRETCH * stretch)
    cosine, sine = np.cos(TURN * turn), np.sin(TURN * turn)
    x, y = x * cosine - y * sine, x * sine + y * cosine

    fine = -(-FINE // min(shape[1:]))
    height, width = (fine * edge for edge in shape[1:])
    edge = min(height, width)
    extent = np.maximum(np.ptp(x, axis=(1, 2)), np.ptp(y, axis=(1, 2)))[:, None, None]
    scale = HEIGHT * edge * np.exp(GROWTH * growth) / extent
    x, y = scale * x, scale * y
    steps = np.hypot(np.diff(x), np.diff(y)) / 2
    lengths = np.pad(steps, ((0, 0), (0, 0), (1, 0))) + np.pad(steps, ((0, 0), (0, 0), (0, 1)))  # around each point
    total = lengths.sum(axis=(1, 2), keepdims=True)
    x, y = (  # ink's centre of mass is the image's middle, about
        (each - (lengths * each).sum(axis=(1, 2), keepdims=True) / total + MOVE * edge * shift).reshape(copies, 1, -1)
        for each, shift in ((x, right), (y, down))
    )
    profile = edge * (THIN + (THICK - THIN) * pen)
    rows, columns = (np.arange(count)[:, None] - (count - 1) / 2 for count in (height, width))
    down_, across = (np.exp(-(((axis - each) / profile) ** 2) / 2) for axis, each in ((rows, y), (columns, x)))
    field = (down_ * (lengths.reshape(copies, 1, -1) / profile)) @ across.swapaxes(1, 2) / math.sqrt(2 * math.pi)
    ink = np.clip((field - INK) / (FULL - INK), 0, 1)
    ink = ink.reshape(copies, shape[1], fine, shape[2], fine).mean(axis=(2, 4))
    return np.asarray(GROUND + (BLACK - GROUND) * ink, np.float32)


def _bernstein() -> Matrix:
    """The weights of four control points along a cubic curve (POINTS, 4)."""
    t = np.linspace(0, 1, POINTS)
    return np.stack([(1 - t) ** 3, 3 * t * (1 - t) ** 2, 3 * t * t * (1 - t), t**3], axis=1)


def discriminate(groups: Iterable[Matrix], count: int) -> tuple[Matrix, Matrix]:
    """The mean of all vectors (d,), and the directions (d, count) that tell groups apart best, best first.

    Args:
        groups: The vectors of groups of one size (groups, n, d), some at a time.
        count: Number of directions, fewer than groups.
    """
    means: list[Matrix] = []
    within, seen = np.zeros((1, 1)), 0
    for vectors in groups:
        means.append(vectors.mean(axis=1))
        around = (vectors - means[-1][:, None]).reshape(-1, vectors.shape[2])
        within = within + around.T @ around
        seen += len(around) - len(vectors)
    within /= seen
    within[np.diag_indices_from(within)] += SHRUNK * np.trace(within) / len(within)
    apart = np.concatenate(means)
    middle = apart.mean(axis=0)
    apart -= middle  # (groups, d)
    dual = np.linalg.solve(within, apart.T)  # (d, groups)
    strength, sides = np.linalg.eigh(apart @ dual / len(apart))
    strength, sides = strength[-count:][::-1], sides[:, -count:][:, ::-1]
    directions = dual @ sides  # (d, count)
    largest = np.abs(directions).argmax(axis=0)
    directions *= np.sign(directions[largest, np.arange(count)])  # eigenvectors have none
    return middle, directions * ((strength * len(apart)) ** -0.5 * strength ** (KEPT / 2))
