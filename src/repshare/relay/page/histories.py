"""Histories of what clients choose to report in addition to releases. Each is bounded.

report/CLIENT   what it said last and the number of columns as JSON, a newline, and a float32 row for each round kept
"""

import json
from collections.abc import Iterable, Mapping
from statistics import median_high
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.stores import Store, Transaction, decoded

FIELDS = (  # new ones at the end: histories that were kept without them stay readable
    *("train_accuracy", "test_accuracy", "ce", "kd", "disc", "bound", "bytes_up", "bytes_down"),
    *("held_out", "held_out_alone", "gap"),
)
FIRST_COLUMNS = 9  # of a history that does not say how many it has
POINTS = 200  # of a client
MOST_ROUNDS = 2**24  # float32 counts no further
AT_ONCE = 100  # keys in one transaction, so that no request waits long for the store

CURVES = ("held_out", "held_out_alone", "gap", "test_accuracy", "train_accuracy", "ce", "bound")  # as curves
FAR = 10  # times the median of the clients' last rounds: later ones are left out
OWN = 30  # clients with a curve of their own
_COLUMNS = [1 + FIELDS.index(field) for field in CURVES]

Floats = NDArray[np.float32]


class History(NamedTuple):
    """A client's reports."""

    said: dict[str, Any]  # the last report's text and sizes: model, model_bytes, privacy, in_use
    points: Floats  # (n, 1 + fields)  round and FIELDS, rounds ascending; NaN where nothing was said

    @property
    def rounds(self) -> Floats:
        """The rounds that are kept."""
        return self.points[:, 0]


def record(notes: Store, client: str, report: dict[str, Any]) -> None:
    """Add a client's report to its history."""
    key = f"report/{client}"

    def work(state: Transaction) -> None:
        (kept,) = state.get([key])
        state.set({key: _encode(extend(decode(key, kept), report))})

    notes.transact(work)


def extend(history: History, report: dict[str, Any]) -> History:
    """Return the history with one more report. Later rounds that were reported before are from an earlier start."""
    row = [report["round"], *(report.get(field) for field in FIELDS)]
    before = history.points[history.rounds < report["round"]]
    points = np.vstack([before, np.array([row], np.float32)])  # None becomes NaN
    if len(points) > POINTS:
        points = np.delete(points, most_crowded(points[:, 0]), axis=0)
    said = {key: report[key] for key in ("model", "model_bytes", "privacy", "in_use") if report.get(key) is not None}
    return History(said, points)


def most_crowded(rounds: Floats) -> int:
    """Return which one to drop so that the others stay evenly spread: never the first or the last."""
    return 1 + int(np.argmin(rounds[2:] - rounds[:-2]))


def read_histories(notes: Store, clients: Iterable[str]) -> dict[str, History]:
    """Return the histories of those of these clients that have reported anything."""
    found = read_many(notes, "report", clients)
    return {client: decode(f"report/{client}", kept) for client, kept in found.items()}


def read_many(notes: Store, kind: str, clients: Iterable[str]) -> dict[str, bytes]:
    """Return what is kept of one kind by client, where there is any; a few at a time."""
    names = list(clients)
    found: list[bytes | None] = []
    for start in range(0, len(names), AT_ONCE):
        keys = [f"{kind}/{name}" for name in names[start : start + AT_ONCE]]
        found += notes.read(lambda state, keys=keys: state.get(keys))  # type: ignore[misc]
    return {name: kept for name, kept in zip(names, found, strict=True) if kept is not None}


def _encode(history: History) -> bytes:
    told = {**history.said, "columns": history.points.shape[1]}
    return json.dumps(told).encode() + b"\n" + history.points.tobytes()


def decode(key: str, kept: bytes | None) -> History:
    """Return a client's history; an empty one if there is none."""
    if kept is None:
        return History({}, np.zeros((0, 1 + len(FIELDS)), np.float32))
    return decoded(key, _decode, kept)


def make_curves(histories: Mapping[str, History]) -> dict[str, Any]:
    """Return the curves on one grid of rounds, with None where no client reported anything.

    A client that is behind the others counts with its latest value, so that the mean's end is the mean of now.
    """
    told = {client: history for client, history in histories.items() if len(history.points)}
    grid = _grid(list(told.values()))
    if not told:
        return {"rounds": [], "clients": 0, "all": {}, "own": {}}
    values = np.stack([_lay_out(history, grid) for history in told.values()])  # (clients, rounds, shown)
    said = ~np.isnan(values)
    count = said.sum(axis=0)  # (rounds, shown)
    mean = np.where(said, values, 0).sum(axis=0, dtype=np.float64) / np.maximum(count, 1)
    low, high = np.where(said, values, np.inf).min(axis=0), np.where(said, values, -np.inf).max(axis=0)
    ended = np.array([history.rounds[-1] for history in told.values()])[:, None] < grid  # (clients, rounds)
    curves = {
        field: {"mean": _list(mean, count, i), "low": _list(low, count, i), "high": _list(high, count, i)}
        for i, field in enumerate(CURVES)
        if count[:, i].any()
    }
    own = {
        client: {
            field: _list(values[n], said[n] & ~ended[n, :, None], i)
            for i, field in enumerate(CURVES)
            if said[n, :, i].any()
        }
        for n, client in enumerate(list(told)[:OWN])
    }
    return {"rounds": grid.astype(int).tolist(), "clients": len(told), "all": curves, "own": own}


def _grid(histories: list[History]) -> Floats:
    """Return rounds that clients reported, at most POINTS of them, the last one included.

    Not those far beyond where most clients are: a round is what a client says, and one that lies would stretch all
    curves.
    """
    if not histories:
        return np.zeros(0, np.float32)
    last = FAR * median_high(float(history.rounds[-1]) for history in histories)
    rounds = np.unique(np.concatenate([history.rounds for history in histories]))
    rounds = rounds[rounds <= last]
    if len(rounds) > POINTS:
        rounds = rounds[np.linspace(0, len(rounds) - 1, POINTS).round().astype(int)]
    return rounds


def _lay_out(history: History, grid: Floats) -> Floats:
    """Return a client's values on the grid: those of its last round until then; none before its first."""
    values = _fill(history.points[:, _COLUMNS])
    at = np.searchsorted(history.rounds, grid, side="right") - 1  # (rounds,)
    laid = values[np.maximum(at, 0)]
    laid[at < 0] = np.nan
    return laid


def _fill(values: Floats) -> Floats:
    """Fill rounds without a value, as those without a test, with the one before."""
    said = ~np.isnan(values)
    if said.all():
        return values
    rows = np.where(said, np.arange(len(values))[:, None], 0)
    filled: Floats = np.take_along_axis(values, np.maximum.accumulate(rows, axis=0), axis=0)
    return filled


def _list(values: NDArray[np.floating], said: NDArray[Any], column: int) -> list[float | None]:
    numbers = values[:, column].tolist()
    return [
        float(f"{number:.4g}") if there else None
        for number, there in zip(numbers, said[:, column].tolist(), strict=True)
    ]


def _decode(kept: bytes) -> History:
    head, _, numbers = kept.partition(b"\n")
    said = json.loads(head)
    points = np.frombuffer(numbers, np.float32).reshape(-1, said.pop("columns", FIRST_COLUMNS))
    missing = 1 + len(FIELDS) - points.shape[1]
    return History(said, np.pad(points, ((0, 0), (0, missing)), constant_values=np.nan))
