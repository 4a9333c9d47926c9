"""Backups: made while a relay is used, whole or not at all, and restored only if everything in them is right."""

import shutil
import sqlite3
import stat
import subprocess
import sys
import threading
from contextlib import closing

import pytest

from repshare.cli.main import main
from repshare.stores import open_database
from support.damage import garble
from support.relays import create_task, invite, prepare, release, repshare, start_relay

STATUS = "/v1/tasks/digits/status"


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """A command in this process, in a folder with a task and alice's token: what it says, and its exit code."""
    monkeypatch.chdir(tmp_path)
    create_task(tmp_path)
    invite(tmp_path, "alice", "--task", "digits")

    def run(*arguments):
        capsys.readouterr()
        try:
            main(["relay", *map(str, arguments)])
        except SystemExit as end:
            return capsys.readouterr().err, end.code
        return capsys.readouterr().err, 0

    return run


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_backup_under_load_has_all_that_was_acknowledged_before_it(tmp_path):
    there, elsewhere = tmp_path / "there", tmp_path / "elsewhere"
    there.mkdir()
    elsewhere.mkdir()
    create_task(there)
    clients = {name: invite(there, name, "--task", "digits") for name in ("alice", "bob", "carol")}
    viewer = invite(there, "eve", "--role", "viewer")
    prepare("relay", "revoke", "carol", "--task", "digits", cwd=there)  # before the backup
    with start_relay(there, "--rate", 0) as relay:
        over, acknowledged, began = threading.Event(), {"alice": 0, "bob": 0}, threading.Barrier(3)

        def publish(name):
            while not over.is_set():
                number = acknowledged[name] + 1
                assert relay.publish(name, release(number), clients[name]).status_code == 200
                acknowledged[name] = number
                if number == 20:
                    began.wait(30)

        threads = [threading.Thread(target=publish, args=[name]) for name in acknowledged]
        for thread in threads:
            thread.start()
        began.wait(30)
        before = dict(acknowledged)
        repshare("relay", "backup", "../backup.db", cwd=there)
        after = dict(acknowledged)
        over.set()
        for thread in threads:
            thread.join()
        assert all(after[name] > before[name] for name in before), "nothing was published meanwhile: no test"
        prepare("relay", "revoke", "bob", "--task", "digits", cwd=there)  # after the backup
    assert stat.S_IMODE((tmp_path / "backup.db").stat().st_mode) == 0o600
    assert names(tmp_path) == ["backup.db", "elsewhere", "there"]
    prepare("relay", "restore", "../backup.db", cwd=elsewhere)
    prepare("relay", "check", cwd=elsewhere)
    with start_relay(elsewhere) as relay:
        rounds = {each["name"]: each["round"] for each in relay.ask("GET", STATUS, viewer).json()["shown"]}
        assert all(before[name] <= rounds[name] <= after[name] + 1 for name in before)
        answers = {name: relay.teacher(token).status_code for name, token in clients.items()}
        assert answers == {"alice": 200, "bob": 200, "carol": 401}


def test_a_backup_or_a_database_that_exists_is_replaced_only_if_asked(run, tmp_path):
    assert run("backup", "b.db") == ("1 tasks and 1 tokens copied to b.db\n", 0)
    assert run("backup", "b.db") == ("repshare: b.db already exists: choose another name, or --replace it\n", 2)
    assert run("backup", "relay.db", "--replace")[1] == 2
    prepare("relay", "tasks", "delete", "digits", "--yes", cwd=tmp_path)
    said, code = run("restore", "b.db")
    assert (code, "relay.db already exists" in said) == (2, True)
    assert "no tasks yet" in run("tasks", "list")[0], "nothing was changed"
    assert run("restore", "b.db", "--replace")[1] == 0
    assert "digits" in prepare("relay", "tasks", "list", cwd=tmp_path)
    assert run("restore", "relay.db", "--replace")[1] == 2  # onto itself
    assert names(tmp_path) == ["b.db", "relay.db"]


