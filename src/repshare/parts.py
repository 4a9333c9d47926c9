"""A client's part of a common classifier, as the rows of a release: class-shaped averages over all its samples.

With n samples of which sample i has the vector ψᵢ in the common space, the label yᵢ and a weight αᵢ for each class:

    row c < C    Σ αᵢc ψᵢ / n  (d numbers),  Σ αᵢc / n,  the share of class c,  and for each candidate of shrinkage the
                 share of samples that are of class c and that the client, alone and leaving it out, gets right
    row C        Σ ψᵢ / n

Every row counts n, so that a board's mean of parts, weighted by counts, is the part of all samples together.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.errors import Malformed
from repshare.representations import Floats, Release, Representations, Teacher, nothing
from repshare.task import Task

SHRINKAGES = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # candidates: see `common`
BESIDE = 2 + len(SHRINKAGES)  # numbers of a row beside its vector
SLACK = 1.01  # for what fp16 makes of a length
MOST_WEIGHT = 4.0  # of a sample: what squared loss stays well below, and logistic loss below by a proof


class Part(NamedTuple):
    """Averages over a client's samples, or over everybody's."""

    vectors: Floats  # (C, d)
    weights: Floats  # (C,)
    shares: Floats  # (C,)
    hits: Floats  # (C, len(SHRINKAGES))
    centre: Floats  # (d,)
    samples: int


def make_part(
    vectors: Floats,  # (n, d)  one a sample
    weights: NDArray[np.float64],  # (n, C)  α
    labels: NDArray[np.int64],  # (n,)
    hits: NDArray[np.bool_],  # (n, len(SHRINKAGES))
) -> Part:
    """The averages. No sample's weight may be above MOST_WEIGHT."""
    classes, count = weights.shape[1], len(labels)
    if (largest := float(np.abs(weights).max(initial=0))) > MOST_WEIGHT:
        raise ValueError(f"a sample's weight is {largest:.3g}; at most {MOST_WEIGHT:g} may leave")
    ones = np.eye(classes, dtype=np.float32)[labels]  # (n, C)
    return Part(
        (weights.T.astype(np.float32) @ vectors) / np.float32(count),
        weights.mean(axis=0).astype(np.float32),
        ones.mean(axis=0),
        ones.T @ hits.astype(np.float32) / np.float32(count),
        vectors.mean(axis=0, dtype=np.float64).astype(np.float32),
        count,
    )


def as_release(part: Part, round: int, space: str) -> Release:
    """The part as what leaves a client."""
    classes, dimension = part.vectors.shape
    rows = np.zeros((classes + 1, dimension + BESIDE), np.float32)
    rows[:classes, :dimension], rows[classes, :dimension] = part.vectors, part.centre
    rows[:classes, dimension], rows[:classes, dimension + 1] = part.weights, part.shares
    rows[:classes, dimension + 2 :] = part.hits
    counts = np.full(classes + 1, part.samples, np.int64)
    means = Representations(rows, np.arange(classes + 1), counts)
    return Release(round, means, nothing(dimension + BESIDE), space=space)


def read_total(teacher: Teacher, classes: int, dimension: int, space: str) -> Part | None:
    """Everybody's averages, or None where nobody else has shared any. Raises Malformed for anything else."""
    labels, rows, counts = teacher.means.labels, teacher.means.vectors, teacher.means.counts
    if teacher.space not in (None, space):
        raise Malformed(f"the teacher is of the space {teacher.space}, this client's is {space}")
    if rows.shape[1] != dimension + BESIDE:
        raise Malformed(f"the teacher's vectors have {rows.shape[1] - BESIDE} numbers, this space's {dimension}")
    if not len(labels):
        return None
    if sorted(labels.tolist()) != list(range(classes + 1)):
        raise Malformed(f"the teacher has rows {sorted(labels.tolist())[:12]}, not one for each of {classes} classes")
    if not np.isfinite(rows).all() or len(set(counts.tolist())) != 1 or counts[0] < 1:
        raise Malformed("the teacher is not a total: its numbers are not finite, or its rows count different samples")
    rows = rows[np.argsort(labels)]
    lengths, longest = np.linalg.norm(rows[:, :dimension], axis=1), SLACK * np.sqrt(dimension)
    if lengths[classes] > longest or lengths.max() > MOST_WEIGHT * longest:
        raise Malformed(f"a vector of length {lengths.max():.4g}; those of this space are at most {longest:.4g}")
    beside = rows[:classes, dimension:]
    shares, hits = beside[:, 1], beside[:, 2:]
    if (
        (np.abs(shares - 0.5) > 0.501).any()
        or abs(float(shares.sum()) - 1) > 0.05
        or (hits > shares[:, None] + 0.01).any()
    ):
        raise Malformed("the teacher's shares of classes do not add up to 1")
    return Part(rows[:classes, :dimension], beside[:, 0], shares, hits, rows[classes, :dimension], int(counts[0]))


def make_task(classes: int, dimension: int, space: str) -> Task:
    """What clients of a common classifier agree on."""
    bound = MOST_WEIGHT * SLACK * float(np.sqrt(dimension)) + BESIDE
    return Task(classes + 1, dimension + BESIDE, norm_bound=bound, space=space)
