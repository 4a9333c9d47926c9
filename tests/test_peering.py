"""`repshare peer` and `repshare keys`: real processes without a server, real signals."""

import json
import re
import signal
from pathlib import Path

import pytest

from parties import Process, eventually, records
from repshare.cli import main

PARTY = Path(__file__).parent.parent / "examples/party.py"
WHO = {"ada": "alice", "bea": "bob", "cid": "alice"}  # whose model and samples each has


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    """A folder with three keys and a file in which all of them are trusted."""
    monkeypatch.chdir(tmp_path)
    for name in WHO:
        capsys.readouterr()
        main(["keys", "new", f"{name}.key"])
        main(["keys", "trust", name, capsys.readouterr().out.strip()])
    capsys.readouterr()
    return tmp_path


@pytest.fixture
def start(folder):
    """Start a peer; all are stopped when the test ends."""
    processes = []

    def start(name, *options, connect=()):
        arguments = ["--task", f"{PARTY}:{WHO[name]}", "--name", name, "--key", f"{name}.key", "--trust", "peers.jsonl"]
        places = [place for other in connect for place in listening(folder, other)]
        process = Process(
            "peer", *arguments, "--listen", "tcp/127.0.0.1:0", *(["--connect", *places] if places else []),
            "--m-down", "2", "--threads", "1", "--pace", "0.2", "--timeout", "2", *options, cwd=folder, name=name,
        )  # fmt: skip
        processes.append(process)
        eventually(lambda: listening(folder, name), f"{name} listens")
        return process

    yield start
    for process in processes:
        process.stop()
        assert "panicked" not in process.err.read_text()  # neither those who left nor those who stayed


def listening(folder, name):
    """Where this one listens since it was last started, if it does."""
    output = folder / f"{name}.out"
    found = re.findall(r"listening at (\S+)\n", output.read_text()) if output.exists() else []
    return found[-1:]


def rounds(folder, name):
    return records(folder / f"repshare-task-{name}")


def taught(folder, name, since=0):
    """Rounds after that one in which the client learnt from others."""
    return [line for line in rounds(folder, name) if line["round"] > since and line["kd"] is not None]


def test_one_is_killed_and_comes_back_and_the_others_never_stop(folder, start):
    start("ada")
    bea = start("bea", connect=["ada"])
    cid = start("cid", connect=["bea"])
    for name in WHO:
        eventually(lambda name=name: len(taught(folder, name)) >= 2, f"{name} learns from others")
    bea.stop(signal.SIGKILL)
    reached = len(rounds(folder, "bea"))
    marks = {name: len(rounds(folder, name)) for name in ("ada", "cid")}
    for name, mark in marks.items():  # they met through bea, and go on without her
        eventually(lambda name=name, mark=mark: len(taught(folder, name, mark)) >= 3, f"{name} goes on learning")
    start("bea", connect=["ada"])
    eventually(lambda: len(taught(folder, "bea", reached)) >= 2, "bea goes on where she was")
    assert [line["round"] for line in rounds(folder, "bea")] == [*range(1, len(rounds(folder, "bea")) + 1)]
    cid.stop(signal.SIGKILL)
    marks = {name: len(rounds(folder, name)) for name in ("ada", "bea")}
    for name, mark in marks.items():
        eventually(lambda name=name, mark=mark: len(taught(folder, name, mark)) >= 3, f"two are enough for {name}")
        assert [line["round"] for line in rounds(folder, name)] == [*range(1, len(rounds(folder, name)) + 1)]


def test_a_peer_ends_after_its_last_round_and_says_what_came_of_it(folder, start):
    start("ada")
    bea = start("bea", "--rounds", "4", connect=["ada"])
    assert bea.process.wait(60) == 0
    assert "bea after 4 rounds" in bea.out.read_text()
    assert {path.name for path in (folder / "repshare-task-bea").iterdir()} >= {"peers.db", "records.jsonl"}


def test_nothing_is_sent_and_no_key_is_needed_to_see_what_would_be(folder, capsys):
    main(
        [
            "peer",
            "--task",
            f"{PARTY}:alice",
            "--name",
            "ada",
            "--key",
            "none",
            "--first-use",
            "--multicast",
            "--dry-run",
        ]
    )
    assert "Nothing has been sent now" in capsys.readouterr().out
    assert not (folder / "repshare-task-ada").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--key", "ada.key", "--first-use"], "--listen, --connect or --multicast"),
        (["--key", "ada.key", "--multicast"], "--trust"),
        (["--key", "missing", "--first-use", "--listen", "tcp/127.0.0.1:0"], "missing"),
        (["--key", "ada.key", "--first-use", "--listen", "tcp/127.0.0.1:0", "--cert", "x"], "--cert-key"),
        (["--key", "ada.key", "--first-use", "--listen", "tcp/127.0.0.1:0", "--report"], "--report"),
        (["--key", "ada.key", "--first-use", "--listen", "rubbish"], "rubbish"),
    ],
)
def test_what_is_missing_is_said_in_one_line(folder, capsys, options, reason):
    with pytest.raises(SystemExit) as stopped:
        main(["peer", "--task", f"{PARTY}:alice", "--name", "ada", *options])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1


def test_keys_are_shown_and_trusted_by_their_public_half(folder, capsys):
    main(["keys", "show", "ada.key"])
    public = capsys.readouterr().out.strip()
    main(["keys", "show", "peers.jsonl", "--json"])
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [entry["name"] for entry in entries] == sorted(WHO)
    assert entries[0] == {"name": "ada", "key": public}
    for wrong in (["keys", "trust", "ada", "0" * 64], ["keys", "trust", "eve", "0"], ["keys", "show", "none"]):
        with pytest.raises(SystemExit):
            main(wrong)
    with pytest.raises(SystemExit):
        main(["keys", "new", "ada.key"])
    main(["keys", "show", "ada.key"])
    assert public in capsys.readouterr().out
