"""The demo itself: a relay with tokens, clients that join it, the same clients alone, and how far they are."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.cli.demo.party import DIMENSION, Share, choose, network_of
from repshare.cli.demo.processes import DemoProcesses
from repshare.data import histogram, load
from repshare.errors import ConfigError, WorkerFailed
from repshare.relay.auth import Access, Grant
from repshare.relay.tasks import Tasks
from repshare.results.plots import draw_partition
from repshare.results.records import Folder, Journal, Line
from repshare.sharing.task import Task
from repshare.stores import open_database

NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "mallory", "niaj")
RELAY, ALONE = "relay", "alone"
LOOK_SECONDS = 0.2  # between looks at how far they are
START_SECONDS = 60.0
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@dataclass(frozen=True)
class Cast:
    """The clients of the demo, and their settings."""

    dataset: str = "digits"
    clients: int = 4
    samples: int = 50
    rounds: int = 60
    seed: int = 0
    pace: float = 0.2

    def __post_init__(self) -> None:
        for name, least, most in (("clients", 2, len(NAMES)), ("samples", 1, 10_000), ("rounds", 1, 100_000)):
            if not least <= getattr(self, name) <= most:
                raise ConfigError(f"{name} must be from {least} to {most}, not {getattr(self, name)}")
        if not 0 <= self.pace <= 3600:
            raise ConfigError(f"pace must be from 0 to 3600 seconds, not {self.pace}")

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' names."""
        return NAMES[: self.clients]

    def share(self, place: int, door: Path | None = None) -> Share:
        """Return one client's part."""
        waiting = {} if door is None else {"door": str(door), "parties": self.clients}
        return Share(self.dataset, place, self.samples, self.seed, **waiting)  # type: ignore[arg-type]


class Rounds(NamedTuple):
    """The progress of one client."""

    name: str
    model: str
    alone: list[Line]
    together: list[Line]


class Scene:
    """A relay and its clients, under way."""

    def __init__(self, cast: Cast, folder: Path, processes: DemoProcesses) -> None:
        """Start the relay; `begin` starts the clients."""
        self.cast, self.folder, self._processes = cast, folder, processes
        self._alone = Journal(folder / "alone.jsonl")
        self._own = {name: Journal(folder / name / "records.jsonl") for name in cast.names}
        classes = _check_data(cast)
        token = _make_tokens(cast, classes, folder)
        place = ("--db", str(folder / "relay.db"), "--port", "0", "--log-level", "info")
        processes.start(RELAY, ["-m", "repshare", "relay", "serve", *place])
        self.url = self._wait_for_relay()
        self.page = f"{self.url}/#token={token}"

    def begin(self) -> None:
        """Start the clients, together and alone."""
        cast, door = self.cast, self.folder / "door"
        door.mkdir()
        for place, name in enumerate(cast.names):
            environment = {**ONE_THREAD, **cast.share(place, door).environment()}
            self._processes.start(name, ["-m", "repshare", *self._join(name)], environment)
        shares = {name: asdict(cast.share(place)) for place, name in enumerate(cast.names)}
        alone = [str(self._alone.path), str(cast.rounds), str(cast.pace), json.dumps(shares)]
        self._processes.start(ALONE, ["-m", "repshare.cli.demo.party", *alone], ONE_THREAD)

    def watch(self) -> Iterator[list[Rounds]]:
        """Yield everyone's progress until all are done. Raises WorkerFailed if one does not end well."""
        names = [*self.cast.names, ALONE]
        while True:
            going = [name for name in names if self._processes.running(name)]
            if not self._processes.running(RELAY):
                raise WorkerFailed("the relay ended before the clients did")
            yield self.look()
            if not going:
                return
            time.sleep(LOOK_SECONDS)

    def look(self) -> list[Rounds]:
        """Return everyone's progress, from the records that the clients keep."""
        alone = self._alone.read()
        return [
            Rounds(name, network_of(place), [line for line in alone if line["client"] == name], self._own[name].read())
            for place, name in enumerate(self.cast.names)
        ]

    def keep(self) -> None:
        """Write what happened as a run of two methods, for `repshare report`."""
        setting = {**asdict(self.cast), "model": [network_of(place) for place in range(self.cast.clients)]}
        described = {"methods": ["IL", "RS"], "seeds": [self.cast.seed], "setting": setting}
        folder = Folder(self.folder / "run", described, resume=True)
        draw_partition(_count(self.cast), folder.path / "partition.png", self.cast.dataset)
        rounds = self.look()
        for method, own in (("IL", [each.alone for each in rounds]), ("RS", [each.together for each in rounds])):
            folder.records.add({"method": method, "seed": self.cast.seed, **line} for lines in own for line in lines)
            folder.finish(method, self.cast.seed)

    def _join(self, name: str) -> list[str]:
        """Return the arguments of `repshare` with which this client joins."""
        party = Path(__file__).with_name("party.py")
        access = ["--task", f"{party}:party", "--token-file", str(self.folder / f"{name}.token")]
        work = ["--state", str(self.folder / name), "--rounds", str(self.cast.rounds), "--pace", str(self.cast.pace)]
        return ["join", self.url, *access, *work, "--seed", str(self.cast.seed), "--threads", "1", "--report"]

    def _wait_for_relay(self) -> str:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            going = self._processes.running(RELAY)
            for line in self._processes.log(RELAY).read_text().splitlines(keepends=True):
                if line.startswith("{") and line.endswith("\n") and "url" in (said := json.loads(line)):
                    return str(said["url"])
            if not going:
                break
            time.sleep(0.05)
        raise WorkerFailed(f"the relay did not begin to listen within {START_SECONDS:.0f} s")


def _count(cast: Cast) -> NDArray[np.int64]:
    """Count samples by client and class."""
    train, _, classes = load(cast.dataset)
    parts = [choose(cast.share(place), len(train.labels)) for place in range(cast.clients)]
    return histogram(train.labels, parts, classes)


def _check_data(cast: Cast) -> int:
    """Load the data before anyone needs it; return the number of classes."""
    splits = load(cast.dataset, progress=True)
    if cast.clients * cast.samples > len(splits.train.labels):
        wanted = f"{cast.clients} clients with {cast.samples} samples each"
        raise ConfigError(f"{wanted} are too many for {cast.dataset}, which has {len(splits.train.labels):,}")
    return splits.classes


def _make_tokens(cast: Cast, classes: int, folder: Path) -> str:
    """Create the task, and a token for each client, in its own file; return a viewer's token."""
    database = open_database(str(folder / "relay.db"))
    try:
        Tasks(database).create(cast.dataset, Task(classes, DIMENSION))
        access = Access(database)
        for name in cast.names:
            path = folder / f"{name}.token"
            path.touch(mode=0o600)
            path.write_text(access.invite(Grant("client", name, cast.dataset)) + "\n")
        return access.invite(Grant("viewer", "viewer", cast.dataset))
    finally:
        database.close()
