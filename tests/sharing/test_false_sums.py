"""Sums of one client that no samples can have, with the noise that they declare, are refused."""

import numpy as np
import pytest

from repshare.board import Board
from repshare.errors import Refused
from repshare.sharing import wire
from repshare.sharing.sums import add_up, as_release, lift
from repshare.sharing.task import make_space_task

CLASSES, DIMENSION, VARIANCE = 3, 400, 16.0


@pytest.fixture
def sums():
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((60, DIMENSION)).astype(np.float32)
    vectors *= DIMENSION**0.5 / np.linalg.norm(vectors, axis=1, keepdims=True)
    return add_up(lift(vectors), rng.integers(CLASSES, size=60), CLASSES)


def publish(sums, variance, *, noise=0.0):
    noisy = sums + np.random.default_rng(1).normal(0, noise**0.5, sums.shape)
    board = Board(make_space_task(CLASSES, DIMENSION, "a space", format="sums"))
    board.accept("a", wire.encode_release(as_release(noisy, 1, "a space", variance=variance)))


def test_true_sums_are_taken_with_noise_and_without(sums):
    publish(sums, 0.0)
    publish(sums, VARIANCE, noise=VARIANCE)
    publish(0 * sums, VARIANCE, noise=VARIANCE)


@pytest.mark.parametrize(
    ("change", "variance", "why"),
    [
        (lambda sums: sums * np.r_[np.ones(DIMENSION), -40.0], VARIANCE, "a count of"),
        (lambda sums: sums * np.r_[np.full(DIMENSION, 60.0), 1.0], VARIANCE, "a sum of length"),
        (lambda sums: sums, 1e5, "sums without the noise of variance 1e"),
        (lambda sums: sums * np.r_[np.full(DIMENSION, 20.0), 1.0], 0.0, "a sum of length"),
        (lambda sums: -sums, 0.0, "a count of"),
    ],
)
def test_a_false_count_sum_or_variance_is_refused(sums, change, variance, why):
    with pytest.raises(Refused, match=why):
        publish(change(sums), variance, noise=VARIANCE if variance else 0.0)
