"""`repshare demo` as a user runs it: what it starts, what it shows, and that nothing of it is left."""

import json
import os
import re
import signal
import subprocess

import httpx
import pytest

from repshare.cli.demo import party
from repshare.cli.demo.processes import DemoProcesses
from repshare.cli.demo.scene import Cast, Scene
from repshare.errors import ConfigError, WorkerFailed
from support.processes import PATIENCE_SECONDS, REPSHARE, eventually, records
from support.relays import create_task, invite, start_relay
from support.warm import run_warm, start_warm

SMALL = ("--clients", "2", "--samples", "20")


class Demo:
    """The command under way, in a folder of its own for temporary files."""

    def __init__(self, folder, *arguments, cold=False):
        self.folder, self.temporary = folder, folder / "temporary"
        self.temporary.mkdir()
        self.out = folder / "out"
        with self.out.open("wb") as out, (folder / "err").open("wb") as err:
            files = {"cwd": folder, "stdout": out, "stderr": err}
            environment = {**os.environ, "TMPDIR": str(self.temporary)}
            if cold:
                self.process = subprocess.Popen([*REPSHARE, "demo", *SMALL, *arguments], env=environment, **files)
            else:
                self.process = start_warm(["demo", *SMALL, *arguments], env=environment, **files)

    def page(self):
        """The page's address, once it is shown."""
        found = re.search(r"http://127\.0\.0\.1:\d+/#token=\S+", self.out.read_text())
        return found.group() if found else None

    def started(self):
        """The processes of this demo that are there, by what they are."""
        listing = subprocess.run(
            ["ps", "-ww", "-eo", "pid=,stat=,args="], capture_output=True, text=True, check=True
        ).stdout
        lines = [line.split(None, 2) for line in listing.splitlines() if str(self.folder) in line]
        return {args: int(pid) for pid, stat, args in lines if not stat.startswith("Z")}

    def training(self):
        """The processes, once every client has done a round."""
        folders = list(self.temporary.glob("repshare-demo-*"))
        done = bool(folders) and all(records(folders[0] / name) for name in ("alice", "bob"))
        return self.started() if done else None

    def nothing_is_left(self):
        return not self.started() and not list(self.temporary.iterdir())


@pytest.fixture
def start(tmp_path):
    begun = []

    def start(*arguments, **how):
        begun.append(Demo(tmp_path, *arguments, **how))
        return begun[-1]

    yield start
    for demo in begun:
        demo.process.kill()
        demo.process.wait()
        eventually(lambda demo=demo: not demo.started(), "a killed demo takes its processes along")


def test_it_runs_a_relay_and_clients_and_compares_with_learning_alone(start):
    demo = start("--rounds", "8", "--pace", "0.4", "--keep", "kept", cold=True)
    page = eventually(demo.page, "the page's address is shown")
    relay, token = page.split("/#token=")
    answer = httpx.get(f"{relay}/v1/tasks/digits", headers={"Authorization": f"Bearer {token}"}, timeout=30)
    assert answer.json()["dimension"] == 84
    assert "<html" in httpx.get(relay, timeout=30).text

    assert demo.process.wait(PATIENCE_SECONDS) == 0, (demo.folder / "err").read_text()
    shown = demo.out.read_text()
    for words in ("alone", "together", "LeNet5", "ConvNet", "mean", "repshare join URL"):
        assert words in shown
    assert demo.started() == {}
    assert list(demo.temporary.iterdir()) == []
    kept = demo.folder / "kept"
    for name in ("alice", "bob"):
        assert [line["round"] for line in records(kept / name)] == list(range(1, 9))
        assert all(line["trouble"] is None and line["bytes_up"] for line in records(kept / name))
    lines = records(kept / "run")
    assert any(line["bytes_down"] > 5000 for line in lines), "nobody was there to learn from"
    assert {(line["method"], line["client"]) for line in lines} == {
        (m, c) for m in ("IL", "RS") for c in ("alice", "bob")
    }


def test_ctrl_c_stops_every_process_and_leaves_nothing_behind(start):
    demo = start("--rounds", "100000", "--pace", "0.05", "--json")
    running = eventually(demo.training, "all clients are training")
    assert len(running) == 5, running  # a relay, two clients, both of them alone, and the keeper

    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(PATIENCE_SECONDS) == 130
    assert demo.nothing_is_left()
    assert demo.out.read_text() == ""


def test_a_demo_that_is_killed_takes_its_processes_along(start):
    demo = start("--rounds", "100000", "--pace", "0.05")
    eventually(demo.training, "all clients are training")
    demo.process.kill()
    demo.process.wait()
    eventually(demo.nothing_is_left, "everything has ended", seconds=20)


def test_a_process_that_fails_is_quoted_with_its_last_words(tmp_path):
    with DemoProcesses(tmp_path, remove=False) as processes:
        processes.start("alice", ["-c", "import sys; sys.exit('repshare: no data today')"])
        with pytest.raises(WorkerFailed, match="alice ended with exit code 1: no data today"):
            eventually(lambda: not processes.running("alice"), "it ends")


def test_what_cannot_be_is_said_before_anything_starts(tmp_path):
    for wrong, said in (
        ({"clients": 1}, "clients must be from 2"),
        ({"rounds": 0}, "rounds must"),
        ({"pace": -1}, "pace"),
    ):
        with pytest.raises(ConfigError, match=said):
            Cast(**wrong)
    (tmp_path / "there").mkdir()
    done = run_warm("demo", "--keep", "there", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "there cannot be made: File exists" in done.stderr
    with (
        DemoProcesses(tmp_path, remove=False) as processes,
        pytest.raises(ConfigError, match=r"too many for .* has 1,200"),
    ):
        Scene(Cast(samples=900), tmp_path, processes)


def test_alone_is_what_joining_without_learning_from_others_gives(tmp_path):
    """The figures under `alone` are those of `repshare join --lambda-kd 0 --lambda-disc 0`, to the last bit."""
    share = party.Share("digits", 1, 20, 3)
    create_task(tmp_path, "digits", "--classes", "10", "--dimension", "84")
    (tmp_path / "bob.token").write_text(invite(tmp_path, "bob", "--task", "digits"))
    arguments = ["--task", f"{party.__file__}:party", "--token-file", "bob.token", "--state", "bob", "--rounds", "3"]
    learning = ["--seed", "3", "--threads", "1", "--lambda-kd", "0", "--lambda-disc", "0"]
    with start_relay(tmp_path) as relay:
        environment = {**os.environ, **share.environment()}
        run_warm("join", relay.url, *arguments, *learning, cwd=tmp_path, env=environment).check_returncode()
    shares = json.dumps({"bob": {"dataset": "digits", "place": 1, "samples": 20, "seed": 3}})
    alone = tmp_path / "alone" / "records.jsonl"
    alone.parent.mkdir()
    run_warm(alone, 3, 0, shares, cwd=tmp_path, script=party.__file__).check_returncode()

    def learnt(folder):
        return [(line["ce"], line["train_accuracy"], line["test_accuracy"]) for line in records(folder)]

    assert learnt(tmp_path / "alone") == learnt(tmp_path / "bob")
    assert len(learnt(tmp_path / "bob")) == 3
