"""A client's part of a common classifier, as the rows of a release: class-shaped averages over all its samples.

With n samples of which sample i has the vector ψᵢ in the common space, the label yᵢ and a weight αᵢ for each class:

    row c < C    Σ αᵢc ψᵢ / n  (d numbers),  Σ αᵢc / n,  the share of class c,  and for each candidate of shrinkage the
                 share of samples that are of class c and that the client, alone and leaving it out, gets right
    row C        Σ ψᵢ / n,  log ρ if the weights were made for the ρ of a vote,  1 if they were made before any vote,
                 and the share of samples that did not vote for a shrinkage themselves, but repeat the vote of another

Where the parties weigh classes or samples, row C has Σ wᵢ ψᵢ / n, with no weight wᵢ above 1; the shares count samples.
Every row counts n, so that a board's mean of parts, weighted by counts, is the part of all samples together.
"""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.errors import Malformed
from repshare.sharing.representations import Floats, Release, Representations, Teacher, nothing

SHRINKAGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # candidates: see `space.solution`
KINDS = len(SHRINKAGES)
BESIDE = 2 + KINDS  # numbers of a row next to its vector
SLACK = 1.01  # for what fp16 makes of a length
ROUNDED = 0.005  # by how much fp16 or int8 may change a share
MOST_LOGARITHM = 25  # of a shrinkage, without its sign
CERTAIN = 2.0  # standard deviations
LEAST_WEIGHT = 1e-12  # of all samples, on average
MOST_WEIGHT = 4.0  # squared loss stays well below this weight


class Part(NamedTuple):
    """Averages over a client's samples, or over all clients'."""

    vectors: Floats  # (C, d)
    weights: Floats  # (C,)
    shares: Floats  # (C,)
    hits: Floats  # (C, len(SHRINKAGES))
    centre: Floats  # (d,)
    samples: int
    first: float = 0.0  # the share of samples whose weights were made before their client had heard of others
    shrinkage: float | None = None  # ρ that the other weights were made for, on the geometric mean; None: not known
    repeated: float = 0.0  # the share of samples whose hits are another sample's
    weighted: Floats | None = None  # (C,)  Σ wᵢ / n over a class's samples; None: all weights are 1. It does not leave

    @property
    def mean_weight(self) -> float:
        """The mean of the samples' weights."""
        return 1.0 if self.weighted is None else max(float(self.weighted.sum()), LEAST_WEIGHT)


def count_samples(
    vectors: Floats, labels: NDArray[np.int64], hits: NDArray[np.bool_], classes: int, voters: int | None = None,
    weights: NDArray[np.float64] | None = None,
) -> Part:  # fmt: skip
    """The fields of a part that do not depend on weights: computed once.

    `hits` are (n, len(SHRINKAGES)). `voters` is the number of samples whose hits are their own. Default: all.
    `weights` are the samples' (n,), none above 1. Default: all are 1.
    """
    count, ones = len(labels), np.eye(classes, dtype=np.float32)[labels]  # (n, C)
    if weights is None:
        centre, weighted = vectors.mean(axis=0, dtype=np.float64).astype(np.float32), None
    else:
        centre, weighted = ((weights @ each / count).astype(np.float32) for each in (vectors, ones))
    return Part(
        np.zeros((classes, 0), np.float32),
        np.zeros(classes, np.float32),
        ones.mean(axis=0),
        ones.T @ hits.astype(np.float32) / np.float32(count),
        centre,
        count,
        repeated=0.0 if voters is None else 1 - voters / count,
        weighted=weighted,
    )


def weigh_samples(counted: Part, vectors: Floats, weights: NDArray[np.float64], shrinkage: float | None) -> Part:
    """The part with these samples' weights (n, C) in it, none above MOST_WEIGHT. None: there had been no vote."""
    if (largest := float(np.abs(weights).max(initial=0))) > MOST_WEIGHT:
        raise ValueError(f"a sample's weight is {largest:.3g}; at most {MOST_WEIGHT:g} may leave")
    return counted._replace(
        vectors=(weights.T.astype(np.float32) @ vectors) / np.float32(counted.samples),
        weights=weights.mean(axis=0).astype(np.float32),
        first=1.0 if shrinkage is None else 0.0,
        shrinkage=shrinkage,
    )


def as_release(part: Part, round: int, space: str) -> Release:
    """The part as a release."""
    classes, dimension = part.vectors.shape
    rows = np.zeros((classes + 1, dimension + BESIDE), np.float32)
    rows[:classes, :dimension], rows[classes, :dimension] = part.vectors, part.centre
    rows[:classes, dimension], rows[:classes, dimension + 1] = part.weights, part.shares
    rows[:classes, dimension + 2 :] = part.hits
    rows[classes, dimension] = 0.0 if part.shrinkage is None else math.log(part.shrinkage)
    rows[classes, dimension + 1], rows[classes, dimension + 2] = part.first, part.repeated
    counts = np.full(classes + 1, part.samples, np.int64)
    means = Representations(rows, np.arange(classes + 1), counts)
    return Release(round, means, nothing(dimension + BESIDE), space=space)


