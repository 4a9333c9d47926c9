"""A task as the page shows it: one JSON document of bounded size, made now and then and handed to all who look."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter
from statistics import median, median_low
from typing import Any, TypeVar, cast

import anyio.to_thread

from repshare.board import Board
from repshare.board.state import BoardMember, BoardState, read_releases
from repshare.errors import ConfigError, Damaged
from repshare.relay.page.activity import Activity, read_reports
from repshare.sharing.columns import read_columns
from repshare.sharing.task import Task
from repshare.stores import Store, Transaction

SHOWN = 100  # clients in the table
MOST_CLASSES = 100  # classes with a count of their own
LONGEST_NAME = 200  # characters of a class's or a column's name
MOST_COLUMNS = 200  # columns shown
REFUSALS = 50
SHARE = 40  # a document that cost a second of the processor is served for this many seconds
AT_ONCE_BYTES = 4_000_000  # of releases that are read in one transaction, so that no request waits long for the store
STRANGE = 4.0  # times the usual error on own samples: an outlier
FEWEST = 3  # clients below which none is called one
USUAL_ERROR = 0.1  # the least that counts as usual
FIGURES = ("test_accuracy", "train_accuracy", "held_out", "held_out_alone", "gap", "in_use", "model", "privacy")

Made = TypeVar("Made")


class SharedDocuments:
    """Documents made at most now and then, and one at a time, however many look."""

    def __init__(self, fresh_seconds: float = 0.0) -> None:
        """`fresh_seconds`: for how long any of them is served, however little it cost."""
        self._fresh_seconds = fresh_seconds
        self._made: dict[tuple[str, str], tuple[float, Any]] = {}  # until when each may be used
        self._alone = asyncio.Lock()

    async def get(self, key: tuple[str, str], make: Callable[[], Made]) -> Made:
        """The document, made again if it is old. In a thread: clients are served in the meantime."""
        until, kept = self._made.get(key, (0.0, None))
        if time.monotonic() < until:
            return cast(Made, kept)
        async with self._alone:
            until, kept = self._made.get(key, (0.0, None))
            if time.monotonic() < until:  # another made it while this one waited
                return cast(Made, kept)
            made, cost = await anyio.to_thread.run_sync(_timed, make)
            now = time.monotonic()
            self._made = {other: one for other, one in self._made.items() if one[0] > now}
            self._made[key] = (now + max(self._fresh_seconds, SHARE * cost), made)
            return made


def _timed(make: Callable[[], Made]) -> tuple[Made, float]:
    begun = time.thread_time()
    return make(), time.thread_time() - begun


def make_view(
    name: str,
    board: Board,
    store: Store,
    seen: Mapping[str, Activity],
    refusals: Iterable[Mapping[str, Any]],
    away_seconds: float,
    own: str | None = None,
) -> bytes:
    """The document; for the client `own`, with nothing about other clients but their number.

    `store`: of the clients' reports. `seen`: those that this relay has seen.
    """
    status, task, now = board.status(SHOWN if own is None else 0), board.task, time.time()
    found = board.find(own) if own else None
    members = sorted(status.shown, key=attrgetter("name")) if own is None else [found] if found else []
    reports = read_reports(store, [member.name for member in members])
    named = [each for each in board.named() if own in (None, each.name)]
    parts, refused = _read_parts(board, members), {each.name: each.reason for each in named}
    strangeness = {} if own else _compare({name: error for name, (_, error) in parts.items() if error is not None})
    shown = [
        {
            **_describe_member(member, seen.get(member.name), reports[member.name], now, away_seconds),
            "strangeness": strangeness.get(member.name),
            "outlier": strangeness.get(member.name, 0.0) > STRANGE,
            "refused": refused.get(member.name),
            "samples": parts[member.name][0] if member.name in parts else [],
            "samples_total": _count_all(task, member),
        }
        for member in members
    ]
    counted = [each for name, each in seen.items() if own in (None, name)]
    document = {
        "name": name,
        "own": own,
        **{field: getattr(task, field) for field in ("classes", "dimension", "space")},
        "class_names": read_class_names(task),
        "columns": _describe_columns(task),
        "total": None if task.space is None else _read_total(board),
        "now": now,
        "version": status.version,
        "clients": status.clients,
        "round": median_low(member.round for member in members) if members else 0,  # no minority decides it
        "shown": shown,
        "left_out": [each._asdict() for each in named],
        "traffic": {"up": sum(each.up for each in counted), "down": sum(each.down for each in counted)},
        "refusals": [each for each in refusals if own in (None, each["client"])][-REFUSALS:][::-1],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _describe_member(
    member: BoardMember, seen: Activity | None, report: Mapping[str, Any], now: float, away_seconds: float
) -> dict[str, Any]:
    last = min([member.published, *([seen.last] if seen else [])], key=lambda date: abs(now - date))
    return {
        "name": member.name,
        "round": member.round,
        "published": member.published,
        "seen": last,
        "online": abs(now - last) <= away_seconds,  # a date in the future is stale, too: the clock was set back
        "bytes_up": seen.up if seen else 0,
        "bytes_down": seen.down if seen else 0,
        **{figure: report[figure] for figure in FIGURES if figure in report},
    }


def read_class_names(task: Task) -> list[str]:
    """The names of the classes by the task's description; none if it has none."""
    names = _read_description(task).get("class_names")
    if isinstance(names, list) and len(names) == task.classes and all(isinstance(each, str) for each in names):
        return [name[:LONGEST_NAME] for name in names]
    return []


