"""What clients choose to tell besides releases: how a round went. A bounded history for each.

report/CLIENT   what it said last as JSON, a newline, and a float32 row for each round that is kept
"""

import json
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.stores import Store, Transaction

FIELDS = ("train_accuracy", "test_accuracy", "ce", "kd", "disc", "bound", "bytes_up", "bytes_down")
POINTS = 200  # of a client
MOST_ROUNDS = 2**24  # float32 counts no further
AT_ONCE = 100  # keys in one transaction, so that nobody waits long for the store

Floats = NDArray[np.float32]


class History(NamedTuple):
    """What a client has told."""

    said: dict[str, Any]  # the last report's text and sizes: model, model_bytes, privacy
    points: Floats  # (n, 1 + fields)  round and FIELDS, rounds ascending; NaN where nothing was said

    @property
    def rounds(self) -> Floats:
        """The rounds that are kept."""
        return self.points[:, 0]


def record(notes: Store, client: str, report: dict[str, Any]) -> None:
    """Add a client's report to its history."""
    key = _key(client)

    def work(state: Transaction) -> None:
        (kept,) = state.get([key])
        state.set({key: _encode(extend(_decode(kept), report))})

    notes.transact(work)


def extend(history: History, report: dict[str, Any]) -> History:
    """The history with one report more. Rounds from this one on that were told before are of an earlier life."""
    row = [report["round"], *(report.get(field) for field in FIELDS)]
    before = history.points[history.rounds < report["round"]]
    points = np.vstack([before, np.array([row], np.float32)])  # None becomes NaN
    if len(points) > POINTS:
        points = np.delete(points, most_crowded(points[:, 0]), axis=0)
    said = {key: report[key] for key in ("model", "model_bytes", "privacy") if report.get(key) is not None}
    return History(said, points)


def most_crowded(rounds: Floats) -> int:
    """Which one to drop so that the others stay evenly spread: never the first or the last."""
    return 1 + int(np.argmin(rounds[2:] - rounds[:-2]))


def read_histories(notes: Store, clients: Iterable[str]) -> dict[str, History]:
    """The histories of those of these clients that have told anything."""
    found = read_many(notes, "report", clients)
    return {client: _decode(kept) for client, kept in found.items()}


def read_many(notes: Store, kind: str, clients: Iterable[str]) -> dict[str, bytes]:
    """What is kept of one kind by client, where there is any; a few at a time."""
    names = list(clients)
    found: list[bytes | None] = []
    for start in range(0, len(names), AT_ONCE):
        keys = [f"{kind}/{name}" for name in names[start : start + AT_ONCE]]
        found += notes.read(partial(_get, keys))
    return {name: kept for name, kept in zip(names, found, strict=True) if kept is not None}


def forget(notes: Store, clients: Iterable[str]) -> None:
    """Remove these clients' histories."""
    notes.transact(lambda state: state.delete([_key(client) for client in clients]))


def _get(keys: list[str], state: Transaction) -> list[bytes | None]:
    return state.get(keys)


def _key(client: str) -> str:
    return f"report/{client}"


def _encode(history: History) -> bytes:
    return json.dumps(history.said).encode() + b"\n" + history.points.tobytes()


def _decode(kept: bytes | None) -> History:
    if kept is None:
        return History({}, np.zeros((0, 1 + len(FIELDS)), np.float32))
    said, _, points = kept.partition(b"\n")
    return History(json.loads(said), np.frombuffer(points, np.float32).reshape(-1, 1 + len(FIELDS)))
