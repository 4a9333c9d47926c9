"""Databases of earlier versions, with checksums or with dates instead of ages: they open, and everything goes on."""

import json
import shutil
import sqlite3
import struct
from pathlib import Path

import numpy as np
import pytest

from repshare.board import Board
from repshare.errors import ConfigError, StoreError
from repshare.relay.tasks import Tasks
from repshare.sharing.task import Task
from repshare.sharing.wire import decode_teacher
from repshare.stores import open_database
from support.damage import garble
from support.relays import DIGITS, create_task, release, repshare, start_relay

TASK = {"classes": 10, "dimension": 8, "norm_bound": 1000.0, "minimum_count": 2, "weighted": True}
TASK |= {"aggregation": "mean", "max_age": 60.0, "space": None}
DATE = 1_700_000_000.0
WRITTEN = Path(__file__).with_name("databases")  # by earlier versions: see its make.py
AHEAD = DATE + 365 * 86400


def old_board():
    """What the version before kept of two clients, the first of whom published when the clock was a year ahead."""
    board = Board(Task(**TASK), None, lambda: DATE)
    for name in ("early", "right"):
        board.accept(name, release())
    items = dict(board.store.items())
    del items["time"]
    for number, (name, queued) in enumerate([("early", AHEAD), ("right", DATE)]):
        items[f"queue/{number}"] = json.dumps([name, queued]).encode()
        items[f"place/{name}"] = struct.pack("<d", queued) + items[f"place/{name}"][8:-24]
    items["queue/2"] = json.dumps(["withdrawn", DATE]).encode()
    items["head"] = (np.frombuffer(items["head"], np.int64) + np.eye(1, 24, 2, dtype=np.int64)[0]).tobytes()
    return items


@pytest.fixture
def old_file(tmp_path):
    """A relay.db as the version before wrote it."""
    with sqlite3.connect(tmp_path / "relay.db") as file:
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("CREATE TABLE kept (key TEXT PRIMARY KEY, value BLOB NOT NULL)")
        entry = json.dumps({"task": TASK, "identity": "0123456789abcdef", "created": DATE}).encode()
        rows = {f"task:digits:0123456789abcdef/{key}": value for key, value in old_board().items()}
        file.executemany("INSERT INTO kept VALUES (?, ?)", [*rows.items(), ("tasks/digits", entry)])
    file.close()
    return tmp_path


def test_a_file_of_the_version_before_is_served_and_checked(old_file):
    assert repshare("relay", "check", cwd=old_file) == ""
    with start_relay(old_file, "--insecure") as relay:
        assert relay.ask("GET", "/v1/tasks/digits/status").json()["clients"] == 2
        assert relay.publish("early", release(2)).status_code == 200
        assert relay.publish("new", release()).status_code == 200
        assert relay.teacher(client="right").status_code == 200
        assert relay.ask("DELETE", "/v1/tasks/digits/clients/right/release").status_code == 200
    assert repshare("relay", "check", cwd=old_file) == ""
    database = open_database(str(old_file / "relay.db"))
    garble(database.store("task:digits:0123456789abcdef"), "release/early")
    database.close()
    assert "1 stored values are damaged" in repshare("relay", "check", cwd=old_file, expect=1)


def test_clients_of_the_version_before_grow_old_whatever_the_date_was(old_file):
    clock = [0.0]
    database = open_database(str(old_file / "relay.db"))
    board = Board(Task(**TASK), database.store("task:digits:0123456789abcdef"), lambda: clock[0])
    assert board.expire() == []
    clock[0] = 59.0
    assert board.expire() == []
    clock[0] = 70.0
    assert sorted(board.expire()) == ["early", "right"]
    assert not [key for key in board.store.items() if key.startswith("queue/")]
    database.close()


def test_a_file_with_checksums_loses_them_when_it_is_opened(tmp_path):
    shutil.copy(WRITTEN / "format-1" / "relay.db", tmp_path)
    with sqlite3.connect(tmp_path / "relay.db") as file:
        before = file.execute("SELECT key, value FROM kept ORDER BY key").fetchall()
    file.close()
    open_database(str(tmp_path / "relay.db")).close()
    with sqlite3.connect(tmp_path / "relay.db") as file:
        assert file.execute("SELECT * FROM kept ORDER BY key").fetchall() == before
        assert file.execute("PRAGMA user_version").fetchone() == (2,)
    file.close()


def test_a_file_of_a_later_version_is_refused_in_one_line(old_file):
    with sqlite3.connect(old_file / "relay.db") as file:
        file.execute("PRAGMA user_version = 3")
    file.close()
    told = "was written by a later version of repshare: it has format 3, and this version reads formats up to 2. Update"
    with pytest.raises(StoreError, match=told):
        open_database(str(old_file / "relay.db"))
    assert len(repshare("relay", "tasks", "list", cwd=old_file, expect=1).splitlines()) == 1


@pytest.mark.parametrize("written", ["format-0", "format-1"])
def test_a_file_that_an_earlier_version_wrote_keeps_its_tokens_and_totals(tmp_path, written):
    for file in (WRITTEN / written).iterdir():
        shutil.copy(file, tmp_path)
    tokens = json.loads((tmp_path / "tokens.json").read_text())
    with start_relay(tmp_path) as relay:
        taught = relay.teacher(tokens["alice"], observations=1, seed=0).content
        assert relay.teacher(tokens["mallory"]).status_code == 401, "revoked then, revoked now"
        status = relay.ask("GET", "/v1/tasks/digits/status", tokens["root"]).json()
        assert [(each["name"], each["round"]) for each in status["shown"]] == [("alice", 2), ("bob", 2)]
        assert relay.publish("bob", release(3, dimension=4), tokens["bob"]).status_code == 200
    before, now = (decode_teacher(body).means for body in ((tmp_path / "teacher.bin").read_bytes(), taught))
    for one, other in zip(before, now, strict=True):
        np.testing.assert_array_equal(one, other)
    assert repshare("relay", "check", cwd=tmp_path) == ""


def test_a_task_that_is_joined_to_another_relay_is_refused_in_one_line_until_it_is_apart(tmp_path):
    create_task(tmp_path, "digits", *DIGITS)
    database = open_database(str(tmp_path / "relay.db"))
    opened = Tasks(database).get("digits")
    opened.board.accept("(upstream)", release())
    opened.board.store.transact(lambda state: state.set({"relays": b'{"(upstream)": [1]}'}))
    with pytest.raises(ConfigError, match="055caf8"):
        Tasks(database).get("digits")
    assert len(repshare("relay", "check", cwd=tmp_path, expect=2).splitlines()) == 1
    opened.board.withdraw("(upstream)")
    assert Tasks(database).get("digits").board.status().clients == 0
    database.close()
