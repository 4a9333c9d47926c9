"""`repshare peer` and `repshare keys`: real processes without a server, real signals."""

import json
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from repshare.cli.main import main
from repshare.exchange.keys import Key
from support.network_namespaces import make_island
from support.peer_processes import Crew, impersonate, record_answer
from support.processes import PATIENCE_SECONDS, eventually

PARTY = Path(__file__).parents[2] / "examples/party.py"
WHO = {"ada": "alice", "bea": "bob", "cid": "alice"}  # whose model and samples each has
BUSY = ("--m-down", "2", "--pace", "0.2")


@pytest.fixture
def folder(tmp_path, monkeypatch, capsys):
    """A folder with three keys and a file in which all of them are trusted."""
    monkeypatch.chdir(tmp_path)
    for name in WHO:
        capsys.readouterr()
        main(["keys", f"{name}.key"])
        with Path("peers.jsonl").open("a") as file:
            file.write(json.dumps({"name": name, "key": capsys.readouterr().out.strip()}) + "\n")
    capsys.readouterr()
    return tmp_path


@pytest.fixture
def crew(tmp_path):
    """Three peers that can be started; all are stopped when the test ends."""
    crew = Crew(tmp_path, {name: f"{PARTY}:{who}" for name, who in WHO.items()})
    yield crew
    crew.stop()


def test_one_is_killed_and_comes_back_and_the_others_never_stop(crew):
    crew.start("ada", *BUSY)
    bea = crew.start("bea", *BUSY, connect=["ada"])
    cid = crew.start("cid", *BUSY, connect=["bea"])
    crew.go_on(*WHO, rounds=2)
    bea.stop(signal.SIGKILL)
    reached = len(crew.rounds("bea"))
    crew.go_on("ada", "cid")  # they met through bea, and go on without her
    crew.start("bea", *BUSY, connect=["ada"])
    crew.go_on("bea", rounds=2)
    assert len(crew.rounds("bea")) > reached
    cid.stop(signal.SIGKILL)
    crew.go_on("ada", "bea")  # two are enough


def test_one_is_cut_off_and_comes_back_and_the_others_never_stop(crew):
    with make_island() as island:
        crew.start("ada", *BUSY, listen=f"tcp/{island.here}:0")
        crew.start("bea", *BUSY, connect=["ada"])
        cid = crew.start("cid", *BUSY, connect=["ada"], listen=island.inside, prefix=island.prefix)
        crew.go_on(*WHO, rounds=2)
        island.cut(cid)
        reached = len(crew.rounds("cid"))
        crew.go_on("ada", "bea")
        assert len(crew.taught("cid", since=reached + 1)) == 0  # a round may have been under way
        from_bea = crew.rounds("ada")[-1]["bytes_down"]
        island.mend(cid)
        crew.go_on("cid", "ada", "bea", rounds=2)
        eventually(lambda: crew.rounds("ada")[-1]["bytes_down"] > 1.5 * from_bea, "ada hears cid again, too")
        crew.stop()  # before the network of one of them is gone


def test_who_replays_a_killed_peers_answers_without_its_key_teaches_nobody(crew):
    crew.start("ada", *BUSY)
    bea = crew.start("bea", *BUSY, connect=["ada"])
    crew.go_on("ada", "bea", rounds=2)
    place = crew.listening("ada")[-1]
    recorded = record_answer(place, "bea")
    bea.stop(signal.SIGKILL)
    output = crew.processes["ada"].out

    def count_refused():
        return output.read_text().count("bea: refused: its signature is not its key's for this question")

    with ExitStack() as stack:
        impersonate(stack, place, "bea", lambda query, key: query.reply(key, recorded))
        eventually(lambda: count_refused() >= 3, "ada refuses what was recorded")
        since = len(crew.rounds("ada"))
        eventually(lambda: len(crew.rounds("ada")) >= since + 3, "ada goes on by herself")
        assert all("bea" in line["trouble"] for line in crew.rounds("ada")[since:])
    crew.start("bea", *BUSY, connect=["ada"])
    crew.go_on("ada", "bea", rounds=2)


def test_a_peer_ends_after_its_last_round_and_says_what_came_of_it(crew):
    crew.start("ada", *BUSY)
    bea = crew.start("bea", *BUSY, "--rounds", "4", connect=["ada"])
    assert bea.process.wait(PATIENCE_SECONDS) == 0
    assert "bea after 4 rounds" in bea.out.read_text()
    assert {path.name for path in (crew.folder / "repshare-task-bea").iterdir()} >= {"peers.db", "records.jsonl"}


def test_nothing_is_sent_and_no_key_is_needed_to_see_what_would_be(folder, capsys):
    main(
        [
            "peer",
            "--party",
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
        main(["peer", "--party", f"{PARTY}:alice", "--name", "ada", *options])
    assert stopped.value.code == 2
    said = capsys.readouterr().err
    assert reason in said
    assert said.count("\n") == 1


def test_a_key_is_made_once_and_its_public_half_shown(folder, capsys):
    main(["keys", "eve.key"])
    public = capsys.readouterr().out.strip()
    assert Key.read(Path("eve.key")).public.hex() == public
    main(["keys", "eve.key"])
    assert capsys.readouterr().out.strip() == public
