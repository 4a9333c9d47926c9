"""`repshare relay …` as an operator types it, beside a running relay and without one."""

import json

import pytest

from repshare.cli.main import main
from support.relays import create_task, invite, release, repshare, start_relay

COMMANDS = [
    "serve",
    "invite",
    "revoke",
    "check",
    "tasks create",
    "tasks list",
    "tasks export",
    "tasks import",
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
    assert repshare("relay", "tasks", "list", cwd=tmp_path) == ""
    create_task(tmp_path, "digits", "--classes", 10, "--dimension", 8, "--aggregation", "median", "--max-age", 60)
    invite(tmp_path, "alice", "--task", "digits")
    invite(tmp_path, "root", "--role", "admin")
    shown = repshare("relay", "tasks", "list", cwd=tmp_path)
    assert "digits: 10 classes of 8 numbers, median; 0 published; invited: alice" in shown
    told = json.loads(repshare("relay", "tasks", "list", "--json", cwd=tmp_path))
    assert [(task["name"], task["tokens"], task["max_age"]) for task in told["tasks"]] == [("digits", ["alice"], 60)]
    assert told["tokens_for_all_tasks"] == [{"name": "root", "role": "admin"}]


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
        repshare("relay", "tasks", "export", "digits", "digits.task", cwd=tmp_path)
        repshare("relay", "tasks", "import", "digits.task", "--name", "copy", cwd=tmp_path)
        carol = invite(tmp_path, "carol", "--task", "copy")
        assert relay.teacher(carol, task="copy").content == relay.teacher(bob).content
        repshare("relay", "tasks", "delete", "copy", cwd=tmp_path)
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
        (["tasks", "create", "x", "--classes", "2", "--dimension", "2", "--named-peers", "2"], "0 or at least 3"),
        (["tasks", "create", "digits", "--classes", "10", "--dimension", "9"], "dimension 8 there, 9 wanted"),
        (["tasks", "delete", "none"], "there is no task 'none'"),
        (["tasks", "export", "none", "file"], "there is no task 'none'"),
        (["tasks", "export", "digits", "none/file"], "none/file cannot be written: No such file or directory"),
        (["tasks", "import", "none"], "none cannot be read"),
        (["tasks", "import", "relay.db"], "not a message of repshare's"),
        (["tasks", "list", "--redis", "redis://127.0.0.1:1/0"], "Redis"),
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
    monkeypatch.setenv("REPSHARE_REDIS", redis_url)
    main(["relay", "tasks", "create", "digits", "--classes", "10", "--dimension", "8"])
    assert not list(tmp_path.iterdir())
    for where, there in (["--redis", redis_url], True), (["--db", "relay.db"], False), ([], True):
        main(["relay", "tasks", "list", *where])
        assert ("digits" in capsys.readouterr().out) is there
    with pytest.raises(SystemExit):
        main(["relay", "tasks", "list", "--help"])
    assert redis_url not in capsys.readouterr().out
    monkeypatch.setenv("REPSHARE_REDIS", "tcp://:s3cret@10.0.0.5")
    with pytest.raises(SystemExit):
        main(["relay", "tasks", "list"])
    told = capsys.readouterr().err
    assert "must begin with redis://" in told
    assert "s3cret" not in told
