"""A teacher becomes a lesson, if a client can learn from it. Other clients made it, so all of it is checked."""

import math

import numpy as np
import torch
from numpy.typing import NDArray

from repshare.errors import Malformed
from repshare.learning.objective import Lesson
from repshare.learning.training import Learner
from repshare.sharing.representations import Floats, Representations, Teacher

ROOM = 10.0  # times the longest of this client's features: models differ, but not by more than this
SLACK = 1.01  # for what rounding makes of a length


def lay_out(teacher: Teacher, learner: Learner) -> Lesson:
    """Arrange a teacher's rows by class, on the learner's device."""
    classes, dimension = learner.network.classes, learner.dimension
    if teacher.space is not None:
        raise Malformed(f"the teacher is of the common space {teacher.space}; this client learns from its own features")
    for rows in (teacher.means, teacher.observations):
        if rows.vectors.shape[1] != dimension:
            raise Malformed(
                f"the teacher's representations have {rows.vectors.shape[1]} numbers, this model's {dimension}"
            )
        if ((rows.labels < 0) | (rows.labels >= classes)).any():
            raise Malformed(f"the teacher has classes beyond this model's {classes}")
        if not np.isfinite(rows.vectors).all():
            raise Malformed("a vector of the teacher is not finite")
        _check_lengths(rows.vectors, learner)
    most = np.bincount(teacher.observations.labels).max(initial=0)
    if most > learner.policy.m_down:  # laid out, they would take as much room for every class
        raise Malformed(f"the teacher has {most:,} observations of a class; {learner.policy.m_down:,} were asked for")
    means = np.zeros((classes, dimension), np.float32)
    means[teacher.means.labels] = teacher.means.vectors
    has_mean = np.isin(np.arange(classes), teacher.means.labels)
    observations, has_observation = _by_class(teacher.observations, classes)
    like = learner.network.head.weight
    return Lesson(
        torch.from_numpy(means).to(like),
        torch.from_numpy(has_mean).to(like.device),
        torch.from_numpy(observations).to(like),
        torch.from_numpy(has_observation).to(like.device),
    )


def _check_lengths(vectors: Floats, learner: Learner) -> None:
    """Refuse vectors longer than the task allows, or than this model could have any use for."""
    longest = float(np.linalg.norm(vectors.astype(np.float64), axis=1).max(initial=0.0))
    if longest > learner.norm_bound * SLACK:
        raise Malformed(
            f"a vector of the teacher is {longest:.4g} long; the task's norm_bound is {learner.norm_bound:.4g}"
        )
    own = math.sqrt(learner.dimension)  # Tanh features are never longer
    if longest > ROOM * own:
        features, _ = learner.represent()
        lengths = np.linalg.norm(features.astype(np.float64), axis=1)
        own = max(own, float(lengths[np.isfinite(lengths)].max(initial=0.0)))
    if longest > ROOM * own:
        raise Malformed(
            f"a vector of the teacher is {longest:.4g} long, more than {ROOM:g} times as long as any of this model's "
            f"own ({own:.4g})"
        )


def _by_class(rows: Representations, classes: int) -> tuple[Floats, NDArray[np.bool_]]:
    """Return observations as (M, C, d), those of rarer classes repeated, and which classes have any (C,)."""
    counts = np.bincount(rows.labels, minlength=classes)
    laid = np.zeros((counts.max(), classes, rows.vectors.shape[1]), np.float32)
    for label in np.flatnonzero(counts):
        own = rows.vectors[rows.labels == label]
        laid[:, label] = own[np.arange(len(laid)) % len(own)]
    return laid, counts > 0
