"""Boards that an earlier version kept, with a clock of their own and a queue, in every kind of store."""

import shutil
import sqlite3
from pathlib import Path

import pytest

from repshare.board import Board, Wants
from repshare.board.upgrade import upgrade
from repshare.sharing import wire
from repshare.sharing.task import Task
from repshare.stores import open_database
from support.damage import tear

OLD = Path(__file__).parents[1] / "relay" / "databases" / "format-2" / "relay.db"  # of two clients: see its make.py
TASK = Task(3, 4, minimum_count=2, max_age=1e9)


@pytest.fixture(params=["memory", "sqlite", "redis"])
def store(request, tmp_path):
    if request.param == "redis":
        place = request.getfixturevalue("redis_url")
    else:
        place = "memory" if request.param == "memory" else str(tmp_path / "new.db")
    opened = open_database(place)
    kept = opened.store("task:digits:1")
    kept.transact(lambda state: state.set(read_old(tmp_path)))
    yield kept
    opened.close()


def read_old(folder):
    shutil.copy(OLD, folder / "old.db")
    with sqlite3.connect(folder / "old.db") as file:
        rows = file.execute("SELECT key, value FROM kept WHERE key LIKE 'task:%'").fetchall()
    file.close()
    return {key.split("/", 1)[1]: value for key, value in rows}


def test_an_old_board_is_one_that_this_version_would_have_made(store):
    items = store.items()
    assert {"time", "queue/0", "queue/1"} <= items.keys()
    upgrade(TASK, store)
    there = Board(TASK, store)
    assert not there.find_faults()
    dates = {member.name: member.published for member in there.status().shown}
    anew = Board(TASK, clock=lambda: dates[name])
    for name in dates:
        anew.accept(name, items[f"release/{name}"])
    ours, theirs = store.items(), anew.store.items()
    assert (ours.pop("head")[8:], theirs.pop("head")[8:]) == (
        anew.store.items()["head"][8:],
    ) * 2  # but for the version
    assert ours == theirs
    before = there.version()
    upgrade(TASK, store)
    assert there.version() == before
    assert there.accept("alice", there.store.items()["release/bob"]) == before + 1
    assert not there.find_faults()


def test_what_was_saved_by_an_earlier_version_is_loaded(tmp_path):
    board = Board(TASK)
    board.load(wire.encode_items(read_old(tmp_path)))
    assert not board.find_faults()
    assert wire.decode_teacher(board.teach("x", Wants(1, 0))).means.labels.tolist() == [0, 2]


@pytest.mark.parametrize("key", ["head", "place/bob"])
def test_what_is_damaged_stays_as_it_is_and_is_named(store, key):
    tear(store, key)
    upgrade(TASK, store)
    assert key in Board(TASK, store).find_faults()
