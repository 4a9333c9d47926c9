"""The demo itself: a relay with tokens, parties that join its two tasks, the same parties alone, and their progress."""

import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

import httpx2
import torch

from repshare.cli.demo.options import MALLORY, DemoOptions
from repshare.cli.demo.party import ALONE, DIMENSION, Place, classes_of, deal_samples, network_of, save_data
from repshare.cli.demo.processes import DemoProcesses
from repshare.data import histogram, load
from repshare.errors import WorkerFailed
from repshare.files import write_atomically
from repshare.relay.auth import Access, Grant
from repshare.relay.tasks import Tasks
from repshare.results.plots import draw_partition
from repshare.results.records import Folder, Journal, Line
from repshare.sharing.task import Task
from repshare.spaces import choose
from repshare.spaces.agreement import Common
from repshare.stores import open_database

RELAY, NOBODY, OPERATOR = "relay", "alone", "operator"  # processes besides the parties
METHODS = (*ALONE, "RS", "CS")
COMMON_PACE = 4  # a round of CS lasts as long as this many of a network: there are fewer
WATCH_SECONDS = 0.2  # between two looks at the progress
START_SECONDS = 60.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class PartyProgress(NamedTuple):
    """The rounds of one party so far."""

    name: str
    network: str
    classes: list[int]
    lines: dict[str, list[Line]]  # by method
    joined: int  # rounds of CS before mallory came
    removed: int  # rounds of CS before mallory's part was taken out


class Scene(NamedTuple):
    """Everyone's rounds so far, and what is known of mallory."""

    act: str
    parties: list[PartyProgress]
    strangeness: float | None  # of mallory, once the relay marks it
    noticed: float | None  # seconds after mallory was let in
    removed: bool


