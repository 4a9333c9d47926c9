"""RS: the paper's method. Class means and observations of features go out, global means and others' come back."""

from typing import Any

import torch

from repshare.board import Board
from repshare.learning.lesson import lay_out
from repshare.learning.models import Network
from repshare.learning.training import Learner
from repshare.methods.method import Method
from repshare.sharing import wire
from repshare.sharing.representations import make_release
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
    """Learn from this teacher in the rounds to come. Before any training, one without any class has means of zero.

    So round 1 has a teacher (Algorithm 1, line 1). The authors' emulation averages outputs of the untrained networks,
    which are short, 0.04 to 0.08 a number, and nearly the same for all inputs. Zeros need no release.
    """
    trained = learner.lesson is not None or learner.steps or learner.optimizer.state
    lesson = lay_out(wire.decode_teacher(body), learner)
    if not trained and learner.policy.start == "zeros" and not lesson.has_mean.any():
        lesson = lesson._replace(has_mean=torch.ones_like(lesson.has_mean))  # the means are zeros
    learner.lesson = lesson


RS = Method(
    "RS",
    "representation sharing (the paper)",
    share,
    serve,
    absorb,
    source="Berdoz et al., 2022: Scalable collaborative learning via representation sharing",
)
