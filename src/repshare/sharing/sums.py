"""A client's samples added up by class, as the rows of a release: what a discriminant in a common space is made of.

A sample with the vector ψ, at most √d long, is a vector u of d + 1 numbers that is at most 1 long:

    u = r · (√(1 − κ²) ψ / √d,  κ)    with κ = 0.3, so that sums of the last number tell how many samples there are

r is a little below 1, so that u is at most 1 long also when its numbers are rounded to whole multiples of 2⁻⁹. Sums of
such numbers are exact in fp32, up to 32,768 each.

    row c < C    Σ uᵢ over the samples of class c, with noise if there is a budget
    row C        the variance of the noise on each number; 0 without noise

Every row counts 1, a client: its number of samples is known from noisy sums only.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.sharing.parts import BESIDE, check_total, find_misfit, in_order
from repshare.sharing.representations import Floats, Integers, Release, Representations, Teacher, nothing

CONSTANT = 0.3  # κ
STEP = 2.0**-9  # to multiples of which a private release rounds
LARGEST = 2.0**24 * STEP  # number of a sum that fp32 has exactly
MOST_SAMPLES = 1e6  # of a client: no sum is longer
CERTAIN = 6.0  # standard deviations: a false alarm in a thousand million
ROUNDED = 0.001
MOST_VARIANCE = 1e12  # of noise

Sum = NDArray[np.float64]


class Sums(NamedTuple):
    """Sums over the samples of one client, or of all."""

    vectors: Sum  # (C, d)
    counts: Sum  # (C,)  samples; with noise, they may be negative
    variance: float  # of the noise on each number of `vectors`
    clients: int

    @property
    def samples(self) -> float:
        """The number of samples, as far as noise lets it be known."""
        return float(self.counts.sum())


def scales(dimension: int) -> tuple[float, float]:
    """The factor by which ψ is shortened in sums, and the number beside it that counts a sample."""
    room = 1 - STEP * math.sqrt(dimension + 1) / 2
    return room * math.sqrt((1 - CONSTANT**2) / dimension), room * CONSTANT


def lift(vectors: Floats) -> Floats:
    """Map vectors in the space (n, d) to the vectors that sums are made of (n, d + 1)."""
    factor, constant = scales(vectors.shape[1])
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True) / math.sqrt(vectors.shape[1])
    vectors = vectors / np.maximum(lengths, 1.0)  # after rounding to fp32
    beside = np.full((len(vectors), 1), constant, np.float32)
    return np.concatenate([vectors * np.float32(factor), beside], axis=1)


def add_up(vectors: NDArray[np.floating], labels: Integers, classes: int) -> Sum:
    """The sum of the vectors (n, k) of each class (C, k), in fp64."""
    sums = np.zeros((classes, vectors.shape[1]))
    np.add.at(sums, labels, vectors.astype(np.float64))
    return sums


def as_release(sums: Sum, round: int, space: str, *, variance: float = 0.0, noise: str | None = None) -> Release:
    """Sums (C, d + 1) as a release."""
    classes, dimension = len(sums), sums.shape[1] - 1
    rows = np.zeros((classes + 1, dimension + BESIDE), np.float32)
    rows[:classes, : dimension + 1] = sums
    rows[classes, dimension] = variance
    means = Representations(rows, np.arange(classes + 1), np.ones(classes + 1, np.int64))
    return Release(round, means, nothing(dimension + BESIDE), noise, space)


def find_fault(rows: Representations, classes: int, dimension: int) -> str | None:
    """The reason why these rows are neither sums nor a mean of several clients' sums; or None."""
    if (fault := find_misfit(rows, classes, dimension, "the noise", "clients")) or not len(rows.labels):
        return fault
    ordered = in_order(rows)
    if (longest := float(np.linalg.norm(ordered[:classes], axis=1).max())) > MOST_SAMPLES:
        return f"a sum of length {longest:.4g}; a client has at most {MOST_SAMPLES:,.0f} samples"
    if not 0 <= (variance := float(ordered[classes, dimension])) <= MOST_VARIANCE:
        return f"noise of variance {variance:.4g}; it must be from 0 to {MOST_VARIANCE:g}"
    if ordered[:classes, dimension + 1 :].any() or np.delete(ordered[classes], dimension).any():
        return "numbers where there must be zeros"
    return find_impossible(ordered[:classes, : dimension + 1], variance) if int(rows.counts[0]) == 1 else None


def find_impossible(sums: Floats, variance: float) -> str | None:
    """The reason why sums (C, d + 1) are of no samples of one client with noise of this variance, or None."""
    deviation, columns = math.sqrt(variance), sums.shape[1]
    constant, told = scales(columns - 1)[1], sums[:, -1].astype(np.float64)
    if told.min() < -(CERTAIN * deviation + ROUNDED):
        return f"a count of {told.min() / constant:.4g} samples, which noise of variance {variance:.4g} does not make"
    most = (told.clip(0) + CERTAIN * deviation) / constant + deviation * (math.sqrt(columns) + CERTAIN)
    lengths = np.linalg.norm(sums.astype(np.float64), axis=1)
    if (over := lengths - most * (1 + ROUNDED) - ROUNDED).max() > 0:
        at = int(over.argmax())
        return f"a sum of length {lengths[at]:.4g} over {told[at] / constant:.4g} samples, each at most 1 long"
    least = variance * columns * (1 - CERTAIN * math.sqrt(2 / columns))
    if np.square(lengths).min() < least:
        return f"sums without the noise of variance {variance:.4g} that they declare"
    return None


def count_classes(rows: Representations, classes: int, dimension: int) -> list[int]:
    """The number of samples of each class in sums, as far as noise lets it be known."""
    if len(rows.labels) != classes + 1:
        return [0] * classes
    told = in_order(rows)[:classes, dimension].astype(np.float64) * int(rows.counts[0])
    return [max(0, round(float(count))) for count in told / scales(dimension)[1]]


def read_variance(release: Release) -> float:
    """The variance of the noise in a release of sums; 0 if it has none."""
    rows = release.means
    if not len(rows.labels):
        return 0.0
    return float(rows.vectors[rows.labels.argmax(), rows.vectors.shape[1] - BESIDE])


def read_sums(teacher: Teacher, classes: int, dimension: int, space: str) -> Sums | None:
    """All clients' sums, or None if no client has shared any. Raises Malformed otherwise."""
    check_total(teacher, space, find_fault(teacher.means, classes, dimension))
    if not len(teacher.means.labels):
        return None
    clients = int(teacher.means.counts[0])
    rows = in_order(teacher.means).astype(np.float64) * clients
    variance = float(rows[classes, dimension])
    _, constant = scales(dimension)
    return Sums(rows[:classes, :dimension], rows[:classes, dimension] / constant, variance, clients)
