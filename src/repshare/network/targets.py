"""The targets that a teacher gives a client, if it can learn from them. All of it is checked: others made it."""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repshare.errors import Malformed
from repshare.sharing.representations import Floats, Representations, Teacher

ROOM = 10.0  # times the longest of this client's features: models differ, but not by more than this
SLACK = 1.01  # for what rounding makes of a length


class Targets(NamedTuple):
    """A teacher laid out for training: a row for every class, and which of the rows are real."""

    means: Tensor  # (C, d)
    has_mean: Tensor  # (C,) bool
    observations: Tensor  # (M, C, d)  M↓ of each class
    has_observation: Tensor  # (C,) bool


def make_targets(
    teacher: Teacher, head: Tensor, dimension: int, *, most: int, norm_bound: float, longest: Callable[[], float]
) -> Targets:
    """Arrange a teacher's rows by class, as the head's weights (C, d') are placed.

    `most`: the observations of a class that were asked for. `longest`: the length of this model's longest vector.
    """
    classes = len(head)
    if teacher.space is not None:
        raise Malformed(f"the teacher is of the space {teacher.space}; this client learns from its own features")
    for rows in (teacher.means, teacher.observations):
        if rows.vectors.shape[1] != dimension:
            raise Malformed(
                f"the teacher's representations have {rows.vectors.shape[1]} numbers, this model's {dimension}"
            )
        if ((rows.labels < 0) | (rows.labels >= classes)).any():
            raise Malformed(f"the teacher has classes beyond this model's {classes}")
        if not np.isfinite(rows.vectors).all():
            raise Malformed("a vector of the teacher is not finite")
        _check_lengths(rows.vectors, norm_bound, longest)
    found = np.bincount(teacher.observations.labels).max(initial=0)
    if found > most:  # laid out, they would take as much room for every class
        raise Malformed(f"the teacher has {found:,} observations of a class; {most:,} were asked for")
    means = np.zeros((classes, dimension), np.float32)
    means[teacher.means.labels] = teacher.means.vectors
    has_mean = np.isin(np.arange(classes), teacher.means.labels)
    observations, has_observation = _by_class(teacher.observations, classes)
    return Targets(
        torch.from_numpy(means).to(head),
        torch.from_numpy(has_mean).to(head.device),
        torch.from_numpy(observations).to(head),
        torch.from_numpy(has_observation).to(head.device),
    )


def _check_lengths(vectors: Floats, norm_bound: float, longest: Callable[[], float]) -> None:
    """Refuse vectors longer than the task allows, or than this model could have any use for."""
    given = float(np.linalg.norm(vectors.astype(np.float64), axis=1).max(initial=0.0))
    if given > norm_bound * SLACK:
        raise Malformed(f"a vector of the teacher is {given:.4g} long; the task's norm_bound is {norm_bound:.4g}")
    own = math.sqrt(vectors.shape[1])  # Tanh features are never longer
    if given > ROOM * own:
        own = max(own, longest())
    if given > ROOM * own:
        raise Malformed(
            f"a vector of the teacher is {given:.4g} long, more than {ROOM:g} times as long as any of this model's "
            f"own ({own:.4g})"
        )


def _by_class(rows: Representations, classes: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Lay out observations as (M, C, d), those of rarer classes repeated, and which classes have any (C,)."""
    counts = np.bincount(rows.labels, minlength=classes)
    laid = np.zeros((counts.max(), classes, rows.vectors.shape[1]), np.float32)
    for label in np.flatnonzero(counts):
        own = rows.vectors[rows.labels == label]
        laid[:, label] = own[np.arange(len(laid)) % len(own)]
    return laid, counts > 0
