"""`repshare relay …` as an operator types it, beside a running relay and without one."""

import json
from contextlib import closing
from io import StringIO

import pytest

from repshare.cli.main import main
from repshare.cli.relay.database import shown
from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from support.relays import create_task, invite, prepare, release, repshare, start_relay

COMMANDS = [
    "serve",
    "invite",
    "revoke",
    "withdraw",
    "backup",
    "restore",
    "check",
    "tasks create",
    "tasks list",
    "tasks delete",
]


@pytest.mark.parametrize("command", ["", "tasks", *COMMANDS])
def test_every_command_of_a_relay_explains_itself(capsys, command):
    with pytest.raises(SystemExit) as exit:
        main(["relay", *command.split(), "--help"])
    shown = capsys.readouterr().out
    assert exit.value.code == 0
    assert f"usage: repshare relay {command}".strip() in shown
    if command in COMMANDS:
        assert f"repshare relay {command} " in shown.split("options")[0].split("\n", 1)[1]  # an example


def test_a_token_is_printed_once_and_alone(tmp_path):
    repshare("relay", "tasks", "create", "digits", "--classes", 10, "--dimension", 8, cwd=tmp_path)
    token = repshare("relay", "invite", "alice", "--task", "digits", cwd=tmp_path).strip()
    assert token.startswith("rs_")
    assert len(token.split()) == 1
    again = repshare("relay", "invite", "alice", "--task", "digits", cwd=tmp_path, expect=2)
    assert again == "repshare: alice has a token in digits already: revoke it, or --renew it\n"
    told = json.loads(repshare("relay", "invite", "alice", "--task", "digits", "--renew", "--json", cwd=tmp_path))
    assert told["token"] != token
    assert {key: told[key] for key in ("role", "name", "task")} == {"role": "client", "name": "alice", "task": "digits"}


def test_tasks_are_listed_for_people_and_for_programs(tmp_path):
    create_task(tmp_path, "digits", "--classes", 10, "--dimension", 8, "--max-age", 60)
    invite(tmp_path, "alice", "--task", "digits")
    invite(tmp_path, "eve", "--role", "viewer")
    shown = repshare("relay", "tasks", "list", cwd=tmp_path)
    assert "digits: 10 classes of 8 numbers; 0 published; invited: alice" in shown
    told = json.loads(repshare("relay", "tasks", "list", "--json", cwd=tmp_path))
    assert [(task["name"], task["tokens"], task["max_age"]) for task in told["tasks"]] == [("digits", ["alice"], 60)]
    assert told["tokens_for_all_tasks"] == [{"name": "eve", "role": "viewer"}]


def test_a_norm_bound_follows_the_dimension_unless_it_is_chosen_or_there_already(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    size = ("--classes", "10", "--dimension", "84")
    main(["relay", "tasks", "create", "usual", *size])
    main(["relay", "tasks", "create", "chosen", *size, "--norm-bound", "1000"])
    main(["relay", "tasks", "create", "chosen", *size])  # as a relay of an earlier version made it
    assert "task chosen already exists" in capsys.readouterr().err
    main(["relay", "tasks", "list", "--json"])
    bounds = {task["name"]: task["norm_bound"] for task in json.loads(capsys.readouterr().out)["tasks"]}
    assert bounds == {"usual": pytest.approx(4 * 84**0.5), "chosen": 1000.0}


def test_all_commands_work_while_the_relay_runs(tmp_path):
    create_task(tmp_path)
    with start_relay(tmp_path) as relay:
        create_task(tmp_path, "digits")  # again: fine
        alice, bob = (invite(tmp_path, name, "--task", "digits") for name in ("alice", "bob"))
        assert relay.publish("alice", release(), alice).status_code == 200
        assert relay.teacher(bob).status_code == 200
        create_task(tmp_path, "copy")
        assert "copy" in repshare("relay", "tasks", "list", cwd=tmp_path)
        repshare("relay", "tasks", "delete", "copy", "--yes", cwd=tmp_path)
        assert "copy" not in repshare("relay", "tasks", "list", cwd=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["invite", "alice"], "a client belongs to a task"),
        (["invite", "alice", "--task", "none"], "there is no task 'none'"),
        (["invite", "a/b", "--task", "digits"], "cannot name a client"),
        (["revoke", "alice", "--task", "digits"], "alice has no token in digits"),
        (["tasks", "create", "x"], "needs --classes and --dimension"),
        (["tasks", "create", "x", "--classes", "1", "--dimension", "2"], "classes must be at least 2, not 1"),
        (["tasks", "create", "digits", "--classes", "10", "--dimension", "9"], "dimension 8 there, 9 wanted"),
        (["tasks", "delete", "none", "--yes"], "there is no task 'none'"),
        (["tasks", "list", "--db", "redis://127.0.0.1:1/0"], "Redis"),
    ],
)
def test_what_makes_no_sense_is_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    main(["relay", "tasks", "create", "digits", "--classes", "10", "--dimension", "8"])
    capsys.readouterr()
    with pytest.raises(SystemExit) as exit:
        main(["relay", *arguments])
    out, error = capsys.readouterr()
    assert exit.value.code in (1, 2)
    assert words in error
    assert (out, len(error.strip().splitlines())) == ("", 1)


