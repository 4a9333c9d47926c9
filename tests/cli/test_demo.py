"""`repshare demo` as a user runs it: what it starts, what it shows, and that nothing of it is left."""

import os
import re
import signal
import subprocess
import sys

import httpx2
import numpy as np
import pytest

from repshare.cli.demo import party
from repshare.cli.demo.collaboration import Collaboration
from repshare.cli.demo.options import DemoOptions
from repshare.cli.demo.processes import DemoProcesses
from repshare.errors import ConfigError, WorkerFailed
from support.processes import PATIENCE_SECONDS, REPSHARE, eventually, records
from support.relays import create_task, invite, start_relay
from support.warm import run_warm

SMALL = ("--clients", "2", "--samples", "50")


class Demo:
    """The command under way, in a folder of its own for temporary files."""

    def __init__(self, folder, *arguments):
        self.folder, self.temporary = folder, folder / "temporary"
        self.temporary.mkdir()
        self.out = folder / "out"
        with self.out.open("wb") as out, (folder / "err").open("wb") as err:
            self.process = subprocess.Popen(
                [*REPSHARE, "demo", *SMALL, *arguments],
                cwd=folder, stdout=out, stderr=err, env={**os.environ, "TMPDIR": str(self.temporary)},
            )  # fmt: skip

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

    def nothing_is_left(self):
        return not self.started() and not list(self.temporary.iterdir())


@pytest.fixture
def start(tmp_path):
    begun = []

    def start(*arguments):
        begun.append(Demo(tmp_path, *arguments))
        return begun[-1]

    yield start
    for demo in begun:
        demo.process.kill()
        demo.process.wait()
        eventually(lambda demo=demo: not demo.started(), "a killed demo takes its processes along")


def test_four_ways_to_learn_and_one_that_sends_noise_and_is_noticed_and_removed(start):
    demo = start("--rounds", "8", "--common-rounds", "3", "--pace", "0.1", "--keep", "kept")
    relay, token = eventually(demo.page, "the page's address is shown").split("/#token=")
    token, task = token.split("&task=")
    answer = httpx2.get(f"{relay}/v1/tasks/{task}", headers={"Authorization": f"Bearer {token}"}, timeout=30).json()
    assert (answer["name"], answer["space"][:7]) == ("digits-CS", "patches")
    assert "<html" in httpx2.get(relay, timeout=30).text

    assert demo.process.wait(PATIENCE_SECONDS) == 0, (demo.folder / "err").read_text()
    shown = demo.out.read_text()
    for words in ("alone,", "short", "LeNet5", "ConvNet", "mean", "0 1 2 3 4", "5 6 7 8 9", "repshare join URL"):
        assert words in shown
    assert re.search(r"mallory +came to CS with 100 images of white noise", shown)
    assert re.search(r"marked by +the relay after [\d.]+ s: wrong about its own images", shown)
    assert re.search(r"removed by +the operator: repshare relay revoke mallory --task digits-CS", shown)
    assert demo.started() == {}
    assert list(demo.temporary.iterdir()) == []

    kept = demo.folder / "kept"
    for name in ("alice", "bob"):
        assert [line["round"] for line in records(kept / f"{name}-RS")] == list(range(1, 9))
        for method in ("RS", "CS"):
            assert all(line["trouble"] is None and line["bytes_up"] for line in records(kept / f"{name}-{method}"))
    *_, last = records(kept / "mallory-CS")
    assert "the token is unknown, revoked or expired" in last["trouble"]
    lines = records(kept / "run")
    assert any(line["bytes_down"] > 3000 for line in lines if line["method"] == "RS"), "nobody was there to learn from"
    assert {(line["method"], line["client"]) for line in lines} == {
        (m, c) for m in ("IL", "IL short", "RS", "CS") for c in ("alice", "bob")
    }
    reached = {name: records(kept / f"{name}-CS")[-1]["test_accuracy"] for name in ("alice", "bob")}
    assert min(reached.values()) > 0.7, "with five classes each, nobody alone gets more than half right"


def test_ctrl_c_stops_every_process_and_leaves_nothing_behind(start):
    demo = start("--rounds", "100000", "--pace", "0.05", "--json")
    eventually(lambda: len(demo.started()) > 5, "a relay and clients are there")

    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(PATIENCE_SECONDS) == 130
    assert demo.nothing_is_left()
    assert demo.out.read_text() == ""


