"""Databases of other versions are refused in one line that says what to do."""

import json
import sqlite3
from contextlib import closing, nullcontext

import pytest

from repshare.board import Board
from repshare.errors import ConfigError, Damaged, StoreError
from repshare.relay.tasks import Tasks
from repshare.sharing.task import Task
from repshare.stores import open_database
from support.relays import DIGITS, create_task, repshare


@pytest.mark.parametrize(
    ("format", "told"),
    [
        (4, "was written by a later version of repshare: it has format 4, and this version reads format 3. Update"),
        (2, "was written by an earlier version of repshare: it has format 2, which 15ddcbb is the last commit to"),
        (0, "was written by an earlier version of repshare: it has format 0, which 15ddcbb is the last commit to"),
    ],
)
def test_a_file_of_another_version_is_refused_in_one_line(tmp_path, format, told):
    create_task(tmp_path, "digits", *DIGITS)
    with sqlite3.connect(tmp_path / "relay.db") as file:
        file.execute(f"PRAGMA user_version = {format}")
    file.close()
    with pytest.raises(StoreError, match=told):
        open_database(str(tmp_path / "relay.db"))
    assert len(repshare("relay", "tasks", "list", cwd=tmp_path, expect=1).splitlines()) == 1


def test_a_board_of_an_earlier_version_in_redis_is_refused_with_the_commit_that_upgrades_it(redis_url):
    store = open_database(redis_url).store("task:digits:1")
    store.transact(lambda state: state.set({"head": bytes(8 * (4 + 2 * 3))}))
    with pytest.raises(Damaged, match="15ddcbb is the last commit that upgrades older boards"):
        Board(Task(3, 4), store).version()


@pytest.mark.parametrize("named", [0, 3])
def test_a_task_that_answers_for_clients_by_name_is_refused(tmp_path, named):
    create_task(tmp_path, "digits", *DIGITS)
    with closing(open_database(str(tmp_path / "relay.db"))) as database:
        registry = database.store("tasks")
        kept = json.loads(registry.items()["digits"])
        kept["task"]["named_peers"] = named
        registry.transact(lambda state: state.set({"digits": json.dumps(kept).encode()}))
        with pytest.raises(ConfigError, match="15ddcbb") if named else nullcontext():
            Tasks(database).get("digits")


def test_a_task_that_names_its_format_in_its_space_is_refused():
    with pytest.raises(ConfigError, match="15ddcbb is the last commit that reads a format in the name of a space"):
        Task(4, 14, space="patches-0-discriminant")
