"""What a median bears: at the bound that is promised, one beyond it, and beside liars that publish again."""

import numpy as np
import pytest

from repshare.board import Board, Wants
from repshare.relay.tasks import Tasks
from repshare.sharing import wire
from repshare.sharing.representations import Release, Representations, nothing
from repshare.sharing.task import Task, usual_norm_bound
from repshare.stores import open_database

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


def tolerated(clients):
    return (clients - 1) // 2


@pytest.mark.parametrize("clients", [1, 2, 3, 4, 5, 10, 64, 65, 511, 512])
def test_as_many_liars_as_promised_do_not_decide(clients):
    rows = honest(clients - tolerated(clients))
    for lie in lies(rows, tolerated(clients)):
        found = median_of([*lie, *rows])
        assert (rows.min(axis=0) - 1e-6 <= found).all()
        assert (found <= rows.max(axis=0) + 1e-6).all()


@pytest.mark.parametrize("clients", [3, 5, 10, 64, 200])
def test_one_liar_more_decides(clients):
    liars = tolerated(clients) + 1
    rows = honest(clients - liars)
    found = median_of([*next(lies(rows, liars)), *rows])
    assert np.linalg.norm(found - rows.mean(axis=0)) > 1


def median_of(rows):
    """What a board makes of clients that share one vector each."""
    board = Board(Task(2, DIMENSION, norm_bound=1e5, aggregation="median"))
    for number, vector in enumerate(rows):
        board.accept(f"client {number}", share(vector))
    return wire.decode_teacher(board.teach("x", Wants(0, 0))).means.vectors[0]


class Relay:
    """A relay's own board, with honest clients and liars in it."""

    def __init__(self, clients, liars):
        tasks = Tasks(open_database("memory"))
        tasks.create("t", Task(2, DIMENSION, aggregation="median"))
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
    ("clients", "liars", "times"), [(200, 80, 1000), (512, 255, 100), (1000, 350, 400), (3000, 1000, 100)]
)
def test_publishing_again_and_again_does_not_let_a_minority_decide(clients, liars, times):
    relay = Relay(clients, liars)
    assert relay.worst(times) < 2 * np.linalg.norm(relay.rows, axis=1).max()


def test_a_task_created_without_a_norm_bound_takes_what_tanh_makes_and_little_more():
    assert usual_norm_bound(84) == pytest.approx(4 * 84**0.5)
