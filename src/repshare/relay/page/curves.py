"""Histories of many clients as a few curves: mean, range, and some clients' own."""

from collections.abc import Mapping
from statistics import median_high
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repshare.relay.page.histories import FIELDS, POINTS, Floats, History

SHOWN = ("test_accuracy", "train_accuracy", "ce", "bound")
FAR = 10  # times the median of the clients' last rounds: later ones are left out
OWN = 30  # clients with a curve of their own
_COLUMNS = [1 + FIELDS.index(field) for field in SHOWN]


def make_curves(histories: Mapping[str, History]) -> dict[str, Any]:
    """The curves on one grid of rounds, with None where nobody said anything.

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
        for i, field in enumerate(SHOWN)
        if count[:, i].any()
    }
    own = {
        client: {
            field: _list(values[n], said[n] & ~ended[n, :, None], i)
            for i, field in enumerate(SHOWN)
            if said[n, :, i].any()
        }
        for n, client in enumerate(list(told)[:OWN])
    }
    return {"rounds": grid.astype(int).tolist(), "clients": len(told), "all": curves, "own": own}


def _grid(histories: list[History]) -> Floats:
    """Rounds that somebody told of, at most POINTS of them, the last one included.

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
    """A client's values on the grid: those of its last round until then; none before its first."""
    values = _fill(history.points[:, _COLUMNS])
    at = np.searchsorted(history.rounds, grid, side="right") - 1  # (rounds,)
    laid = values[np.maximum(at, 0)]
    laid[at < 0] = np.nan
    return laid


def _fill(values: Floats) -> Floats:
    """Where a round has no value, as rounds without a test, the one before."""
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
