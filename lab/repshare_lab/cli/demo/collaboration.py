"""The demo itself: a relay with tokens, parties that join its two tasks, mallory, and their progress."""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import httpx2
import numpy as np
import torch
from numpy.typing import NDArray

from repshare.errors import WorkerFailed
from repshare.files import write_atomically
from repshare.party.controls import ALONE, SHORT
from repshare.randomness import numpy_stream
from repshare.records import Journal, Line
from repshare.relay.auth import Access, Grant
from repshare.relay.tasks import Tasks
from repshare.sharing.task import Task
from repshare.space import choose
from repshare.space.agreement import Agreement
from repshare.stores import open_database
from repshare_lab.cli.demo.party import BEGIN, DATA, DIMENSION, NETWORKS, READY, VARIABLE
from repshare_lab.cli.demo.processes import DemoProcesses
from repshare_lab.data import load

NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "kim", "niaj")
MALLORY = "mallory"  # the one whose images are noise
SAMPLES = 60  # of each party; mallory has as many as all of them together
TESTED = 2000  # images, so that a round on MNIST is not mostly testing
COMMON_ROUNDS = 6  # of CS in each act: without mallory, with it, and without it again
PACE, COMMON_PACE = ("--pace", "0.2"), ("--pace", "0.8")  # slow enough to watch
WATCH_SECONDS = 0.2  # between two looks at the progress
Rows = tuple[NDArray[np.float32], NDArray[np.int64]]


