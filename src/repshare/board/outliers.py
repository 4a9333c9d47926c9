"""Clients that stand out from the others, by what they have shared."""

from statistics import median

import numpy as np
from numpy.typing import NDArray

from repshare.sharing.representations import Representations
from repshare.sharing.task import Task

FEWEST = 4  # clients below which no client is called an outlier
FEWEST_PARTS = 3  # the same in a common space
USUAL_ERROR = 0.1  # the least that counts as usual in a common space


def judge(task: Task, means: list[Representations]) -> list[float | None]:
    """Each client's distance from the usual, in multiples of the others'; None where too few can be compared."""
    return _compare(means) if task.space is None else _compare_parts(task, means)


def _compare(means: list[Representations]) -> list[float | None]:
    """Return for each client the median over its classes, where enough clients share one."""
    scores: list[list[float]] = [[] for _ in means]
    if not means:
        return []
    labels, vectors = (np.concatenate(rows) for rows in zip(*((m.labels, m.vectors) for m in means), strict=True))
    owners = np.repeat(np.arange(len(means)), [len(rows.labels) for rows in means])
    order = np.argsort(labels, kind="stable")  # class by class
    for rows in np.split(order, np.flatnonzero(np.diff(labels[order])) + 1):
        if len(rows) >= FEWEST:
            for owner, score in zip(owners[rows].tolist(), strangeness(vectors[rows]).tolist(), strict=True):
                scores[owner].append(score)
    return [median(of_one) if of_one else None for of_one in scores]


def _compare_parts(task: Task, parts: list[Representations]) -> list[float | None]:
    """Return for each client how many times more often than usual it is wrong about samples of its own.

    Distances say nothing in a common space: a part is what the total still needs, so that honest parts differ most.
    """
    errors = [task.layout.own_error(rows, task.classes, task.dimension) for rows in parts]
    known = [error for error in errors if error is not None]
    if len(known) < FEWEST_PARTS:
        return [None for _ in parts]
    usual = max(median(known), USUAL_ERROR)
    return [None if error is None else error / usual for error in errors]


def strangeness(vectors: NDArray[np.floating]) -> NDArray[np.float64]:
    """How many times farther each row (n, d) is from their median than half of the rows are: (n,)."""
    rows = np.asarray(vectors, np.float64)
    distances = np.linalg.norm(rows - np.median(rows, axis=0), axis=1)
    usual = np.median(distances)
    return np.asarray(distances / max(float(usual), 1e-12 + 1e-6 * float(np.abs(rows).max(initial=0))))