def _describe_columns(task: Task) -> list[dict[str, str]]:
    """The first columns of the task's table in words; none if its description names none."""
    listed = _read_description(task).get("columns")
    with suppress(ConfigError):
        columns = read_columns(listed) if isinstance(listed, list) else ()
        return [
            {"name": each.name[:LONGEST_NAME], "values": str(each)[:LONGEST_NAME]} for each in columns[:MOST_COLUMNS]
        ]
    return []


def _read_description(task: Task) -> dict[str, Any]:
    """A task's description, which is an operator's text; nothing if it is none of ours."""
    with suppress(ValueError, RecursionError):
        described = json.loads(task.description or "{}")
        return described if isinstance(described, dict) else {}
    return {}


def _count_all(task: Task, member: BoardMember) -> int:
    """A client's number of samples. In a space, every row counts all of them."""
    counts = member.samples.values()
    return sum(counts) if task.space is None else max(counts, default=0)


def _read_parts(board: Board, members: Sequence[BoardMember]) -> dict[str, tuple[list[int], float | None]]:
    """Each client's samples of each class, and its error on its own; of none, where there are many classes."""
    task = board.task
    if task.classes > MOST_CLASSES:
        return {}
    if task.space is None:
        return {each.name: ([each.samples.get(label, 0) for label in range(task.classes)], None) for each in members}
    found, names, size = dict[str, tuple[list[int], float | None]](), list[str](), 0

    def work(state: Transaction) -> None:
        for name in names:
            with suppress(Damaged):  # its owner is told, and `relay check` names it
                for release in read_releases(state, [name]):  # none, if it has left meanwhile
                    rows, shape = release.means, (task.classes, task.dimension)
                    found[name] = task.layout.count_classes(rows, *shape), task.layout.own_error(rows, *shape)

    for number, member in enumerate(members, start=1):
        names.append(member.name)
        size += member.bytes
        if size > AT_ONCE_BYTES or number == len(members):
            board.store.read(work)
            names, size = [], 0
    return found


def _compare(errors: Mapping[str, float]) -> dict[str, float]:
    """How many times more often than usual each client is wrong about samples of its own, where enough tell."""
    if len(errors) < FEWEST:
        return {}
    usual = max(median(errors.values()), USUAL_ERROR)
    return {name: error / usual for name, error in errors.items()}


def _read_total(board: Board) -> dict[str, Any]:
    """The number of samples in the total, and of each class where there are not too many."""
    task = board.task
    totals = board.store.read(lambda state: BoardState(task, state).totals)
    means = totals.means(range(task.rows)) if totals.clients.all() else None
    counts = task.layout.count_classes(means, task.classes, task.dimension) if means else []
    samples = int(totals.samples[0]) if task.layout.counts_samples else sum(counts)
    return {"samples": samples, "classes": counts if task.classes <= MOST_CLASSES else []}
