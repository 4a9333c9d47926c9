"""Many clients' means of a class -> one, whatever some of the clients do.

The weighted mean of all is kept as running totals by the board. The others here count every client the same, since
the number of samples is a claim that a client makes itself.
"""

import math

import numpy as np
from numpy.typing import NDArray

from repshare.config import Aggregation

TRIM = 0.2  # of the clients, from either end of each coordinate
STEPS = 100
CLOSE = 1e-7  # of the spread: nearer than this, the geometric median has been found

Vectors = NDArray[np.float64]


def aggregate(vectors: NDArray[np.floating], how: Aggregation) -> Vectors:
    """Combine many vectors (n, d) into one (d,)."""
    rows = np.asarray(vectors, np.float64)
    if how == "median":
        return np.asarray(np.median(rows, axis=0))
    if how == "trimmed":
        return _trimmed_mean(rows)
    if how == "geometric":
        return _geometric_median(rows)
    return np.asarray(rows.mean(axis=0))


def tolerated(clients: int, how: Aggregation) -> int:
    """Return how many of these clients may share anything at all without deciding the aggregate.

    median, trimmed: each coordinate stays between the others' smallest and largest. geometric: the distance to the
    others' centre stays below (1 − a) / √(1 − 2a) times the largest of theirs, a being the share of those that lie
    (Minsker 2015).
    """
    half = (clients - 1) // 2
    return {"mean": 0, "trimmed": min(math.ceil(TRIM * clients), half)}.get(how, half)


def strangeness(vectors: NDArray[np.floating]) -> Vectors:
    """Return how many times farther each row (n, d) is from their median than half of the rows are: (n,)."""
    rows = np.asarray(vectors, np.float64)
    distances = np.linalg.norm(rows - np.median(rows, axis=0), axis=1)
    usual = np.median(distances)
    return np.asarray(distances / max(float(usual), 1e-12 + 1e-6 * float(np.abs(rows).max(initial=0))))


def _trimmed_mean(rows: Vectors) -> Vectors:
    """Leave the largest and smallest fifth out, at least one each from three clients on."""
    cut = tolerated(len(rows), "trimmed")
    return np.asarray(np.sort(rows, axis=0)[cut : len(rows) - cut].mean(axis=0))


def _geometric_median(rows: Vectors) -> Vectors:
    """Return the point with the least sum of distances to all rows, by Weiszfeld's iteration.

    At a row, which would hold it for good, the step of Vardi and Zhang (2000) leads away unless the row is the median.
    """
    point = np.median(rows, axis=0)
    spread = float(np.linalg.norm(rows - point, axis=1).max())
    for _ in range(STEPS if spread > 0 else 0):
        distances = np.linalg.norm(rows - point, axis=1)  # (n,)
        away = distances > CLOSE * spread
        weights = 1 / np.maximum(distances, CLOSE * spread) * away
        nearer = weights @ rows / weights.sum()
        if held := len(rows) - int(away.sum()):
            pull = float(np.linalg.norm(nearer - point) * weights.sum())
            nearer = point + max(0.0, 1 - held / pull) * (nearer - point) if pull > 0 else point
        if np.linalg.norm(nearer - point) <= CLOSE * spread:
            return np.asarray(nearer)
        point = nearer
    return np.asarray(point)
