"""RS: the paper's method. Class means and observations of features go out, global means and others' come back."""

from typing import Any

import numpy as np

from repshare.board import Board
from repshare.learning.lesson import lay_out
from repshare.learning.models import Network
from repshare.learning.training import Learner
from repshare.methods.method import Method
from repshare.sharing import wire
from repshare.sharing.representations import Representations, Teacher, make_release, stack
from repshare.sharing.task import Task


def share(learner: Learner, round: int) -> bytes:
    """Return a release: averages over the samples that the policy lets take part."""
    vectors, labels = learner.represent()
    release = make_release(vectors, labels, learner.averaging, learner.policy, round, learner.guard)
    return wire.encode_release(release, learner.policy.precision)


def serve(task: Task, start: Network | None = None, options: Any = None) -> Board:
    """Return a board in memory."""
    return Board(task)


def absorb(learner: Learner, body: bytes) -> None:
    """Learn from this teacher in the rounds to come. A first one without any class has class means of zero."""
    teacher = wire.decode_teacher(body)
    if learner.lesson is None and not len(teacher.means.labels) and learner.policy.start == "zeros":
        teacher = start(learner)
    learner.lesson = lay_out(teacher, learner)


def start(learner: Learner) -> Teacher:
    """Return the teacher of the first round (Algorithm 1, line 1): class means of length zero, no observations.

    The authors' emulation averages outputs of the untrained networks, which are nearly the same for all inputs and
    short: 0.04 to 0.08 a number. Zeros need no release.
    """
    classes, dimension = learner.network.classes, learner.dimension
    zeros = Representations(np.zeros((classes, dimension), np.float32), np.arange(classes), np.ones(classes, np.int64))
    return Teacher(zeros, stack([], dimension))


RS = Method(
    "RS",
    "representation sharing (the paper)",
    share,
    serve,
    absorb,
    source="Berdoz et al., 2022: Scalable collaborative learning via representation sharing",
)