def test_an_address_with_a_password_comes_from_the_environment(tmp_path, redis_url, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REPSHARE_DB", redis_url)
    main(["relay", "tasks", "create", "digits", "--classes", "10", "--dimension", "8"])
    assert not list(tmp_path.iterdir())
    for where in (["--db", redis_url], []):
        main(["relay", "tasks", "list", *where])
        assert "digits" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main(["relay", "tasks", "list", "--db", "relay.db"])
    assert f"there is no database {tmp_path / 'relay.db'}" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["relay", "tasks", "list", "--help"])
    assert redis_url not in capsys.readouterr().out
    monkeypatch.setenv("REPSHARE_DB", "tcp://:s3cret@10.0.0.5")
    with pytest.raises(SystemExit):
        main(["relay", "tasks", "list"])
    told = capsys.readouterr().err
    assert "must begin with redis://" in told
    assert "s3cret" not in told


READING = (
    ["tasks", "list"],
    ["tasks", "describe", "digits"],
    ["tasks", "delete", "digits", "--yes"],
    ["invite", "alice", "--task", "digits"],
    ["revoke", "alice", "--task", "digits"],
    ["withdraw", "alice", "--task", "digits"],
    ["backup", "copy.db"],
    ["check"],
)


@pytest.mark.parametrize("arguments", READING, ids=" ".join)
def test_a_command_that_needs_a_database_never_creates_one_and_names_where_it_looked(
    tmp_path, monkeypatch, capsys, arguments
):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit:
        main(["relay", *arguments])
    assert exit.value.code == 2
    assert f"there is no database {tmp_path / 'relay.db'}" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_environment_names_the_database_and_messages_say_which_was_read(tmp_path, monkeypatch, capsys):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setenv("REPSHARE_DB", str(tmp_path / "mine.db"))
    main(["relay", "tasks", "create", "digits", "--classes", "10", "--dimension", "8"])
    capsys.readouterr()
    main(["relay", "tasks", "list"])
    told = capsys.readouterr()
    assert (told.out.startswith("digits: "), told.err) == (True, f"in {tmp_path / 'mine.db'}\n")
    for arguments, words in (
        (["invite", "carol", "--task", "wards"], f"there is no task 'wards' in {tmp_path / 'mine.db'}"),
        (["revoke", "carol", "--task", "digits"], f"carol has no token in digits ({tmp_path / 'mine.db'})"),
        (["withdraw", "carol", "--task", "digits"], f"carol has published nothing in digits ({tmp_path / 'mine.db'})"),
        (["tasks", "list", "--db", "other.db"], f"there is no database {tmp_path / 'elsewhere' / 'other.db'}"),
    ):
        with pytest.raises(SystemExit):
            main(["relay", *arguments])
        assert words in capsys.readouterr().err
    monkeypatch.setenv("REPSHARE_REDIS", "redis://:s3cret@127.0.0.1:1/0")
    with pytest.raises(SystemExit):
        main(["relay", "tasks", "list"])
    assert "REPSHARE_REDIS is not read any more: rename it to REPSHARE_DB" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["relay", "tasks", "list", "--help"])
    assert "REPSHARE_DB" in capsys.readouterr().out
    assert shown("redis://:s3cret@127.0.0.1:1/0?password=s3cret") == "redis://127.0.0.1:1/0"
    assert not list((tmp_path / "elsewhere").iterdir())


def test_deleting_a_task_asks_on_a_terminal_and_says_what_went(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    create_task(tmp_path)
    for name in ("alice", "bob"):
        invite(tmp_path, name, "--task", "digits")
    with closing(open_database("relay.db")) as database:
        Tasks(database).get("digits").board.accept("alice", release())
    for answer, terminal in (("", False), ("n\n", True), ("\n", True)):
        with pytest.raises(SystemExit) as exit:
            monkeypatch.setattr("sys.stdin", TextIO(answer, terminal))
            main(["relay", "tasks", "delete", "digits"])
        assert exit.value.code == 2
        assert ("--yes" in capsys.readouterr().err) is not terminal
    monkeypatch.setattr("sys.stdin", TextIO("y\n", True))
    main(["relay", "tasks", "delete", "digits"])
    assert capsys.readouterr().err == "task digits deleted: 1 release, 2 tokens\n"
    with closing(open_database("relay.db")) as database:
        assert Tasks(database).entries() == []


class TextIO(StringIO):
    """What a user types; on a terminal, or not."""

    def __init__(self, text, terminal):
        super().__init__(text)
        self.isatty = lambda: terminal


def test_a_release_is_withdrawn_and_its_client_may_publish_again(tmp_path):
    create_task(tmp_path)
    alice = invite(tmp_path, "alice", "--task", "digits")
    with start_relay(tmp_path) as relay:
        assert relay.publish("alice", release(3), alice).status_code == 200
        prepare("relay", "withdraw", "alice", "--task", "digits", cwd=tmp_path)
        assert relay.ask("GET", "/v1/tasks/digits/status", alice).json()["clients"] == 0
        assert relay.publish("alice", release(1), alice).status_code == 200
