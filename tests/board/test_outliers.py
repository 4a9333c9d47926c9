"""Clients whose samples are noise are marked where clients share a common classifier."""

import numpy as np
import pytest

from repshare import Board, Client, LocalExchange
from repshare.board.outliers import strangeness
from repshare.methods import CS
from repshare.space import Patches
from repshare.space.agreement import Agreement


@pytest.mark.parametrize(("bad", "outliers"), [("images", ["liar"]), ("labels", ["liar"]), (None, [])])
def test_in_a_common_space_a_client_whose_samples_are_noise_is_unlike_the_others(splits, bad, outliers):
    """Whatever the honest ones have: five classes, all of them, one, or few samples."""
    train, rng = splits.normalised().train, np.random.default_rng(0)
    common = Agreement(Patches((1, 8, 8), sizes=(3, 4), filters=8))
    there = Board(common.task(10))
    for name, classes, count in (("half", 5, 60), ("all", 10, 60), ("one", 1, 30), ("few", 5, 10), ("liar", 10, 100)):
        rows = np.flatnonzero(train.labels < classes)
        rows = rng.permutation(rows)[:count]
        images, labels = train.images[rows], train.labels[rows]
        if name == "liar" and bad == "images":
            images = rng.standard_normal(images.shape, dtype=np.float32)
        if name == "liar" and bad == "labels":
            labels = rng.permutation(labels)
        exchange = LocalExchange(there, name)
        client = Client(None, (images, labels), exchange, name=name, method=CS, space=common, classes=10)
        for _ in range(2):
            assert client.round().trouble is None
    status = there.status()
    assert status.outliers() == outliers
    assert status.strangeness[2] is None, "of one class, nobody can be wrong"
    for name in ("half", "all", "one"):
        there.withdraw(name)
    assert there.status().strangeness == [None, None]


def test_strangeness_names_the_one_that_is_far_away():
    rows = np.random.default_rng(0).normal(size=(9, 3))
    rows[4] += 50
    scores = strangeness(rows)
    assert scores.argmax() == 4
    assert scores[4] > 10 > np.delete(scores, 4).max()


def test_clients_that_all_agree_are_not_strange():
    assert strangeness(np.full((5, 2), 3.0)).tolist() == [0] * 5
