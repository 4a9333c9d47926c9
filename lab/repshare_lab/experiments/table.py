"""The paper's table next to the published numbers, with rows that it lacks: fair FL, fixed codes, a common space."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from repshare.measures import View
from repshare.records import Line
from repshare_lab.config import ResolvedSetting
from repshare_lab.data import Splits
from repshare_lab.experiments.experiment import Cell, Experiment, Row, at_the_end, make_cell, tell_exposure
from repshare_lab.methods import find_method
from repshare_lab.results import plots, terminal
from repshare_lab.results.records import find
from repshare_lab.simulation.plan import LARGE

ROWS = [
    Row("CL", "CL"),
    Row("FL (fair)", "FL"),
    Row("FL (as published)", "FL", {"independent_starts": True}),
    Row("IL", "IL"),
    Row("FD", "FD"),
    Row("RS", "RS"),
    Row("FD (no teacher in round 1)", "FD", policy={"start": "none"}),
    Row("RS (no teacher in round 1)", "RS", policy={"start": "none"}),
    Row("FC (fixed codes)", "FC"),
    Row("FC (codes all zero)", "FC", {"code_size": 0.0}),
    Row("CA (the space alone)", "CA"),
    Row("CS, one release", "CS", {"space_rounds": 1}),
    Row("CS", "CS"),
]
SIZES = (2, 5, 10)
NUMBERS: dict[str, dict[str, tuple[float, ...]]] = {
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
PUBLISHED = {  # by data set, row and number of clients
    dataset: {row: dict(zip(SIZES, numbers, strict=False)) for row, numbers in rows.items()}
    for dataset, rows in NUMBERS.items()
}


def plan(rows: Sequence[Row], setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan all rows and sizes, seed by seed, so that an interrupted table is even. Tested after the last round.

    Networks with batch normalisation that stay with their clients are looked at in the rounds before it, too.
    """
    setting = replace(setting, eval_every=setting.rounds)
    before = (
        range(max(1, setting.rounds - terminal.LAST + 1), setting.rounds) if set(setting.model) <= set(LARGE) else ()
    )
    return [
        make_cell(
            {"row": row.title, "clients": clients, "seed": seed},
            row,
            replace(setting, clients=clients),
            looks=tuple(before) if row.method in ("IL", "FD", "RS", "FC") else (),
        )
        for seed in range(seeds)
        for row in rows
        for clients in sizes(row)
    ]


def sizes(row: Row) -> tuple[int, ...]:
    """Return the numbers of clients for which a row has an entry."""
    return SIZES[:1] if find_method(row.method).models == "pooled" else SIZES


def look(_: Cell, views: Mapping[int, View], splits: Splits) -> Line:
    """Return the clients' mean test accuracy, in percent."""
    labels = splits.test.labels
    scores = ((view.features @ view.weight.T + view.bias).argmax(axis=1) == labels for view in views.values())
    return {"accuracy": 100 * statistics.fmean(float(right.mean()) for right in scores)}


def condense(cell: Cell, lines: Sequence[Line]) -> list[Line]:
    """Return the run's summary with the last round's training, and the mean accuracy of the last rounds, if known."""
    seen = [line["seen"]["accuracy"] for line in lines if "seen" in line]
    lines = [line for line in lines if "seen" not in line]
    (summary,) = at_the_end(cell, lines)
    last = [line for line in lines if line["round"] == cell.run.setting.rounds]
    trained = {
        "train_ce": statistics.fmean(find(last, "ce")),
        "train": 100 * statistics.fmean(find(last, "train_accuracy")),
    }
    steady = {"last_rounds": statistics.fmean([*seen, summary["accuracy"]])} if seen else {}
    return [{**summary, **trained, **steady}]


def show(rows: Sequence[Row], lines: Sequence[Line], folder: Path, setting: ResolvedSetting) -> list[Path]:
    """Make the table as Markdown, and as a figure."""
    published = PUBLISHED.get(setting.dataset, {})
    order = {row.title: place for place, row in enumerate(rows)}
    lines = sorted(lines, key=lambda line: order[line["row"]])
    figure = plots.draw_table(lines, setting.dataset, published)
    table = terminal.table_markdown(setting.dataset, lines, published)
    return plots.save(figure, folder, table + tell_exposure(plan(rows, setting, 1)))


TABLE = Experiment(
    "table", partial(plan, ROWS), partial(show, ROWS), condense, look, seeds=5, datasets=tuple(PUBLISHED)
)
