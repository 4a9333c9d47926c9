"""Boards that are joined: as a tree they are one board, to the bit, and no client counts twice."""

import numpy as np
import pytest

from repshare.board import Board, Wants
from repshare.board.joining import accept_total, read_total
from repshare.errors import Malformed, Refused
from repshare.sharing import wire
from repshare.sharing.joined import Total
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task
from repshare.stores import MemoryDatabase
from support.damage import Vandal

ROOT, LEAF, OTHER = 1, 2, 3
TASKS = [Task(4, 8), Task(4, 8, weighted=False)]


def make_release(rng, round=1):
    """Means of some of four classes, of very different sizes: sums in floating-point numbers would be rounded."""
    labels = np.flatnonzero(rng.random(4) < 0.7)
    vectors = (rng.normal(size=(len(labels), 8)) * 10.0 ** rng.integers(-4, 2, (len(labels), 1))).astype(np.float32)
    means = Representations(vectors, labels, rng.integers(1, 5000, len(labels)))
    return wire.encode_release(Release(round, means, means.part(slice(0))))


def join(down, up, number_down, number_up, name):
    """One step of an uplink, with boards of this process."""
    _, total = read_total(down, number_down, "(upstream)")
    accept_total(up, number_up, name, wire.encode_total(total))
    _, total = read_total(up, number_up, name)
    accept_total(down, number_down, "(upstream)", wire.encode_total(total))


@pytest.mark.parametrize("task", TASKS)
def test_three_boards_teach_what_one_board_teaches_to_the_bit(task):
    rng = np.random.default_rng(0)
    boards, one = {ROOT: Board(task), LEAF: Board(task), OTHER: Board(task)}, Board(task)
    homes = {f"client {number}": (LEAF, OTHER, ROOT)[number % 3] for number in range(30)}
    for round in (1, 2, 3):  # the last ones change their releases, which must leave no trace
        for name, home in homes.items():
            body = make_release(rng, round)
            boards[home].accept(name, body)
            one.accept(name, body)
        for _ in range(2):  # what the second leaf brought reaches the first one in the second turn
            join(boards[LEAF], boards[ROOT], LEAF, ROOT, "leaf")
            join(boards[OTHER], boards[ROOT], OTHER, ROOT, "other")
        for name, home in homes.items():
            assert boards[home].teach(name, Wants(0, 0)) == one.teach(name, Wants(0, 0))
    for board in boards.values():
        assert board.find_faults() == {}


def test_a_client_alone_in_a_class_is_not_taught_by_itself_through_a_tree():
    """Its own mean comes back from upstream in nobody's total."""
    leaf, root, body = Board(TASKS[0]), Board(TASKS[0]), make_release(np.random.default_rng(1))
    leaf.accept("alice", body)
    for _ in range(2):
        _, total = read_total(leaf, LEAF, "(upstream)")
        accept_total(root, ROOT, "leaf", wire.encode_total(total))
        _, back = read_total(root, ROOT, "leaf")
        assert len(back.labels) == 0
    assert len(wire.decode_teacher(leaf.teach("alice", Wants(0, 0))).means.labels) == 0
    assert root.teach("bob", Wants(0, 0)) == leaf.teach("bob", Wants(0, 0)), "others learn from it at both"


def make_total(round=1, relays=(LEAF,), labels=(0,), **values):
    sums = np.zeros((len(labels), 8 + 3), np.int64)
    sums[:, 0], sums[:, -3:] = 2**32, (20, 20, 4)
    for place, value in values.items():
        sums[:, {"first": 0, "weight": -3, "samples": -2, "clients": -1}[place]] = value
    return Total(round, np.array(labels, np.int64), sums, np.array(relays, np.uint64))


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"clients": 0}, "below 1"),
        ({"weight": -20, "samples": -20}, "below 1"),
        ({"weight": 19}, "weights that are not the numbers of samples"),
        ({"clients": 11}, "means of fewer than 2 samples a client"),
        ({"first": 2**62 + 1}, "no room for other clients"),
        ({"first": 21 * 1000 * 2**32}, "a vector of length"),
        ({"labels": (0, 0)}, "two means of one class"),
        ({"labels": (4,)}, "class 4 is unknown"),
        ({"relays": ()}, "0 relays, not from 1"),
        ({"relays": (LEAF, LEAF)}, "2 relays, not from 1"),
        ({"relays": (LEAF, ROOT)}, "in the release of this relay itself already"),
        ({"relays": (OTHER,)}, "in the release of other already"),
    ],
)
def test_a_total_that_cannot_be_one_is_refused_at_the_door(given, told):
    board = Board(Task(4, 8, minimum_count=2))
    accept_total(board, ROOT, "other", wire.encode_total(make_total(relays=(OTHER,))))
    accept_total(board, ROOT, "leaf", wire.encode_total(make_total()))
    before = board.save()
    with pytest.raises((Refused, Malformed), match=told):
        accept_total(board, ROOT, "leaf", wire.encode_total(make_total(**{"relays": (LEAF,), "round": 2, **given})))
    assert board.save() == before


def test_only_a_relay_may_share_a_total_and_only_where_sums_decide():
    body = wire.encode_total(make_total())
    with pytest.raises(Refused, match="from relays only"):
        Board(Task(4, 8)).accept("mallory", body)
    with pytest.raises(Refused, match="median needs every client's means"):
        accept_total(Board(Task(4, 8, aggregation="median")), ROOT, "leaf", body)


def test_a_relay_that_left_may_join_elsewhere():
    board, body = Board(Task(4, 8)), wire.encode_total(make_total())
    accept_total(board, ROOT, "leaf", body)
    with pytest.raises(Refused, match="would count twice"):
        accept_total(board, ROOT, "other", body)
    board.withdraw("leaf")
    accept_total(board, ROOT, "other", body)
    assert read_total(board, ROOT, "")[1].relays.tolist() == [ROOT, LEAF]


def test_which_relays_are_in_is_found_again_if_it_is_damaged():
    database = MemoryDatabase()
    board = Board(Task(4, 8), database.store("t"))
    board.accept("alice", make_release(np.random.default_rng(2)))
    accept_total(board, ROOT, "leaf", wire.encode_total(make_total()))
    Vandal(database, "t").flip("relays")
    assert read_total(board, ROOT, "")[1].relays.tolist() == [ROOT, LEAF]
    with pytest.raises(Refused, match="would count twice"):
        accept_total(board, ROOT, "other", wire.encode_total(make_total()))