class Collaboration:
    """A relay and its clients, as processes: the relay starts at once, `watch` starts the clients."""

    def __init__(self, clients: int, dataset: str, rounds: int, processes: DemoProcesses) -> None:
        self.names, self._rounds, self._folder, self._processes = NAMES[:clients], rounds, processes.folder, processes
        self.tasks = {method: f"{dataset}-{method}" for method in ("RS", "CS")}
        train, test, self.classes = load(dataset, progress=True).normalised()
        self.data = dict(zip(self.names, deal(train.images, train.labels, clients), strict=True))
        self._shape, self._test = train.images.shape[1:], (test.images[:TESTED], test.labels[:TESTED])
        self._token, self._database = self._make_tokens(), ["--db", str(self._folder / "relay.db")]
        processes.start("relay", ["relay", "serve", *self._database, "--port", "0"])
        self.url = self._wait_for_relay()
        self.page = f"{self.url}/#token={self._token}&task={self.tasks['CS']}"  # on which RS can be chosen, too
        self.removal = ["relay", "revoke", MALLORY, "--task", self.tasks["CS"], "--withdraw"]
        self.acts: list[dict[str, int]] = []  # rounds of CS before mallory came, and before it was removed, by party
        self.strangeness, self.noticed = 0.0, 0.0  # of mallory; seconds until the relay marked it, if it did

    def watch(self) -> Iterator[str]:
        """Start the clients, act by act, and yield the act again and again. Raises WorkerFailed if a process fails."""
        work, slow = ["--rounds", str(self._rounds), *PACE, "--compare", "--report"], [*COMMON_PACE, "--report"]
        networks = [self._join(name, "RS", rows, work) for name, rows in self.data.items()]
        yield from self._act("starting processes …", lambda: self._ready(networks))
        self._begin(networks)
        common = [self._join(name, "CS", rows, slow) for name, rows in self.data.items()]
        mallory = self._join(MALLORY, "CS", self._noise(), slow)
        act = "act 1: each alone, and by RS"
        yield from self._act(act, lambda: not any(list(map(self._processes.running, networks))))
        yield from self._act(act, lambda: self._ready([*common, mallory]))
        self._begin(common)
        yield from self._act("act 2: together by CS", lambda: self._have_done(1))
        self.acts, let_in, act = [self._done()], time.monotonic(), "act 3: mallory comes with noise"
        self._begin([mallory])
        yield from self._act(act, lambda: self._find_mallory(let_in) and self._have_done(1 if self.noticed else 2))
        if self.noticed:
            self._processes.start("operator", [*self.removal, *self._database])
            yield from self._act("act 4: the operator removes mallory", lambda: not self._processes.running("operator"))
            self.acts.append(self._done())
            yield from self._act("act 4: without mallory", lambda: self._have_done(1))

    def lines(self, name: str) -> dict[str, list[Line]]:
        """Return a party's rounds so far, by method, from the records that the clients keep."""
        controls = self._read(f"{name}-RS/controls.jsonl")
        lines = {title: [line for line in controls if line["control"] == title] for title in (ALONE, SHORT)}
        return lines | {method: self._read(f"{name}-{method}/records.jsonl") for method in self.tasks}

    def _act(self, name: str, is_over: Callable[[], bool]) -> Iterator[str]:
        while not is_over():
            yield name
            if not self._processes.running("relay"):
                raise WorkerFailed("the relay ended before the clients did")
            time.sleep(WATCH_SECONDS)

    def _read(self, records: str) -> list[Line]:
        return Journal(self._folder / records).read()

    def _done(self) -> dict[str, int]:
        """The number of rounds of CS that each party has done."""
        return {name: len(self._read(f"{name}-CS/records.jsonl")) for name in self.names}

    def _have_done(self, acts: int) -> bool:
        """Whether each party has done the rounds of so many acts since the last one began."""
        before = self.acts[-1] if self.acts else dict.fromkeys(self.names, 0)
        return all(done - before[name] >= acts * COMMON_ROUNDS for name, done in self._done().items())

    def _find_mallory(self, let_in: float) -> bool:
        """Whether mallory has published; the relay's status of it is noted."""
        address, headers = f"{self.url}/v1/tasks/{self.tasks['CS']}/status", {"Authorization": f"Bearer {self._token}"}
        try:
            answer = httpx2.get(address, headers=headers, timeout=60)
        except httpx2.HTTPError:  # if the relay has ended, that is said next
            return False
        found = {shown["name"]: shown for shown in answer.raise_for_status().json()["shown"]}.get(MALLORY)
        if found is not None and found["outlier"] and not self.noticed:
            self.strangeness, self.noticed = found["strangeness"], time.monotonic() - let_in
        return found is not None

    def _make_tokens(self) -> str:
        """Create the tasks, and tokens for each client, in files of their own; return a viewer's token."""
        space = choose((), torch.zeros(1, *self._shape), 0)
        agreed = Agreement(space, class_names=tuple(map(str, range(self.classes))))
        made = {"RS": Task(self.classes, DIMENSION), "CS": agreed.task(self.classes)}
        with closing(open_database(str(self._folder / "relay.db"))) as database:
            access = Access(database)
            for method, task in self.tasks.items():
                Tasks(database).create(task, made[method])
                for name in [*self.names, *([MALLORY] if method == "CS" else [])]:
                    token = access.invite(Grant("client", name, task))
                    write_atomically(self._folder / f"{name}-{method}.token", f"{token}\n", private=True)
            return access.invite(Grant("viewer", "viewer", None))

    def _join(self, name: str, method: str, rows: Rows, work: Sequence[str]) -> str:
        """Start a party's `repshare join` of one task; return the name of the process. It waits until it may begin."""
        process, place = f"{name}-{method}", self._folder / "places" / f"{name}-{method}"
        place.mkdir(parents=True)
        (images, labels), (test_images, test_labels) = rows, self._test
        np.savez(
            place / DATA, train_images=images, train_labels=labels, test_images=test_images, test_labels=test_labels,
            network=np.array(network_of(name)), classes=np.array(self.classes),
        )  # fmt: skip
        access = ["--party", f"{Path(__file__).with_name('party.py')}:party", "--token-file"]
        command = ["join", self.url, *access, str(self._folder / f"{process}.token"), "--threads", "1", *work]
        variables = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1", VARIABLE: str(place)}
        self._processes.start(process, [*command, "--state", str(self._folder / process)], variables)
        return process

    def _noise(self) -> Rows:
        """Return as many images of white noise as all others have together, with any labels."""
        rng, count = numpy_stream(0, "demo", MALLORY), len(self.names) * SAMPLES
        return rng.standard_normal((count, *self._shape), dtype=np.float32), rng.integers(0, self.classes, count)

    def _ready(self, processes: Sequence[str]) -> bool:
        return all((self._folder / "places" / process / READY).exists() for process in processes)

    def _begin(self, processes: Sequence[str]) -> None:
        for process in processes:
            (self._folder / "places" / process / BEGIN).touch()

    def _wait_for_relay(self) -> str:
        while self._processes.running("relay"):
            if said := re.search(r'"url": ?"([^"]+)"', (self._folder / "relay.log").read_text()):
                return said[1]
            time.sleep(0.05)
        raise WorkerFailed("the relay ended before it began to listen")


def network_of(name: str) -> str:
    """Return this party's network."""
    return list(NETWORKS)[(*NAMES, MALLORY).index(name) % len(NETWORKS)]


def deal(images: NDArray[np.float32], labels: NDArray[np.int64], clients: int) -> Iterator[Rows]:
    """Yield each party's samples: of half of the classes, each party another half, and none twice."""
    left, classes = numpy_stream(0, "demo").permutation(len(labels)), int(labels.max()) + 1
    for place in range(clients):
        own = [(place * classes // clients + step) % classes for step in range(classes // 2)]
        taken = np.concatenate([np.flatnonzero(labels[left] == label)[: SAMPLES // len(own)] for label in own])
        yield images[left[taken]], labels[left[taken]]
        left = np.delete(left, taken)