HALF = """
import sys, time
from pathlib import Path
from repshare.stores import copies

with copies._replacing(Path(sys.argv[1])) as temporary:
    temporary.write_bytes(b"half")
    print("half", flush=True)
    time.sleep(600)
"""


def test_what_a_killed_backup_leaves_goes_with_the_next_one(run, tmp_path):
    parts = []
    for _ in range(2):
        command = [sys.executable, "-c", HALF, str(tmp_path / "b.db")]
        parts.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
        assert parts[-1].stdout.readline() == "half\n"
    killed, alive = parts
    killed.kill()
    killed.wait()
    assert {f".b.db.{part.pid}.part" for part in parts} <= set(names(tmp_path)), "each left a part"
    assert run("backup", "b.db")[1] == 0
    left = [name for name in names(tmp_path) if ".part" in name and "-journal" not in name]
    alive.kill()
    alive.wait()
    assert left == [f".b.db.{alive.pid}.part"], "that of a backup under way stays"
    assert run("backup", "b.db", "--replace")[1] == 0
    assert not [name for name in names(tmp_path) if ".part" in name]
    for part in parts:
        part.stdout.close()


def test_a_database_in_use_is_not_replaced(run, tmp_path):
    run("backup", "b.db")
    with start_relay(tmp_path) as relay:
        assert run("restore", "b.db", "--replace") == ("repshare: relay.db is in use: stop the relay first\n", 2)
        assert relay.ask("GET", "/healthz").status_code == 200


def test_a_log_that_a_crash_left_behind_is_not_applied_to_the_restored_file(run, tmp_path):
    run("backup", "b.db")
    with closing(sqlite3.connect("relay.db")) as file:  # as a killed relay leaves it: the change is in the log only
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("DELETE FROM kept")
        file.commit()
        for end in ("", "-wal", "-shm"):
            shutil.copy(f"relay.db{end}", f"crashed.db{end}")
    (tmp_path / "crashed.db").unlink()  # and as an operator might then clean up
    assert run("restore", "b.db", "--db", "crashed.db")[1] == 0
    assert "digits" in prepare("relay", "tasks", "list", "--db", "crashed.db", cwd=tmp_path)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda path: path.unlink(), "there is no file b.db"),
        (lambda path: path.write_bytes(b""), "b.db is not a relay's database"),
        (lambda path: path.write_bytes(b"x" * 8192), "b.db cannot be read: file is not a database"),
        (lambda path: path.write_bytes(path.read_bytes()[:4096]), "b.db"),
        (lambda path: damage(path), "repshare relay check --db b.db"),
        (lambda path: date_ahead(path), "b.db was written by a later version of repshare: it has format 9"),
    ],
)
def test_a_backup_that_is_none_or_damaged_restores_nothing(run, tmp_path, spoil, words):
    run("backup", "b.db")
    spoil(tmp_path / "b.db")
    there = names(tmp_path)
    before = (tmp_path / "relay.db").read_bytes()
    said, code = run("restore", "b.db", "--replace")
    assert words in said
    assert (code in (1, 2), len(said.splitlines())) == (True, 1)
    assert (tmp_path / "relay.db").read_bytes() == before
    assert names(tmp_path) == there, "nothing is left of the try"


def damage(path):
    with closing(open_database(str(path))) as database:
        garble(database.store("access"), next(iter(database.store("access").items())))


def date_ahead(path):
    with closing(sqlite3.connect(path)) as file:
        file.execute("PRAGMA user_version = 9")


def test_only_a_file_can_be_backed_up_or_restored_to(run, redis_url):
    assert "see docs/relay.md for backups of Redis" in run("backup", "b.db", "--db", redis_url)[0]
    assert "is no file" in run("restore", "b.db", "--db", "memory")[0]
    said, code = run("backup", "none/b.db")
    assert (said, code) == ("repshare: none/b.db cannot be written: No such file or directory\n", 2)