class InterruptedDict(dict):
    """Ctrl-C comes when a process was started, and before anything knows of it."""

    def __setitem__(self, name, process):
        self.process = process
        raise KeyboardInterrupt


def test_ctrl_c_while_a_process_starts_ends_it_too(tmp_path):
    with pytest.raises(KeyboardInterrupt), DemoProcesses(tmp_path, remove=False) as processes:
        processes._running = InterruptedDict()
        processes.start("alice", ["-c", "import time; time.sleep(60)"])
    with pytest.raises(ProcessLookupError):
        os.kill(processes._running.process.pid, 0)
    processes._running.process.wait()


def test_a_demo_that_is_killed_takes_its_processes_along(start):
    demo = start("--rounds", "100000", "--pace", "0.05")
    eventually(lambda: len(demo.started()) > 3, "some of its processes are there")
    demo.process.kill()
    demo.process.wait()
    eventually(demo.nothing_is_left, "everything has ended", seconds=20)


def test_a_process_that_fails_is_quoted_with_its_last_line(tmp_path):
    with DemoProcesses(tmp_path, remove=False) as processes:
        processes.start("alice", ["-c", "import sys; sys.exit('repshare: no data today')"])
        with pytest.raises(WorkerFailed, match="alice ended with exit code 1: no data today"):
            eventually(lambda: not processes.running("alice"), "it ends")


def test_what_cannot_be_is_said_before_anything_starts(tmp_path):
    for wrong, said in (
        ({"clients": 1}, "clients must be from 2"),
        ({"rounds": 0}, "rounds must"),
        ({"common_rounds": 11}, "common_rounds must"),
        ({"pace": -1}, "pace"),
    ):
        with pytest.raises(ConfigError, match=said):
            DemoOptions(**wrong)
    (tmp_path / "there").mkdir()
    done = run_warm("demo", "--keep", "there", cwd=tmp_path)
    assert done.returncode == 2, done.stderr
    assert "there cannot be made: File exists" in done.stderr
    with (
        DemoProcesses(tmp_path, remove=False) as processes,
        pytest.raises(ConfigError, match=r"too many for .* has 1,200"),
    ):
        Collaboration(DemoOptions(samples=900), processes)


def test_alone_is_what_joining_without_learning_from_others_gives(tmp_path):
    """The figures under `alone` and `short` are those of `repshare join --lambda-kd 0 …`, to the last bit."""
    options = DemoOptions(clients=2, dataset="digits", samples=20, rounds=3, seed=3, pace=0)
    create_task(tmp_path, "digits", "--classes", "10", "--dimension", "84")
    (tmp_path / "bob.token").write_text(invite(tmp_path, "bob", "--task", "digits"))
    arguments = ["--party", f"{party.__file__}:party", "--token-file", "bob.token", "--rounds", "3"]
    learning = ["--seed", "3", "--threads", "1", "--lambda-kd", "0", "--lambda-disc", "0"]
    variables = {**os.environ, **party.Place(options, 1).as_environment()}
    with start_relay(tmp_path) as relay:
        for state, more in (("IL", []), ("IL short", ["--lambda-length", "10", "--restart"])):
            joining = ["join", relay.url, *arguments, "--state", state, *learning, *more]
            run_warm(*joining, cwd=tmp_path, env=variables).check_returncode()
    alone = tmp_path / "alone" / "records.jsonl"
    alone.parent.mkdir()
    command = [sys.executable, "-m", "repshare.cli.demo.party", str(alone)]
    subprocess.run(command, check=True, timeout=120, env=variables)

    def learnt(folder, method):
        lines = [line for line in records(folder) if line["client"] == "bob" and line.get("method", method) == method]
        return [(line["ce"], line["train_accuracy"], line["test_accuracy"]) for line in lines]

    for method in ("IL", "IL short"):
        assert learnt(alone.parent, method) == learnt(tmp_path / method, method)
        assert len(learnt(alone.parent, method)) == 3
    assert learnt(alone.parent, "IL") != learnt(alone.parent, "IL short")


def test_each_party_has_its_own_images_of_its_own_half_of_the_classes(splits):
    options = DemoOptions(clients=4, samples=60)
    parts = party.deal_samples(options, splits.train.labels, 10)
    assert len(set(np.concatenate(parts).tolist())) == 240
    held = [sorted(set(splits.train.labels[rows].tolist())) for rows in parts]
    assert held == [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [5, 6, 7, 8, 9], [0, 1, 7, 8, 9]]
    assert held == [party.classes_of(options, place, 10) for place in range(4)]
