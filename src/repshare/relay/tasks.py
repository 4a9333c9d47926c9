"""The tasks of a relay: each with its description in the registry, and its board in a store of its own."""

import json
import math
import secrets
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import NamedTuple

from repshare import wire
from repshare.board import Board
from repshare.errors import ConfigError, Malformed, Refused
from repshare.meetings import Meetings
from repshare.relay.access import Access
from repshare.relay.names import check_name
from repshare.stores import Database, Store, Transaction
from repshare.task import Task

REMEMBERED_SECONDS = 1.0  # how long a task that another process deleted may still be served
MOST_CLASSES = 10_000  # some work is done class by class
MOST_NUMBERS = 2**24  # C · d' of a task: 64 MB of class means
LONGEST_AGE_SECONDS = 1e9  # thirty years; beyond some point a clock's fractions no longer add up


class Entry(NamedTuple):
    """A task as the registry has it. A task that was deleted and created again has another identity."""

    name: str
    task: Task
    identity: str
    created: float  # seconds since 1970


@dataclass
class Open:
    """A task in use."""

    entry: Entry
    board: Board
    meetings: Meetings
    notes: Store  # what the page shows besides the board
    until: float  # when to look at the registry again


class Tasks:
    """The tasks in a database. Every relay and command on the same database sees the same ones."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock = database, clock
        self._registry = database.store("tasks")
        self._open: dict[str, Open] = {}

    def create(self, name: str, task: Task) -> bool:
        """Create a task; False if there is one with the same values already. Raises Refused if with others."""
        check_name(name)
        if task.classes > MOST_CLASSES or task.classes * task.dimension > MOST_NUMBERS:
            numbers = f"{task.classes} classes of {task.dimension} numbers"
            most = f"at most {MOST_CLASSES:,} classes, and {MOST_NUMBERS:,} numbers in all"
            raise ConfigError(f"{numbers} are too much for a relay: {most}")
        if task.max_age is not None and task.max_age > LONGEST_AGE_SECONDS:
            raise ConfigError(f"max_age must be at most {LONGEST_AGE_SECONDS:g} seconds, not {task.max_age:g}")
        made = Entry(name, task, secrets.token_hex(8), time.time())

        def work(state: Transaction) -> bool:
            (before,) = state.get([name])
            if before is None:
                state.set({name: _encode(made)})
                return True
            if (there := _decode(name, before).task) != task:
                raise Refused(f"task {name} exists with other values: {differences(there, task)}")
            return False

        return self._registry.transact(work)

    def recall(self, name: str) -> Open | None:
        """What `find` said a moment ago, without asking the database; None if it must be asked."""
        there = self._open.get(name)
        return there if there and self._clock() <= there.until else None

    def find(self, name: str) -> Open | None:
        """The task of this name and its board; None if there is none."""
        there = self._open.get(name)  # before the registry is read: what it no longer has then is gone for good
        (kept,) = self._registry.read(lambda state: state.get([name]))
        entry = None if kept is None else _decode(name, kept)
        if there is not None and (entry is None or entry.identity != there.entry.identity):
            self._clear(there.entry)  # of what came in here after it was deleted, maybe elsewhere
            self._open.pop(name, None)
            there = None
        if entry is None:
            return None
        if there is None:
            there = self._open[name] = Open(
                entry, Board(entry.task, self._store(entry)), Meetings(self._meetings(entry)), self._notes(entry), 0.0
            )
        there.until = self._clock() + REMEMBERED_SECONDS
        return there

    def get(self, name: str) -> Open:
        """The task of this name and its board. Raises ConfigError if there is none."""
        there = self.find(name)
        if there is None:
            raise ConfigError(f"there is no task {name[:80]!r}")
        return there

    def entries(self) -> list[Entry]:
        """All tasks, by name."""
        return [_decode(name, kept) for name, kept in sorted(self._registry.items().items())]

    def delete(self, name: str) -> None:
        """Delete a task with all that was published in it, and end its tokens. Cut off, it can be done again."""
        there = self.get(name)
        Access(self._database).revoke_all(name)
        self._clear(there.entry)
        self._registry.transact(lambda state: state.delete([name]))
        there.until = -math.inf
        self._clear(there.entry)  # of what came in meanwhile

    def export(self, name: str) -> bytes:
        """A task and its board as bytes, for `import_task`."""
        there = self.get(name)
        description = {"name": name, **asdict(there.entry.task)}
        return wire.encode_items({"task": json.dumps(description).encode(), "board": there.board.save()})

    def import_task(self, exported: bytes, name: str | None = None) -> str:
        """Create a task from what `export` gave, under its old name or another; the name."""
        items = wire.decode_items(exported)
        try:
            described = json.loads(items["task"])
            old_name = described.pop("name")
            name, task = name or str(old_name), Task(**described)
        except (KeyError, TypeError, ValueError) as error:
            raise Malformed(f"not an exported task: {error}") from error
        if not self.create(name, task):
            raise Refused(f"task {name} exists: delete it first, or import under another --name")
        self.get(name).board.load(items["board"])
        return name

    def _clear(self, entry: Entry) -> None:
        for store in (self._store(entry), self._meetings(entry), self._notes(entry)):
            store.clear()

    def _store(self, entry: Entry) -> Store:
        # The identity is part of the name: a relay that has not noticed yet that a task was deleted and created
        # again writes into the old one.
        return self._database.store(f"task:{entry.name}:{entry.identity}")

    def _meetings(self, entry: Entry) -> Store:
        return self._database.store(f"meetings:{entry.name}:{entry.identity}")

    def _notes(self, entry: Entry) -> Store:
        # Apart from the board: writing one must never make a change to the other begin again.
        return self._database.store(f"notes:{entry.name}:{entry.identity}")


def differences(there: Task, wanted: Task) -> str:
    """In which values two tasks differ, for people."""
    here, new = asdict(there), asdict(wanted)
    return ", ".join(f"{key} {here[key]} there, {new[key]} wanted" for key in here if here[key] != new[key])


def _encode(entry: Entry) -> bytes:
    return json.dumps({"task": asdict(entry.task), "identity": entry.identity, "created": entry.created}).encode()


def _decode(name: str, kept: bytes) -> Entry:
    values = json.loads(kept)
    try:
        return Entry(name, Task(**values["task"]), values["identity"], values["created"])
    except TypeError as error:  # a field that this version does not know
        raise ConfigError(f"task {name} was created by another version of repshare: {error}") from error
