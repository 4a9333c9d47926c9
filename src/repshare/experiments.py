"""Comparisons and the paper's table, as lists of runs."""

from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.client import Record
from repshare.config import Run, Setting
from repshare.data import Splits, histogram
from repshare.errors import ConfigError
from repshare.methods import METHODS, find_method
from repshare.randomness import numpy_stream
from repshare.results import Folder, Journal, Line, Summary, summarise
from repshare.simulation import Checkpoint, Workers, resolve, simulate
from repshare.simulation.checkpoint import States
from repshare.simulation.plan import agree, deal, make_plan


class Progress(NamedTuple):
    """How far a list of runs has come."""

    run: Run
    round: int
    records: list[Record]


def plan_comparison(setting: Setting, methods: Sequence[str], seeds: int, splits: Splits) -> list[Run]:
    """Every method on the same splits and seeds. Raises on anything that could not be carried out."""
    setting = resolve(setting, len(splits.train.labels))
    names = list(dict.fromkeys(find_method(name).name for name in methods))
    if not names:
        raise ConfigError(f"methods are missing: choose from {', '.join(METHODS)}")
    runs = [Run(name, seed, setting) for seed in range(seeds) for name in names]
    for run in runs[: len(names)]:
        agree(make_plan(run, splits))
    return runs


def who_has_what(run: Run, splits: Splits) -> NDArray[np.int64]:
    """Samples by client and class (clients, classes)."""
    labels = splits.train.labels[: run.setting.samples]
    parts = deal(run.setting, labels, numpy_stream(run.seed, "partition"))
    return histogram(labels, parts, splits.classes)


def describe(runs: Sequence[Run]) -> dict[str, Any]:
    """What run.json says."""
    return {
        "methods": list(dict.fromkeys(run.method for run in runs)),
        "seeds": sorted({run.seed for run in runs}),
        "setting": asdict(runs[0].setting),
    }


def carry_out(
    runs: Sequence[Run], splits: Splits, folder: Folder, workers: Workers, *, checkpoint_every: int | None = None
) -> Generator[Progress]:
    """Do the runs that the folder does not hold yet, writing each round's records as it ends.

    A run that was interrupted goes on from its last checkpoint, and what was recorded after that is recorded again.
    """
    finished = folder.finished()
    for run in runs:
        if (run.method, run.seed) in finished:
            yield Progress(run, run.setting.rounds or 0, [])
            continue
        name = f"{run.method}-{run.seed}"
        with closing(_go_on(run, splits, folder, name, folder.records, workers, checkpoint_every)) as progress:
            yield from progress
        folder.finish(run.method, run.seed)
        _checkpoints(folder, name).clear()


def _go_on(
    run: Run,
    splits: Splits,
    folder: Folder,
    name: str,
    journal: Journal,
    workers: Workers,
    checkpoint_every: int | None,
) -> Generator[Progress]:
    """Simulate from the last checkpoint, with the journal holding this run's records up to there."""
    checkpoint = Checkpoint(_checkpoints(folder, name).folder, run)
    own, done = (run.method, run.seed), checkpoint.manifest.round
    lines = journal.read()
    journal.keep_only(line for line in lines if (line["method"], line["seed"]) != own or line["round"] <= done)
    rounds = simulate(run, splits, workers, checkpoint, checkpoint_every=checkpoint_every)
    with closing(rounds):
        for number, records in enumerate(rounds, start=done + 1):
            journal.add({"method": run.method, "seed": run.seed, **asdict(record)} for record in records)
            yield Progress(run, number, records)


def _checkpoints(folder: Folder, name: str) -> States:
    return States(folder.path / "checkpoints" / name)


def summaries(lines: Sequence[Line]) -> dict[str, Summary]:
    """One summary for each method, in the order they were run."""
    methods = dict.fromkeys(line["method"] for line in lines)
    return {method: summarise([line for line in lines if line["method"] == method]) for method in methods}


