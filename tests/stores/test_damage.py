"""One damaged value costs at most its owner's release: the same for every store, every kind of value and of damage."""

import logging

import pytest

from repshare.board import Board, Wants
from repshare.board.repairs import Survey
from repshare.errors import Damaged, StoreError
from repshare.sharing import wire
from repshare.sharing.task import Task
from repshare.stores import open_database
from support.damage import Vandal
from support.relays import release

NAMES = ("alice", "bob", "carol", "dave")
WANTS = Wants(5, 0)


class Clock:
    now = 1000.0

    def __call__(self):
        return self.now


@pytest.fixture(params=["memory", "sqlite", "redis"])
def database(request, tmp_path):
    if request.param == "redis":
        place = request.getfixturevalue("redis_url")
    else:
        place = "memory" if request.param == "memory" else str(tmp_path / "relay.db")
    opened = open_database(place)
    yield opened
    opened.close()


def fill(database, **fields):
    """A board on which four clients have published, and what may damage it."""
    board = Board(Task(3, 8, named_peers=1, **fields), database.store("task:digits:1"), Clock())
    for number, name in enumerate(NAMES):
        board.accept(name, release(value=number / 8, classes=(0, 1 + number % 2)))
    return board, Vandal(database, board.store.name)


def faults(board):
    return board.store.store.read(lambda state: Survey(board.task, state)).faults


def expected(task, names, clock, **rounds):
    """A board on which only these have published."""
    fresh = Board(task, None, clock)
    for number, name in enumerate(NAMES):
        if name in names:
            fresh.accept(name, release(rounds.get(name, 1), value=number / 8, classes=(0, 1 + number % 2)))
    return fresh


def means(board, client="nobody"):
    return board.teach(client, WANTS._replace(observations=0))


def drawn(board):
    rows = wire.decode_teacher(board.teach("nobody", Wants(100, 0))).observations
    return sorted(zip(rows.labels.tolist(), map(tuple, rows.vectors.tolist()), strict=True))


def same(board, other):
    assert means(board) == means(other)
    assert drawn(board) == drawn(other)
    assert {member.name for member in board.status().shown} == {member.name for member in other.status().shown}
    assert faults(board) == {}


HARM = {
    "a flipped bit": lambda vandal, key: vandal.flip(key),
    "a flipped bit in the first byte": lambda vandal, key: vandal.flip(key, 0),
    "a torn write": lambda vandal, key: vandal.truncate(key),
    "a lost row": lambda vandal, key: vandal.remove(key),
}
WORK = {
    "the owner publishes": lambda board: board.accept("bob", release(2, value=1 / 8, classes=(0, 2))),
    "another publishes": lambda board: board.accept("alice", release(2, value=0.0, classes=(0, 1))),
    "the owner withdraws": lambda board: board.withdraw("bob"),
    "somebody learns": lambda board: board.teach("alice", WANTS),
    "somebody learns from peers": lambda board: board.teach("alice", Wants(1, 0, ("bob", "carol"))),
    "the status is asked for": lambda board: board.status(),
}


@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("harm", HARM)
def test_an_unreadable_release_costs_its_owner_that_release_and_nobody_anything_else(database, harm, work):
    board, vandal = fill(database)
    HARM[harm](vandal, "release/bob")
    WORK[work](board)
    board.status()
    there = {member.name for member in board.status().shown}
    assert there == set(NAMES) - ({"bob"} if work != "the owner publishes" else set())
    same(board, expected(board.task, there, Clock()))
    board.accept("bob", release(3, value=1 / 8, classes=(0, 2)))
    same(board, expected(board.task, NAMES, Clock()))


@pytest.mark.parametrize("aggregation", ["mean", "median"])
@pytest.mark.parametrize("harm", HARM)
def test_all_other_damage_costs_nothing(database, harm, aggregation):
    whole = expected(Task(3, 8, named_peers=1, aggregation=aggregation, max_age=80.0), NAMES, Clock())
    keys = [key for key in whole.store.items() if not key.startswith("release/")]
    assert {key.split("/")[0] for key in keys} == {"head", "totals", "time", "place", "row", "queue"}
    for key in keys:
        database.store("task:digits:1").clear()
        board, vandal = fill(database, aggregation=aggregation, max_age=80.0)
        version = board.version()
        HARM[harm](vandal, key)
        for round, (number, name) in enumerate(2 * list(enumerate(NAMES)), 2):  # until somebody meets it
            board.accept(name, release(round, value=number / 8, classes=(0, 1 + number % 2)))
            board.withdraw(name)
            board.accept(name, release(round, value=number / 8, classes=(0, 1 + number % 2)))
            board.expire()
        assert board.version() > version
        if harm == "a lost row" and key.startswith("queue/"):
            continue  # one that is not in the queue is seen by `relay check`, or when it publishes again
        same(board, whole)


