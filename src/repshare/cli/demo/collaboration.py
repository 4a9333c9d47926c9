"""The demo itself: a relay with tokens, clients that join it, the same clients alone, and their progress."""

import json
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path
from typing import NamedTuple

from repshare.cli.demo.options import DemoOptions
from repshare.cli.demo.party import DIMENSION, choose_samples, environment, network_of
from repshare.cli.demo.processes import DemoProcesses
from repshare.data import histogram, load
from repshare.errors import ConfigError, WorkerFailed
from repshare.files import write_atomically
from repshare.relay.auth import Access, Grant
from repshare.relay.tasks import Tasks
from repshare.results.plots import draw_partition
from repshare.results.records import Folder, Journal, Line
from repshare.sharing.task import Task
from repshare.stores import open_database

RELAY, ALONE = "relay", "alone"
WATCH_SECONDS = 0.2  # between two looks at the progress
START_SECONDS = 60.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


class ClientProgress(NamedTuple):
    """The rounds of one client so far, alone and together with the others."""

    name: str
    model: str
    alone: list[Line]
    together: list[Line]


class Collaboration:
    """A relay and its clients, as processes."""

    def __init__(self, options: DemoOptions, processes: DemoProcesses) -> None:
        """Start the relay; `start_clients` starts the clients."""
        self.options, self.folder, self._processes = options, processes.folder, processes
        self._alone = Journal(self.folder / "alone.jsonl")
        self._splits = load(options.dataset, progress=True)
        available = len(self._splits.train.labels)
        if options.clients * options.samples > available:
            wanted = f"{options.clients} clients with {options.samples} samples each"
            raise ConfigError(f"{wanted} are too many for {options.dataset}, which has {available:,}")
        token = self._make_tokens()
        arguments = ["--db", str(self.folder / "relay.db"), "--port", "0", "--log-level", "info"]
        processes.start(RELAY, ["-m", "repshare", "relay", "serve", *arguments])
        self.url = self._wait_for_relay()
        self.page = f"{self.url}/#token={token}"

    def start_clients(self) -> None:
        """Start the clients, together and alone."""
        ready = self.folder / "ready"
        ready.mkdir()
        for place, name in enumerate(self.options.names):
            variables = {**ONE_THREAD, **environment(self.options, place, ready)}
            self._processes.start(name, ["-m", "repshare", *self._join(name)], variables)
        alone = [json.dumps(asdict(self.options)), str(self._alone.path)]
        self._processes.start(ALONE, ["-m", "repshare.cli.demo.party", *alone], ONE_THREAD)

    def watch(self) -> Iterator[list[ClientProgress]]:
        """Yield everyone's progress until all are done. Raises WorkerFailed if one does not end well."""
        names = [*self.options.names, ALONE]
        while True:
            running = [name for name in names if self._processes.running(name)]
            if not self._processes.running(RELAY):
                raise WorkerFailed("the relay ended before the clients did")
            yield self._read_progress()
            if not running:
                return
            time.sleep(WATCH_SECONDS)

    def save_run(self) -> None:
        """Write what happened as a run of two methods, for `repshare report`."""
        options, (train, _, classes) = self.options, self._splits
        places = range(options.clients)
        setting = {**asdict(options), "model": [network_of(place) for place in places]}
        described = {"methods": ["IL", "RS"], "seeds": [options.seed], "setting": setting}
        folder = Folder(self.folder / "run", described, resume=True)
        parts = [choose_samples(options, place, len(train.labels)) for place in places]
        draw_partition(histogram(train.labels, parts, classes), folder.path / "partition.png", options.dataset)
        progress = self._read_progress()
        for method, rounds in (("IL", [each.alone for each in progress]), ("RS", [each.together for each in progress])):
            folder.records.add({"method": method, "seed": options.seed, **line} for lines in rounds for line in lines)
            folder.finish(method, options.seed)

    def _read_progress(self) -> list[ClientProgress]:
        """Return everyone's progress, from the records that the clients keep."""
        alone = self._alone.read()
        return [
            ClientProgress(
                name,
                network_of(place),
                [line for line in alone if line["client"] == name],
                Journal(self.folder / name / "records.jsonl").read(),
            )
            for place, name in enumerate(self.options.names)
        ]

    def _make_tokens(self) -> str:
        """Create the task, and a token for each client, in its own file; return a viewer's token."""
        task = self.options.dataset
        with closing(open_database(str(self.folder / "relay.db"))) as database:
            Tasks(database).create(task, Task(self._splits.classes, DIMENSION))
            access = Access(database)
            for name in self.options.names:
                token = access.invite(Grant("client", name, task))
                write_atomically(self.folder / f"{name}.token", f"{token}\n", private=True)
            return access.invite(Grant("viewer", "viewer", task))

    def _join(self, name: str) -> list[str]:
        """Return the arguments of `repshare` with which this client joins."""
        options, party = self.options, Path(__file__).with_name("party.py")
        access = ["--task", f"{party}:party", "--token-file", str(self.folder / f"{name}.token")]
        work = ["--state", str(self.folder / name), "--rounds", str(options.rounds), "--pace", str(options.pace)]
        return ["join", self.url, *access, *work, "--seed", str(options.seed), "--threads", "1", "--report"]

    def _wait_for_relay(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while self._processes.running(RELAY) and time.monotonic() < deadline:
            for line in self._processes.log(RELAY).read_text().splitlines(keepends=True):
                if line.startswith("{") and line.endswith("\n") and "url" in (said := json.loads(line)):
                    return str(said["url"])
            time.sleep(0.05)
        raise WorkerFailed(f"the relay did not begin to listen within {START_SECONDS:.0f} s")