class Row(NamedTuple):
    """A row of the paper's table."""

    title: str
    method: str
    independent_starts: bool = False


ROWS = [
    Row("CL", "CL"),
    Row("FL (fair)", "FL"),
    Row("FL (as published)", "FL", independent_starts=True),
    Row("IL", "IL"),
    Row("FD", "FD"),
    Row("RS", "RS"),
]
SIZES = (2, 5, 10)
PUBLISHED: dict[str, dict[str, tuple[float, ...]]] = {
    "mnist": {
        "CL": (94.00,),
        "FL (as published)": (92.64, 86.79, 70.06),
        "IL": (91.46, 85.26, 72.86),
        "FD": (94.45, 90.55, 77.90),
        "RS": (94.19, 90.63, 82.07),
    },
    "fashion_mnist": {
        "CL": (87.77,),
        "FL (as published)": (89.79, 89.28, 88.21),
        "IL": (86.04, 83.61, 80.52),
        "FD": (87.17, 83.32, 79.44),
        "RS": (87.91, 84.44, 80.77),
    },
    "cifar10": {
        "CL": (66.15,),
        "FL (as published)": (67.99, 59.18, 51.05),
        "IL": (59.85, 46.46, 38.51),
        "FD": (56.75, 44.91, 31.43),
        "RS": (63.49, 47.28, 37.78),
    },
}


class Cell(NamedTuple):
    """One entry of the table for one seed."""

    row: Row
    run: Run

    @property
    def key(self) -> tuple[str, int, int]:
        """What its line is found by."""
        return self.row.title, self.run.setting.clients, self.run.seed


def plan_table(setting: Setting, seeds: int, splits: Splits) -> list[Cell]:
    """All rows, sizes and seeds; seed by seed, so that an interrupted table is even. Tested after the last round."""
    setting = resolve(setting, len(splits.train.labels))
    setting = replace(setting, eval_every=setting.rounds or 1)
    cells = []
    for seed in range(seeds):
        for row in ROWS:
            for clients in SIZES[:1] if find_method(row.method).pools_data else SIZES:
                own = replace(setting, clients=clients, independent_starts=row.independent_starts)
                cells.append(Cell(row, Run(row.method, seed, own)))
    return cells


def describe_table(cells: Sequence[Cell]) -> dict[str, Any]:
    """What its run.json says: all that the cells have in common."""
    own = {"clients", "independent_starts", "data_folder"}
    setting = {key: value for key, value in asdict(cells[0].run.setting).items() if key not in own}
    return {"rows": [row._asdict() for row in ROWS], "sizes": SIZES, "setting": setting}


def fill_table(
    cells: Sequence[Cell],
    splits: Splits,
    folder: Folder,
    workers: Workers,
    *,
    checkpoint_every: int | None = None,
) -> Generator[tuple[Cell, int]]:
    """Do the cells that the folder does not hold yet: one line each, when its last round is over."""
    held = folder.records.read()
    folder.records.keep_only(held)
    for cell in cells:
        row, clients, seed = cell.key
        if any((line["row"], line["clients"], line["seed"]) == cell.key for line in held):
            yield cell, cell.run.setting.rounds or 0
            continue
        name = f"{row}-{clients}-{seed}".replace(" ", "-")
        part = Journal(folder.path / "checkpoints" / f"{name}.jsonl")
        part.path.parent.mkdir(exist_ok=True)
        with closing(_go_on(cell.run, splits, folder, name, part, workers, checkpoint_every)) as progress:
            for _, number, _ in progress:
                yield cell, number
        summary = summarise(part.read())
        folder.records.add([{"row": row, "clients": clients, "seed": seed, **summary._asdict()}])
        part.path.unlink()
        _checkpoints(folder, name).clear()


def table_folder(output: Path, dataset: str) -> Path:
    """Where a data set's table is kept."""
    return output / f"table-{dataset}"
