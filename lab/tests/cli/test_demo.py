"""`repshare demo` as a user runs it: what it starts, what it shows, and that nothing of it is left."""

import os
import re
import signal
import subprocess
from contextlib import closing

import httpx2
import numpy as np
import pytest

from repshare.errors import WorkerFailed
from repshare_lab.cli.demo.collaboration import MALLORY, SAMPLES, deal, network_of
from repshare_lab.cli.demo.processes import DemoProcesses
from support.processes import PATIENCE_SECONDS, REPSHARE, eventually

SMALL = ("--clients", "2")


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
    demo = start("--rounds", "8")
    relay, token = eventually(demo.page, "the page's address is shown").split("/#token=")
    token, task = token.split("&task=")
    answer = httpx2.get(f"{relay}/v1/tasks/{task}", headers={"Authorization": f"Bearer {token}"}, timeout=30).json()
    assert (answer["name"], answer["space"][:7]) == ("digits-CS", "patches")
    assert "<html" in httpx2.get(relay, timeout=30).text

    assert demo.process.wait(PATIENCE_SECONDS) == 0, (demo.folder / "err").read_text()
    shown = demo.out.read_text()
    for words in ("alone,", "short", "LeNet5", "ConvNet", "0 1 2 3 4", "5 6 7 8 9"):
        assert words in shown
    assert re.search(r"mallory +came with 120 images of white noise", shown)
    assert re.search(r"marked by +the relay after [\d.]+ s: wrong [\d]+ times as often as usual", shown)
    assert re.search(r"removed by +the operator: repshare relay revoke mallory --task digits-CS", shown)
    assert re.search(r"RS [\d.]+ kB up, [\d.]+ kB down \(rounds: 8\)", shown)
    alone, short, rs, cs = map(float, re.search(r"mean +([\d.]+) +([\d.]+) +([\d.]+) +([\d.]+)", shown).groups())
    assert max(alone, short, rs) <= 55, "of half of the classes nobody has images"
    assert cs > 70
    assert demo.nothing_is_left()


def test_ctrl_c_stops_every_process_and_leaves_nothing_behind(start):
    demo = start("--rounds", "100000")
    eventually(lambda: len(demo.started()) > 5, "a relay and clients are there")

    demo.process.send_signal(signal.SIGINT)
    assert demo.process.wait(PATIENCE_SECONDS) == 130
    assert demo.nothing_is_left()
    assert "mean" not in demo.out.read_text()


class InterruptedDict(dict):
    """Ctrl-C comes when a process was started, and before anything knows of it."""

    def __setitem__(self, name, process):
        self.process = process
        raise KeyboardInterrupt


def test_ctrl_c_while_a_process_starts_ends_it_too():
    with pytest.raises(KeyboardInterrupt), closing(DemoProcesses()) as processes:
        started = processes._running = InterruptedDict()
        processes.start("alice", ["relay", "serve", "--port", "0", "--insecure", "--db", "memory"])
    assert started.process.wait(PATIENCE_SECONDS) != 0


def test_a_demo_that_is_killed_takes_its_processes_along(start):
    demo = start("--rounds", "100000")
    eventually(lambda: len(demo.started()) > 3, "some of its processes are there")
    demo.process.kill()
    demo.process.wait()
    eventually(demo.nothing_is_left, "everything has ended", seconds=20)


def test_a_process_that_fails_is_quoted_with_its_last_line():
    with closing(DemoProcesses()) as processes:
        processes.start("alice", ["relay", "tasks", "delete"])
        with pytest.raises(WorkerFailed, match="alice ended with exit code 2: the following arguments are required"):
            eventually(lambda: not processes.running("alice"), "it ends")


def test_each_party_has_its_own_images_of_its_own_half_of_the_classes(splits):
    dealt = list(deal(np.arange(len(splits.train.labels)), splits.train.labels, 4))
    assert len(set(np.concatenate([rows for rows, _ in dealt]).tolist())) == 4 * SAMPLES
    held = [sorted(set(labels.tolist())) for _, labels in dealt]
    assert held == [[0, 1, 2, 3, 4], [2, 3, 4, 5, 6], [5, 6, 7, 8, 9], [0, 1, 7, 8, 9]]
    assert [network_of(name) for name in ("alice", "bob", "carol", "dave", MALLORY)][:3] == ["LeNet5", "ConvNet", "MLP"]
