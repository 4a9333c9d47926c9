"""The tasks of a relay: each with its description in the registry, and its board in a store of its own.

In the registry, under a task's name: its description and identity.
"""

import json
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Any, NamedTuple

from repshare.board import Board
from repshare.errors import ConfigError, Damaged, Refused
from repshare.relay.auth import Access, check_name, is_name
from repshare.secure import Meetings
from repshare.sharing.task import Task, check_class_names, scale_weights, usual_norm_bound
from repshare.stores import Database, Store, Transaction, decoded, find_faults

KINDS = ("task", "meetings", "activity", "notes")  # of a task's stores; notes: a map, up to commit 15ddcbb
MOST_CLASSES = 10_000  # some work is done class by class
MOST_NUMBERS = 2**24  # C · d' of a task: 64 MB of class means
FEWEST_MEMBERS = 3  # for a masked group: of two members, each knows the other's part
LONGEST_AGE_SECONDS = 1e9  # thirty years; beyond some point a clock's fractions no longer add up


class TaskEntry(NamedTuple):
    """A task as the registry has it. A task that was deleted and created again has another identity."""

    name: str
    task: Task
    identity: str
    created: float  # seconds since 1970
    secret: str  # seeds what is drawn for clients: nobody can predict it


class OpenTask(NamedTuple):
    """A task in use."""

    entry: TaskEntry
    board: Board
    meetings: Meetings
    activity: Store  # of its clients, for the page

    def left_out(self) -> dict[str, str]:
        """The clients that are left out of the total, or have left themselves out of a masked group, and why."""
        return {each.name: each.reason for each in self.board.named()} | self.meetings.faults()


class Tasks:
    """The tasks in a database. Every relay and command on the same database sees the same ones."""

    def __init__(self, database: Database) -> None:
        self._database, self._registry = database, database.store("tasks")
        self._open: dict[str, OpenTask] = {}

    def create(self, name: str, task: Task) -> bool:
        """Create a task; False if there is one with the same values already. Raises Refused if with others."""
        check_name(name)
        _check_new(task)
        made = _new(name, task)

        def work(state: Transaction) -> bool:
            before = _read(state, name)
            if before is None:
                state.set({name: _encode(made)})
                return True
            if before.task != task:
                raise Refused(f"task {name} exists with other values: {differences(before.task, task)}")
            return False

        return self._registry.transact(work)

    def find(self, name: str) -> OpenTask | None:
        """The task of this name and its board; None if there is none."""
        entry = self._registry.read(lambda state: _read(state, name))
        if entry is None:
            self._open.pop(name, None)
            return None
        opened = self._open.get(name)
        if opened is None or opened.entry.identity != entry.identity:
            board = Board(entry.task, self._store("task", entry), key=entry.secret.encode())
            fewest = max(FEWEST_MEMBERS, entry.task.group_members)
            meetings, activity = Meetings(self._store("meetings", entry), fewest=fewest), self._store("activity", entry)
            opened = self._open[name] = OpenTask(entry, board, meetings, activity)
        return opened

    def get(self, name: str) -> OpenTask:
        """The task of this name and its board. Raises ConfigError if there is none."""
        opened = self.find(name)
        if opened is None:
            raise ConfigError(f"there is no task {name[:80]!r}")
        return opened

    def entries(self) -> list[TaskEntry]:
        """All tasks that can be read, by name; `find_faults` names the others."""
        kept = self._registry.read(lambda state: dict(state.scan("")))
        found = (_find(name, kept[name]) for name in sorted(kept) if is_name(name))  # not copies by earlier versions
        return [entry for entry in found if entry]

    def find_faults(self) -> dict[str, str]:
        """The descriptions that cannot be read: key -> reason."""

        def decode(name: str, kept: bytes) -> None:
            try:
                _decode(name, kept)
            except ConfigError as error:
                raise Damaged(name, str(error)) from error

        return self._registry.read(lambda state: find_faults(state, decode))

    def delete(self, name: str) -> None:
        """Delete a task, its releases and its tokens. Safe to repeat after an interruption."""
        entry = self.get(name).entry
        Access(self._database).revoke_all(name)
        for kind in KINDS:
            self._store(kind, entry).clear()
        self._registry.transact(lambda state: state.delete([name]))

    def _store(self, kind: str, entry: TaskEntry) -> Store:
        """A store of a task. A task that is deleted and created again has others."""
        return self._database.store(f"{kind}:{entry.name}:{entry.identity}")


