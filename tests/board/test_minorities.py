"""What robust aggregates bear: at the bound that is promised, one beyond it, and beside liars that publish again."""

import numpy as np
import pytest

from repshare.board import Wants
from repshare.board.aggregation import aggregate, tolerated
from repshare.relay.tasks import Tasks
from repshare.sharing import wire
from repshare.sharing.representations import Release, Representations, nothing
from repshare.sharing.task import Task, usual_norm_bound
from repshare.stores import open_database

ROBUST = ("median", "trimmed", "geometric")
DIMENSION = 8
FAR = 999.0


def honest(clients, seed=0):
    return 1 + 0.1 * np.random.default_rng(seed).normal(size=(clients, DIMENSION))


def lies(rows, clients):
    """Ways to lie: loud and all alike; loud and scattered; just beyond the others; on either side."""
    rng, unit = np.random.default_rng(1), np.ones(DIMENSION) / DIMENSION**0.5
    yield np.tile(FAR * unit, (clients, 1))
    yield FAR * rng.normal(size=(clients, DIMENSION))
    yield np.tile(rows.max(axis=0) + 0.2, (clients, 1))
    yield np.outer(np.where(np.arange(clients) % 2, FAR, -FAR), unit)


def away(found, rows, how, liars):
    """How far beyond what is promised it is; not above 0 if the promise is kept."""
    if how != "geometric":
        return max((rows.min(axis=0) - found).max(), (found - rows.max(axis=0)).max())
    centre, share = rows.mean(axis=0), liars / (liars + len(rows))
    radius = np.linalg.norm(rows - centre, axis=1).max()
    return np.linalg.norm(found - centre) - (1 - share) / (1 - 2 * share) ** 0.5 * radius


@pytest.mark.parametrize("how", ROBUST)
@pytest.mark.parametrize("clients", [1, 2, 3, 4, 5, 6, 10, 20, 63, 64, 65, 200, 511, 512])
def test_as_many_liars_as_promised_do_not_decide(how, clients):
    liars = tolerated(clients, how)
    rows = honest(clients - liars)
    for lie in lies(rows, liars):
        found = aggregate(np.vstack([lie, rows]), how)
        assert away(found, rows, how, liars) <= 1e-6


@pytest.mark.parametrize("how", ROBUST)
@pytest.mark.parametrize("clients", [3, 5, 10, 64, 65, 200])
def test_one_liar_more_decides(how, clients):
    liars = tolerated(clients, how) + 1
    rows = honest(clients - liars)
    found = aggregate(np.vstack([next(lies(rows, liars)), rows]), how)
    assert np.linalg.norm(found - rows.mean(axis=0)) > 1


@pytest.mark.parametrize(("clients", "median", "trimmed"), [(5, 2, 1), (10, 4, 2), (20, 9, 4), (200, 99, 40)])
def test_what_is_promised_is_nearly_half_or_a_fifth(clients, median, trimmed):
    assert tolerated(clients, "median") == tolerated(clients, "geometric") == median
    assert tolerated(clients, "trimmed") == trimmed
    assert tolerated(clients, "mean") == 0


class Relay:
    """A relay's own board, with honest clients and liars in it."""

    def __init__(self, how, clients, liars):
        tasks = Tasks(open_database("memory"))
        tasks.create("t", Task(2, DIMENSION, aggregation=how))
        self.board, self.liars, self.round = tasks.get("t").board, [f"liar {n}" for n in range(liars)], 1
        self.rows = honest(clients - liars)
        for n, row in enumerate(self.rows):
            self.board.accept(f"honest {n}", share(row))
        for liar in self.liars:
            self.lie(liar)

    def lie(self, liar):
        self.round += 1
        self.board.accept(liar, share(np.full(DIMENSION, FAR / DIMENSION**0.5), self.round))

    def worst(self, times):
        """The longest of the means that an honest client is taught while liars publish again, and begin again."""
        lengths = []
        for number in range(times):
            liar = self.liars[number % len(self.liars)]
            if number % 3 == 0:
                self.board.withdraw(liar)
            self.lie(liar)
            taught = wire.decode_teacher(self.board.teach("honest 0", Wants(0, number))).means
            lengths.append(float(np.linalg.norm(taught.vectors, axis=1).max()))
        return max(lengths)


def share(vector, round=1):
    rows = Representations(np.array([vector], np.float32), np.zeros(1, np.int64), np.full(1, 10))
    return wire.encode_release(Release(round, rows, nothing(DIMENSION)))


@pytest.mark.parametrize(
    ("how", "clients", "liars", "times"),
    [
        ("median", 200, 80, 1000), ("geometric", 200, 80, 1000), ("trimmed", 200, 40, 1000),
        ("median", 512, 255, 100), ("geometric", 500, 230, 100),
        ("median", 1000, 350, 400), ("geometric", 1000, 350, 400), ("trimmed", 1000, 100, 400),
        ("median", 3000, 1000, 100), ("geometric", 3000, 1000, 100), ("trimmed", 3000, 300, 100),
    ],
)  # fmt: skip
def test_publishing_again_and_again_does_not_let_a_minority_decide(how, clients, liars, times):
    relay = Relay(how, clients, liars)
    assert relay.worst(times) < 2 * np.linalg.norm(relay.rows, axis=1).max()


def test_a_task_created_without_a_norm_bound_takes_what_tanh_makes_and_little_more():
    assert usual_norm_bound(84) == pytest.approx(4 * 84**0.5)
