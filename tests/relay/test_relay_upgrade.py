"""Databases of earlier versions, with checksums or with a queue of releases: they open, and everything goes on."""

import json
import shutil
import sqlite3
from pathlib import Path

import numpy as np
import pytest

from repshare.board import Wants
from repshare.errors import ConfigError, StoreError
from repshare.relay.tasks import Tasks
from repshare.sharing.wire import decode_teacher
from repshare.stores import open_database
from support.relays import DIGITS, create_task, release, repshare, start_relay

WRITTEN = Path(__file__).with_name("databases")  # by earlier versions: see its make.py


def test_a_file_with_checksums_loses_them_when_it_is_opened(tmp_path):
    shutil.copy(WRITTEN / "format-1" / "relay.db", tmp_path)
    with sqlite3.connect(tmp_path / "relay.db") as file:
        before = file.execute("SELECT key, value FROM kept ORDER BY key").fetchall()
    file.close()
    open_database(str(tmp_path / "relay.db")).close()
    with sqlite3.connect(tmp_path / "relay.db") as file:
        assert file.execute("SELECT * FROM kept ORDER BY key").fetchall() == before
        assert file.execute("PRAGMA user_version").fetchone() == (3,)
    file.close()


def test_a_file_of_a_later_version_is_refused_in_one_line(tmp_path):
    create_task(tmp_path, "digits", *DIGITS)
    with sqlite3.connect(tmp_path / "relay.db") as file:
        file.execute("PRAGMA user_version = 4")
    file.close()
    told = "was written by a later version of repshare: it has format 4, and this version reads formats up to 3. Update"
    with pytest.raises(StoreError, match=told):
        open_database(str(tmp_path / "relay.db"))
    assert len(repshare("relay", "tasks", "list", cwd=tmp_path, expect=1).splitlines()) == 1


@pytest.mark.parametrize("written", ["format-0", "format-1", "format-2"])
def test_a_file_that_an_earlier_version_wrote_keeps_its_tokens_and_totals(tmp_path, written):
    for file in (WRITTEN / written).iterdir():
        shutil.copy(file, tmp_path)
    tokens = json.loads((tmp_path / "tokens.json").read_text())
    assert repshare("relay", "check", cwd=tmp_path) == ""
    with start_relay(tmp_path) as relay:
        taught = relay.teacher(tokens["alice"], observations=1, seed=0).content
        assert relay.teacher(tokens["mallory"]).status_code == 401, "revoked then, revoked now"
        status = relay.ask("GET", "/v1/tasks/digits/status", tokens["root"]).json()
        assert [(each["name"], each["round"]) for each in status["shown"]] == [("alice", 2), ("bob", 2)]
        assert relay.publish("bob", release(3, dimension=4), tokens["bob"]).status_code == 200
        path = "/v1/tasks/digits/clients/alice/release"
        assert relay.ask("DELETE", path, tokens["alice"]).status_code == 200
    before, now = (decode_teacher(body).means for body in ((tmp_path / "teacher.bin").read_bytes(), taught))
    for one, other in zip(before, now, strict=True):
        np.testing.assert_array_equal(one, other)
    assert repshare("relay", "check", cwd=tmp_path) == ""


@pytest.mark.parametrize("format", ["parts", "sums"])
def test_a_task_that_named_its_format_in_its_space_says_it_from_now_on(tmp_path, format):
    shutil.copy(WRITTEN / "format-3" / "relay.db", tmp_path)
    database = open_database(str(tmp_path / "relay.db"))
    opened = Tasks(database).get(format)
    task = opened.entry.task
    assert (task.format, task.classes, task.dimension, task.rows, task.columns) == (format, 3, 4, 4, 14)
    assert opened.board.find_faults() == {}
    assert opened.board.teach("alice", Wants(0, 0)) == (WRITTEN / "format-3" / f"{format}.bin").read_bytes()
    assert not Tasks(database).create(format, task), "the same task, however it was said"
    database.close()
    listed = json.loads(repshare("relay", "tasks", "list", "--json", cwd=tmp_path))["tasks"]
    assert {each["name"]: each["classes"] for each in listed} == {"parts": 3, "sums": 3}


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