@pytest.mark.parametrize("kind", ["release", "place"])
def test_another_clients_value_in_its_place_is_noticed(database, kind):
    board, vandal = fill(database)
    vandal.copy(f"{kind}/alice", f"{kind}/bob")
    assert set(faults(board)) == {f"{kind}/bob"}
    board.accept("bob", release(2, value=1 / 8, classes=(0, 2)))
    same(board, expected(board.task, NAMES, Clock()))


def test_one_damaged_value_in_a_pile_leaves_the_others_alone(database):
    board, vandal = fill(database)
    vandal.flip("release/bob")
    pile = [(name, release(2, value=n / 8, classes=(0, 1 + n % 2))) for n, name in enumerate(NAMES)]
    assert all(isinstance(outcome, int) for outcome in board.accept_all(pile))
    same(board, expected(board.task, NAMES, Clock()))


@pytest.mark.parametrize("harm", HARM)
def test_clients_are_forgotten_though_what_one_of_them_shared_is_damaged(database, harm):
    for key in ("release/bob", "place/bob", "row/0/1", "row/6/1", "queue/1", "totals"):
        database.store("task:digits:1").clear()
        board, vandal = fill(database, max_age=80.0)
        board.expire()
        HARM[harm](vandal, key)
        clock = board.clock._clock
        clock.now += 50
        board.accept("alice", release(2))
        clock.now += 41
        for _ in range(4):  # one whose place was lost ages anew
            board.expire()
            clock.now += 41
            board.accept("alice", release(int(clock.now)))
        there = {member.name for member in board.status().shown}
        assert there <= {"alice", "bob"} if (harm, key) == ("a lost row", "queue/1") else there == {"alice"}, key


def test_what_was_damaged_and_what_it_cost_is_logged(database, caplog):
    board, vandal = fill(database)
    vandal.flip("release/bob")
    with caplog.at_level(logging.ERROR):
        board.status()
    told, cost = (record.fields for record in caplog.records)
    assert told["damaged"] == {"release/bob": "its checksum does not fit"}
    assert told["store"] == "task:digits:1"
    assert cost["lost"] == ["the release of bob"]


@pytest.mark.parametrize("work", [*WORK, "a new one publishes"])
def test_a_board_of_which_only_the_releases_are_left_is_made_anew(database, work):
    board, vandal = fill(database, max_age=80.0)
    for key in list(board.store.items()):
        if not key.startswith("release/"):
            vandal.remove(key)
    WORK.get(work, lambda board: board.accept("eve", release(classes=(0,))))(board)
    board.withdraw("eve")
    same(board, expected(board.task, set(NAMES) - ({"bob"} if work == "the owner withdraws" else set()), Clock()))


def test_a_damaged_value_is_the_stores_fault(database):
    store = database.store("t")
    store.transact(lambda state: state.set({"a": b"1", "b": b"2"}))
    Vandal(database, "t").flip("a")
    for ask in (lambda state: state.get(["b", "a"]), lambda state: state.get(["a"])):
        for way in (store.read, store.transact):
            with pytest.raises(Damaged, match="the stored value a is damaged: its checksum does not fit"):
                way(ask)
    with pytest.raises(StoreError):
        store.items()
    assert store.read(lambda state: state.get(["b"])) == [b"2"]
    assert [key for key, kept in store.read(lambda state: list(state.scan(""))) if isinstance(kept, Damaged)] == ["a"]
    store.transact(lambda state: state.set({"a": b"3"}))
    assert store.items() == {"a": b"3", "b": b"2"}


def test_a_value_moved_to_another_store_is_noticed(database):
    for name in ("t", "u"):
        database.store(name).transact(lambda state, name=name: state.set({"a": name.encode()}))
    values = [store.read(lambda state: state.get(["a"])[0]) for store in map(database.store, "tu")]
    Vandal(database, "u").change("a", lambda value: values[0])
    with pytest.raises(Damaged):
        database.store("u").items()


def test_scanning_sees_what_was_written_before_and_only_the_keys_wanted(database):
    store = database.store("t")
    store.transact(lambda state: state.set({f"a/{n}": b"%d" % n for n in range(1200)} | {"b/1": b"", "a": b""}))

    def work(state):
        state.set({"a/1": b"new", "a/new": b"new"})
        state.delete(["a/2"])
        return dict(state.scan("a/"))

    found = store.transact(work)
    assert len(found) == 1200
    assert (found["a/1"], found["a/new"], found.get("a/2"), found["a/3"]) == (b"new", b"new", None, b"3")
