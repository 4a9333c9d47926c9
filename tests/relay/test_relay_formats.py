"""Databases of other versions are refused in one line, which says what reads them."""

import json
import sqlite3
from contextlib import closing, nullcontext

import pytest

from repshare.errors import ConfigError, StoreError
from repshare.relay.tasks import Tasks
from repshare.sharing.task import make_space_task
from repshare.stores import open_database
from support.relays import DIGITS, create_task, repshare


@pytest.mark.parametrize(
    ("format", "told"),
    [(0, "commit 15ddcbb"), (2, "commit 15ddcbb"), (4, "by a later version.*reads format 3. Update")],
)
def test_a_file_of_another_version_is_refused_in_one_line(tmp_path, format, told):
    create_task(tmp_path, "digits", *DIGITS)
    with closing(sqlite3.connect(tmp_path / "relay.db")) as file:
        file.execute(f"PRAGMA user_version = {format}")
    with pytest.raises(StoreError, match=told):
        open_database(str(tmp_path / "relay.db"))
    assert len(repshare("relay", "tasks", "list", cwd=tmp_path, expect=1).splitlines()) == 1


def test_a_task_of_another_version_is_refused_in_one_line():
    database = open_database("memory")
    Tasks(database).create("digits", make_space_task(3, 4, "here"))

    def forget_format(state):
        (kept,) = state.get(["digits"])
        described = json.loads(kept)
        del described["task"]["format"]
        state.set({"digits": json.dumps(described).encode()})

    database.store("tasks").transact(forget_format)
    with pytest.raises(ConfigError, match="commit 15ddcbb"):
        Tasks(database).get("digits")
    assert "commit 15ddcbb" in Tasks(database).find_faults()["digits"]


@pytest.mark.parametrize("named", [0, 3])
def test_only_a_task_whose_clients_could_be_named_is_of_another_version(named):
    database = open_database("memory")
    Tasks(database).create("digits", make_space_task(3, 4, "here"))

    def name_peers(state):
        described = json.loads(state.get(["digits"])[0])
        described["task"]["named_peers"] = named
        state.set({"digits": json.dumps(described).encode()})

    database.store("tasks").transact(name_peers)
    with pytest.raises(ConfigError, match="named_peers") if named else nullcontext():
        assert Tasks(database).get("digits").board.version() == 0
