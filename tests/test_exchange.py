"""One contract for every exchange. A new one is finished when it is in the list."""

import numpy as np
import pytest

from repshare import wire
from repshare.board import Board, Task, Wants
from repshare.errors import Refused
from repshare.exchange import LocalExchange
from repshare.representations import Release, stack
from repshare.stores import MemoryStore


def local(_):
    board = Board(Task(classes=2, dimension=2), MemoryStore())
    return lambda client: LocalExchange(board, client)


@pytest.fixture(params=[local])
def join(request, tmp_path):
    """A function from a client's name to its exchange; all of one test's meet each other."""
    return request.param(tmp_path)


def release(value, label=0, round=1):
    rows = stack([(np.full(2, value), label, 4)], 2)
    return wire.encode_release(Release(round, rows, rows))


def collect(exchange, observations=1):
    return wire.decode_teacher(exchange.collect(Wants(observations, seed=0)))


def test_a_client_alone_collects_a_teacher_without_rows(join):
    alone = join("a")
    alone.publish(release(1.0))
    assert len(collect(alone).means.labels) == 0


def test_two_clients_are_enough(join):
    a, b = join("a"), join("b")
    a.publish(release(1.0))
    b.publish(release(3.0))
    for exchange, others in ((a, 3.0), (b, 1.0)):
        teacher = collect(exchange)
        assert teacher.means.vectors.tolist() == [[2.0, 2.0]]
        assert teacher.observations.vectors.tolist() == [[others, others]]


def test_a_client_learns_from_others_but_never_from_itself(join):
    a, b = join("a"), join("b")
    a.publish(release(1.0, label=0))
    b.publish(release(3.0, label=1))
    assert collect(a).means.labels.tolist() == [1]
    assert collect(b).observations.labels.tolist() == [0]


def test_a_client_may_collect_before_it_has_published(join):
    join("a").publish(release(1.0))
    assert collect(join("b")).means.vectors.tolist() == [[1.0, 1.0]]


def test_publishing_twice_changes_nothing(join):
    a, b = join("a"), join("b")
    for _ in range(3):
        a.publish(release(1.0))
    b.publish(release(3.0))
    assert collect(b).means.counts.tolist() == [8]


def test_a_newer_release_replaces_the_older_one(join):
    a, b = join("a"), join("b")
    a.publish(release(1.0))
    a.publish(release(5.0, label=1, round=2))
    assert collect(b).means.labels.tolist() == [1]


def test_what_is_refused_leaves_the_others_unharmed(join):
    a, b = join("a"), join("b")
    a.publish(release(1.0))
    with pytest.raises(Refused):
        b.publish(release(float("nan")))
    assert collect(b).means.vectors.tolist() == [[1.0, 1.0]]
