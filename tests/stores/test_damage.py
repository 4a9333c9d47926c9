"""A value that cannot be read is named, and refuses those who need it, and nobody else: the same for every store."""

import sqlite3

import pytest

from repshare.board import Board, Wants
from repshare.errors import Damaged, StoreError
from repshare.sharing import wire
from repshare.sharing.task import Task
from repshare.stores import SqliteDatabase, open_database
from support.damage import change, garble, lose, tear
from support.relays import release

NAMES = ("alice", "bob", "carol", "dave")
MEANS = Wants(0, 0)
HARM = {"a torn write": tear, "nonsense": garble}


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
    """A board on which four clients have published."""
    board = Board(Task(3, 8, **fields), database.store("task:digits:1"), key=b"secret")
    for number, name in enumerate(NAMES):
        board.accept(name, share(number))
    return board


def share(number, round=1):
    return release(round, value=number / 8, classes=(0, 1 + number % 2))


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("key", ["release/bob", "place/bob"])
def test_an_unreadable_value_of_a_client_refuses_its_owner_by_name_and_nobody_else(database, harm, key):
    board = fill(database)
    HARM[harm](board.store, key)
    assert set(board.find_faults()) == {key}
    for number, name in enumerate(NAMES):
        if name != "bob":
            board.accept(name, share(number, 2))
    for work in (lambda: board.accept("bob", share(1, 3)), lambda: board.withdraw("bob")):
        with pytest.raises(Damaged, match=f"the stored value {key} is damaged"):
            work()
    assert wire.decode_teacher(board.teach("alice", MEANS)).means.labels.tolist() == [0, 1, 2]
    assert len(board.status().shown) == 4
    assert set(board.find_faults()) == {key}, "and nothing else has changed"


@pytest.mark.parametrize("harm", HARM)
@pytest.mark.parametrize("key", ["head", "totals"])
def test_what_all_clients_share_refuses_everybody_until_it_is_put_back(database, harm, key):
    board = fill(database)
    saved, taught = board.save(), board.teach("alice", MEANS)
    HARM[harm](board.store, key)
    assert set(board.find_faults()) == {key}
    fresh = Board(board.task, board.store, key=b"secret")
    for work in (lambda: fresh.accept("eve", share(0)), lambda: fresh.teach("alice", MEANS)):
        with pytest.raises(Damaged, match=f"the stored value {key} is damaged"):
            work()
    board.store.clear()
    fresh.load(saved)
    assert not fresh.find_faults()
    assert fresh.teach("alice", MEANS) == taught


def test_a_damaged_row_refuses_those_who_draw_it(database):
    board = fill(database)
    row = next(key for key, kept in board.store.items().items() if key.startswith("row/0/") and b"bob" in kept)
    garble(board.store, row)
    assert set(board.find_faults()) == {row}
    with pytest.raises(Damaged):
        board.teach("alice", Wants(10, 0))
    assert board.teach("bob", Wants(10, 0))
    board.accept("bob", share(1, 2))
    assert board.teach("alice", Wants(10, 0))
    assert not board.find_faults()


LOST = {
    "a release": "release/bob",
    "an index": "place/bob",
    "a row": "row/0/1",
    "the head": "head",
    "the totals": "totals",
}


@pytest.mark.parametrize("what", LOST)
def test_what_is_missing_is_found_by_a_check(database, what):
    board = fill(database)
    lose(board.store, LOST[what])
    assert board.find_faults()


@pytest.mark.parametrize("kind", ["release", "place"])
def test_another_clients_value_in_its_place_is_found_by_a_check(database, kind):
    board = fill(database)
    (other,) = board.store.read(lambda state: state.get([f"{kind}/alice"]))
    change(board.store, f"{kind}/bob", lambda value: other)
    assert board.find_faults()


def test_totals_that_are_not_the_releases_are_found_by_a_check(database):
    board = fill(database)
    change(board.store, "totals", lambda value: bytes([value[0] ^ 1]) + value[1:])
    assert board.find_faults() == {"totals": "they are not the sums of the releases"}


def test_a_file_whose_pages_are_damaged_is_named_by_sqlites_own_check(tmp_path):
    database = SqliteDatabase(tmp_path / "relay.db")
    database.store("t").transact(lambda state: state.set({f"{n}": bytes(500) for n in range(200)}))
    assert database.find_faults() == []
    database.close()
    with sqlite3.connect(tmp_path / "relay.db") as file:
        file.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    file.close()
    kept = bytearray((tmp_path / "relay.db").read_bytes())
    kept[4096 * 5 : 4096 * 5 + 200] = b"\xff" * 200
    (tmp_path / "relay.db").write_bytes(kept)
    database = SqliteDatabase(tmp_path / "relay.db")
    assert "malformed" in str(find_faults(database))
    database.close()


def find_faults(database):
    try:
        return database.find_faults()
    except StoreError as error:  # where not even the check can read the file
        return error


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


@pytest.mark.parametrize("key", ["row/6/0", "release/alice", "place/alice"])
def test_an_unreadable_value_of_a_client_does_not_keep_others_from_growing_old(database, key):
    now = [0.0]
    board = Board(Task(3, 8, max_age=10.0), database.store("task:digits:1"), lambda: now[0])
    for number, name in enumerate(NAMES):
        board.accept(name, share(number))
    garble(board.store, key)
    now[0] = 100.0
    assert sorted(board.expire()) == ["bob", "carol", "dave"]