def find_fault(rows: Representations, classes: int, dimension: int) -> str | None:
    """The reason why these rows are neither a part nor a total of parts; None if they are, or if there are none."""
    if (fault := find_misfit(rows, classes, dimension, "the centre", "samples")) or not len(rows.labels):
        return fault
    ordered = in_order(rows)
    lengths, longest = np.linalg.norm(ordered[:, :dimension], axis=1), SLACK * np.sqrt(dimension)
    if lengths[classes] > longest or lengths.max() > MOST_WEIGHT * longest:
        return f"a vector of length {lengths.max():.4g}; the space's are at most {longest:.4g} long"
    if abs(ordered[classes, dimension]) > MOST_LOGARITHM:
        return f"a shrinkage of exp({ordered[classes, dimension]:.4g}); it must be from exp(±{MOST_LOGARITHM})"
    if not -ROUNDED <= ordered[classes, dimension + 1] <= 1 + ROUNDED:
        return f"a share of {ordered[classes, dimension + 1]:.4g} first releases, not from 0 to 1"
    if not -ROUNDED <= ordered[classes, dimension + 2] <= 1 + ROUNDED:
        return f"a share of {ordered[classes, dimension + 2]:.4g} repeated votes, not from 0 to 1"
    weights, shares, hits = ordered[:classes, dimension], ordered[:classes, dimension + 1], ordered[:classes, -KINDS:]
    if np.abs(weights).max() > MOST_WEIGHT:
        return f"a weight of {np.abs(weights).max():.4g}; at most {MOST_WEIGHT:g} is allowed"
    if shares.min() < -ROUNDED or abs(float(shares.sum()) - 1) > ROUNDED * classes:
        return f"shares of classes that add up to {shares.sum():.4g}, not to 1"
    if hits.min() < -ROUNDED or (hits > shares[:, None] + ROUNDED).any():
        return "more hits than samples"
    return None


def find_misfit(rows: Representations, classes: int, dimension: int, last: str, counted: str) -> str | None:
    """The reason why these are not one row for each class and a last one, with fitting numbers and counts; or None."""
    labels, vectors, counts = rows.labels, rows.vectors, rows.counts
    if vectors.shape[1] != dimension + BESIDE:
        return f"vectors of {vectors.shape[1] - BESIDE} numbers; the space's have {dimension}"
    if not len(labels):
        return None
    if sorted(labels.tolist()) != list(range(classes + 1)):
        return f"rows {sorted(labels.tolist())[:12]}, not one for each of {classes} classes and one for {last}"
    if not np.isfinite(vectors).all() or counts.min() < 1 or counts.min() != counts.max():
        return f"numbers that are not finite, or rows that count different {counted}"
    return None


def in_order(rows: Representations) -> Floats:
    """The vectors in the order of their labels, which most are in already."""
    is_sorted = bool((rows.labels[:-1] <= rows.labels[1:]).all())
    return rows.vectors if is_sorted else rows.vectors[np.argsort(rows.labels)]


def read_total(teacher: Teacher, classes: int, dimension: int, space: str) -> Part | None:
    """All clients' averages, or None if no other client has shared any. Raises Malformed otherwise."""
    check_total(teacher, space, find_fault(teacher.means, classes, dimension))
    if not len(teacher.means.labels):
        return None
    rows = in_order(teacher.means)
    beside, first = rows[:classes, dimension:], min(max(float(rows[classes, dimension + 1]), 0.0), 1.0)
    return Part(
        rows[:classes, :dimension],
        beside[:, 0],
        beside[:, 1],
        beside[:, 2:],
        rows[classes, :dimension],
        int(teacher.means.counts[0]),
        first,
        None if first > 1 - ROUNDED else _shrinkage(float(rows[classes, dimension]) / (1 - first)),
        min(max(float(rows[classes, dimension + 2]), 0.0), 1.0),
    )


def check_total(teacher: Teacher, space: str, fault: str | None) -> None:
    """Raise Malformed if a total is of another space, or has a fault."""
    if teacher.space not in (None, space):
        raise Malformed(f"the teacher is of the space {teacher.space}, this client's is {space}")
    if fault:
        raise Malformed(f"the teacher has {fault}")


def count_classes(rows: Representations, classes: int, dimension: int) -> list[int]:
    """The number of samples of each class behind a part or total: its shares of the classes, as whole numbers.

    They add up to the number of samples: where rounding leaves some over, the largest remainders get them.
    """
    if len(rows.labels) != classes + 1:
        return [0] * classes
    shares = in_order(rows)[:classes, dimension + 1].astype(np.float64).clip(0)
    samples = int(rows.counts[0])
    exact = shares * (samples / max(float(shares.sum()), 1e-12))
    counts = np.floor(exact).astype(np.int64)
    left = min(max(samples - int(counts.sum()), 0), classes)
    counts[np.argsort(counts - exact, kind="stable")[:left]] += 1
    return [int(count) for count in counts]


def own_error(rows: Representations, classes: int, dimension: int) -> float | None:
    """A client's leave-one-out error on its own samples, relative to guessing.

    It comes from the votes on shrinkage in its part, and is what remains beyond chance: few samples say little. None
    where these rows are of a single class.
    """
    kept = rows.part(rows.labels < classes)
    shares, hits = kept.vectors[:, dimension + 1].astype(float), kept.vectors[:, dimension + 2 :].sum(axis=0)
    total = float(shares.sum())
    guessed = 1 - float(shares.max(initial=0)) / total if total > ROUNDED else 0.0
    if guessed < ROUNDED:
        return None
    wrong = min(max(1 - float(hits.max()) / total, 0.0), 1.0)
    chance = CERTAIN * math.sqrt(wrong * (1 - wrong) / (total * int(kept.counts[0])))
    return max(wrong - chance, 0.0) / guessed


def _shrinkage(logarithm: float) -> float:
    """The shrinkage within its bounds. A mean of valid ones is valid, but rounding or a lie may change it."""
    return math.exp(min(max(logarithm, -MOST_LOGARITHM), MOST_LOGARITHM))


def longest_row(dimension: int) -> float:
    """The length that no row of a part exceeds."""
    return MOST_WEIGHT * SLACK * float(np.sqrt(dimension)) + BESIDE + MOST_LOGARITHM