class Collaboration:
    """A relay and its clients, as processes."""

    def __init__(self, options: DemoOptions, processes: DemoProcesses) -> None:
        """Start the relay; `watch` starts the clients."""
        self.options, self.folder, self._processes = options, processes.folder, processes
        self.tasks = {method: f"{options.dataset}-{method}" for method in ("RS", "CS")}
        self._splits = load(options.dataset, progress=True)
        self._parts = deal_samples(options, self._splits.train.labels, self._splits.classes)
        self._data = self.folder / "data.npz"
        save_data(self._splits, self._data)
        self._token = self._make_tokens()
        self._database = ["--db", str(self.folder / "relay.db")]
        arguments = [*self._database, "--port", "0"]
        processes.start(RELAY, ["-m", "repshare", "relay", "serve", *arguments])
        self.url = self._wait_for_relay()
        self._joined, self._removed = dict[str, int](), dict[str, int]()  # rounds of CS before that, by party
        self._strangeness: float | None = None
        self._noticed: float | None = None

    def page(self, method: str) -> str:
        """Return the address of the page of one of the two tasks."""
        return f"{self.url}/#token={self._token}&task={self.tasks[method]}"

    def watch(self) -> Iterator[Scene]:
        """Start the clients, act by act, and yield everyone's progress. Raises WorkerFailed if one fails."""
        processes = self._processes
        (self.folder / "gates").mkdir()
        networks = [*self._start_parties("RS"), self._start_alone()]
        yield from self._act("starting processes …", lambda: self._ready(networks))
        self._open("RS")
        common = self._start_parties("CS")
        mallory = self._start_mallory()
        act = "act 1: each alone, and by RS"
        yield from self._act(act, lambda: not any(map(processes.running, networks)))
        yield from self._act(act, lambda: self._ready([*common, mallory]))
        self._open("CS")
        yield from self._act("act 2: together by CS", lambda: self._have_done(1, {}))
        self._joined, let_in, act = self._rounds(), time.monotonic(), "act 3: mallory comes with noise"
        self._open(MALLORY)
        yield from self._act(act, lambda: self._find_mallory(let_in))
        there = self._rounds()
        yield from self._act(act, lambda: self._find_mallory(let_in) and self._have_done(self._patience, there))
        if self._strangeness is not None:
            processes.start(OPERATOR, ["-m", "repshare", *self.removal, *self._database])
            yield from self._act("act 4: the operator removes mallory", lambda: not processes.running(OPERATOR))
            self._removed = self._rounds()
            yield from self._act("act 4: without mallory", lambda: self._have_done(1, self._removed))
        yield self._look("the end")

    @property
    def removal(self) -> list[str]:
        """The command with which the operator removes mallory."""
        return ["relay", "revoke", MALLORY, "--task", self.tasks["CS"], "--withdraw"]

    def save_run(self) -> None:
        """Write what happened as a run of four methods, for `repshare report`."""
        options, (train, _, classes) = self.options, self._splits
        setting = {**asdict(options), "model": [network_of(place) for place in range(options.clients)]}
        described = {"methods": list(METHODS), "seeds": [options.seed], "setting": setting}
        folder = Folder(self.folder / "run", described, resume=True)
        draw_partition(histogram(train.labels, self._parts, classes), folder.path / "partition.png", options.dataset)
        parties = self._look("").parties
        for method in METHODS:
            lines = [line for party in parties for line in party.lines[method]]
            folder.records.add({**line, "method": method, "seed": options.seed} for line in lines)
            folder.finish(method, options.seed)

    def _act(self, name: str, is_over: Callable[[], bool]) -> Iterator[Scene]:
        """Yield the progress until an act is over."""
        while not is_over():
            yield self._look(name)
            self._check_processes()
            time.sleep(WATCH_SECONDS)

    def _check_processes(self) -> None:
        for name in self._processes.names:
            if not self._processes.running(name) and name == RELAY:
                raise WorkerFailed("the relay ended before the clients did")

    def _look(self, act: str) -> Scene:
        """Return everyone's progress, from the records that the clients keep."""
        alone = Journal(self.folder / "alone.jsonl").read()
        parties = []
        for place, name in enumerate(self.options.names):
            lines = {
                method: [line for line in alone if (line["method"], line["client"]) == (method, name)]
                for method in ALONE
            }
            lines |= {
                method: Journal(self.folder / f"{name}-{method}" / "records.jsonl").read() for method in self.tasks
            }
            classes = classes_of(self.options, place, self._splits.classes)
            joined, removed = (at.get(name, len(lines["CS"])) for at in (self._joined, self._removed))
            parties.append(PartyProgress(name, network_of(place), classes, lines, joined, removed))
        return Scene(act, parties, self._strangeness, self._noticed, bool(self._removed))

    def _rounds(self) -> dict[str, int]:
        """Return how many rounds of CS each party has done."""
        return {party.name: len(party.lines["CS"]) for party in self._look("").parties}

    def _have_done(self, acts: int, since: Mapping[str, int]) -> bool:
        """Return whether each party has done the rounds of CS of so many acts, after these."""
        return all(
            done - since.get(name, 0) >= acts * self.options.common_rounds for name, done in self._rounds().items()
        )

    @property
    def _patience(self) -> int:
        """The acts for which mallory may stay: another one, as long as the relay does not mark it."""
        return 2 if self._strangeness is None else 1

    def _find_mallory(self, let_in: float) -> bool:
        """Return whether mallory has published, and note what the relay's status says of it."""
        address = f"{self.url}/v1/tasks/{self.tasks['CS']}/status"
        try:
            answer = httpx2.get(address, headers={"Authorization": f"Bearer {self._token}"}, timeout=START_SECONDS)
        except httpx2.HTTPError:  # if the relay has ended, that is said next
            return False
        found = {shown["name"]: shown for shown in answer.raise_for_status().json()["shown"]}.get(MALLORY)
        if found is not None and found["outlier"] and self._strangeness is None:
            self._strangeness, self._noticed = found["strangeness"], time.monotonic() - let_in
        return found is not None

    def _make_tokens(self) -> str:
        """Create the tasks, and tokens for each client, in files of their own; return a viewer's token."""
        (train, _, classes), names = self._splits, self.options.names
        space = choose((), torch.zeros(1, *train.images.shape[1:]), 0)
        agreed = Common(space, class_names=tuple(map(str, range(classes))))
        made = {"RS": Task(classes, DIMENSION), "CS": agreed.task(classes)}
        with closing(open_database(str(self.folder / "relay.db"))) as database:
            access = Access(database)
            for method, task in self.tasks.items():
                Tasks(database).create(task, made[method])
                for name in [*names, *([MALLORY] if method == "CS" else [])]:
                    token = access.invite(Grant("client", name, task))
                    write_atomically(self.folder / f"{name}-{method}.token", f"{token}\n", private=True)
            return access.invite(Grant("viewer", "viewer", None))

    def _start_parties(self, method: str) -> list[str]:
        """Start each party's `repshare join` of one task; return the names of the processes."""
        started, options = [], self.options
        rounds = ["--rounds", str(options.rounds)] if method == "RS" else []
        pace = options.pace * (1 if method == "RS" else COMMON_PACE)
        for place, name in enumerate(options.names):
            started.append(f"{name}-{method}")
            self._join(
                started[-1],
                "party",
                self._place(place, started[-1], method),
                [*rounds, "--pace", str(pace), "--report"],
            )
        return started

    def _start_mallory(self) -> str:
        name = f"{MALLORY}-CS"
        pace = ["--pace", str(self.options.pace * COMMON_PACE)]
        self._join(name, MALLORY, self._place(0, name, MALLORY), pace)
        return name

    def _join(self, name: str, function: str, variables: dict[str, str], work: list[str]) -> None:
        access = [
            "--party",
            f"{Path(__file__).with_name('party.py')}:{function}",
            "--token-file",
            str(self.folder / f"{name}.token"),
        ]
        work = ["--state", str(self.folder / name), *work, "--seed", str(self.options.seed), "--threads", "1"]
        self._processes.start(name, ["-m", "repshare", "join", self.url, *access, *work], {**ONE_THREAD, **variables})

    def _start_alone(self) -> str:
        variables = {**ONE_THREAD, **self._place(0, NOBODY, "RS")}
        self._processes.start(NOBODY, ["-m", "repshare.cli.demo.party", str(self.folder / "alone.jsonl")], variables)
        return NOBODY

    def _place(self, number: int, process: str, act: str) -> dict[str, str]:
        """Return the environment of a process that says when it is ready, and then waits for an act."""
        gates = self.folder / "gates"
        place = Place(self.options, number, str(self._data), str(gates / process), str(gates / f"open {act}"))
        return place.as_environment()

    def _ready(self, names: list[str]) -> bool:
        return all((self.folder / "gates" / name).exists() for name in names)

    def _open(self, act: str) -> None:
        (self.folder / "gates" / f"open {act}").touch()

    def _wait_for_relay(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while self._processes.running(RELAY) and time.monotonic() < deadline:
            for line in self._processes.log(RELAY).read_text().splitlines(keepends=True):
                if line.startswith("{") and line.endswith("\n") and "url" in (said := json.loads(line)):
                    return str(said["url"])
            time.sleep(0.05)
        raise WorkerFailed(f"the relay did not begin to listen within {START_SECONDS:.0f} s")