def make_task(fields: Mapping[str, Any]) -> Task:
    """A task with these fields; without a norm bound, with the usual one."""
    bound = fields["norm_bound"] or usual_norm_bound(fields["dimension"], fields.get("format", "features"))
    compared = fields.get("compared")
    if compared is None:
        compared = fields.get("format") == "parts" and not fields.get("group_members")
    return Task(**{**fields, "norm_bound": bound, "compared": compared})


def differences(there: Task, wanted: Task) -> str:
    """The values in which two tasks differ, for people."""
    here, new = asdict(there), asdict(wanted)
    return ", ".join(f"{key} {here[key]} there, {new[key]} wanted" for key in here if here[key] != new[key])


def _check_new(task: Task) -> None:
    if task.classes > MOST_CLASSES or task.rows * task.columns > MOST_NUMBERS:
        numbers = f"{task.classes} classes of {task.dimension} numbers"
        most = f"at most {MOST_CLASSES:,} classes, and {MOST_NUMBERS:,} numbers in all"
        raise ConfigError(f"{numbers} are too much for a relay: {most}")
    if task.max_age is not None and task.max_age > LONGEST_AGE_SECONDS:
        raise ConfigError(f"max_age must be at most {LONGEST_AGE_SECONDS:g} seconds, not {task.max_age:g}")
    if 0 < task.group_members < FEWEST_MEMBERS:
        raise ConfigError(f"group_members must be 0 or at least {FEWEST_MEMBERS}, not {task.group_members}")
    with suppress(ValueError, RecursionError):  # a client that joins refuses a description that is no JSON
        told = json.loads(task.description or "{}")
        told = told if isinstance(told, dict) else {}
        check_class_names(map(str, told.get("class_names") or ()))
        scale_weights(told.get("class_weights"), task.classes)


def _new(name: str, task: Task) -> TaskEntry:
    return TaskEntry(name, task, secrets.token_hex(8), time.time(), secrets.token_hex(16))


def _encode(entry: TaskEntry) -> bytes:
    return json.dumps({**entry._asdict(), "task": asdict(entry.task)}).encode()


def _read(state: Transaction, name: str) -> TaskEntry | None:
    """A task as the registry has it; None if it has none."""
    (kept,) = state.get([name])
    return None if kept is None else _decode(name, kept)


def _find(name: str, kept: bytes) -> TaskEntry | None:
    """A task; None if it cannot be read."""
    with suppress(Damaged, ConfigError):
        return _decode(name, kept)
    return None


def _decode(name: str, kept: bytes) -> TaskEntry:
    def read() -> tuple[dict[str, Any], str, float, str]:
        values = json.loads(kept)
        identity = str(values["identity"])
        return dict(values["task"]), identity, float(values["created"]), str(values.get("secret", identity))

    described, identity, created, secret = decoded(name, read)
    if not described.get("named_peers"):  # none could be named; with others, 15ddcbb is the last commit that reads it
        described.pop("named_peers", None)
    if described.pop("aggregation", "mean") != "mean":
        raise ConfigError(f"task {name} combines class means by medians, as 38a6b14d is the last commit to do")
    try:
        return TaskEntry(name, Task(**described), identity, created, secret)
    except (TypeError, ConfigError) as error:
        raise ConfigError(
            f"task {name} was created by another version of repshare ({error}): create one of another name, or use "
            "commit 15ddcbb, the last that reads tasks of earlier versions"
        ) from error
