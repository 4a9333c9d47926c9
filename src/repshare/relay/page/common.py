"""A task with a common classifier as the page shows it: its space and classes, and what the total is made of."""

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from repshare.board.state import BoardMember, BoardState, read_releases
from repshare.errors import ConfigError, Damaged
from repshare.sharing.columns import as_text, read_columns
from repshare.sharing.task import Task
from repshare.stores import Store, Transaction

MOST_CLASSES = 100  # whose samples are counted one by one
MOST_COLUMNS = 200  # of a table, that are shown
LONGEST = 200  # characters of a name
LARGEST = 1e300
AT_ONCE_BYTES = 4_000_000  # of releases that are read in one transaction, so that no request waits long for the store


def describe_common(task: Task) -> dict[str, Any] | None:
    """Return what the page says of a task's space; None where each client has its own.

    The description is an admin's text: what it lacks, or has of another kind, is None.
    """
    if task.space is None:
        return None
    try:
        told = json.loads(task.description or "")
    except (ValueError, RecursionError):
        told = None
    told = told if isinstance(told, dict) else {}
    classes, seed = task.classes, told.get("seed")
    inputs, low, high = (_numbers(told.get(name)) for name in ("inputs", "low", "high"))  # the last two by column
    names = told.get("class_names")
    if not isinstance(names, list) or len(names) != classes or not all(isinstance(name, str) for name in names):
        names = []
    return {
        "fingerprint": task.space,
        "dimension": task.dimension,
        "space": _text(told.get("space")),
        "seed": str(seed) if type(seed) is int else None,  # as text: it may be above 2⁵³
        "sha256": _text(told.get("sha256")),
        "loss": _text(told.get("loss")),
        "class_names": [name[:LONGEST] for name in names],
        "columns": _columns(told.get("columns")),
        "inputs": inputs[:2] if len(inputs) > 1 else [min(low), max(high)] if low and high else None,
    }


def _columns(told: Any) -> list[dict[str, str | None]]:
    """Return the first columns of a table, in words."""
    try:
        columns = read_columns(told) if isinstance(told, list) else ()
    except ConfigError:
        return []
    missing = [None if each.missing is None else as_text(each.missing) for each in columns[:MOST_COLUMNS]]
    return [
        {"name": _text(each.name), "values": _text(each.values), "missing": _text(value)}
        for each, value in zip(columns, missing, strict=False)
    ]


def _text(value: Any) -> str | None:
    return value[:LONGEST] if isinstance(value, str) else None


def _numbers(value: Any) -> list[float]:
    """Return the numbers of a list, none if it has anything else: NaN say, which is no JSON."""
    fine = isinstance(value, list) and all(type(each) in (int, float) and abs(each) < LARGEST for each in value)
    return [float(each) for each in value] if fine else []


def read_parts(store: Store, task: Task, members: Sequence[BoardMember]) -> dict[str, list[int]]:
    """Return how many samples of each class are in each member's part; of none, where there are many classes."""
    found, part, size = dict[str, list[int]](), list[str](), 0
    classes = task.classes

    def work(state: Transaction) -> None:
        for name in part:
            with suppress(Damaged):  # which its owner is told of, and `relay check` names
                for release in read_releases(state, [name]):  # none, if it has left meanwhile
                    found[name] = task.layout.count_classes(release.means, classes, task.dimension)

    for number, member in enumerate(members if classes <= MOST_CLASSES else (), start=1):
        part.append(member.name)
        size += member.bytes
        if size > AT_ONCE_BYTES or number == len(members):
            store.read(work)
            part, size = [], 0
    return found


def read_total(store: Store, task: Task) -> dict[str, Any]:
    """Return how many samples are in the total, and how many of each class."""
    classes = task.classes
    totals = store.read(lambda state: BoardState(task, state).totals)
    means = totals.means(range(task.rows)) if totals.clients.all() else None
    counts = task.layout.count_classes(means, classes, task.dimension) if means else []
    samples = int(totals.samples[0]) if task.layout.counts_samples else sum(counts)
    return {"samples": samples, "classes": counts if classes <= MOST_CLASSES else []}
