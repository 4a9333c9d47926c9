"""Accuracy against ε of releases of networks' features, next to learning alone and sharing openly."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from repshare.records import Line
from repshare_lab.config import ResolvedSetting, Setting
from repshare_lab.experiments.experiment import Cell, Row, make_cell
from repshare_lab.results.plots import STYLES, draw_by_epsilon, panels, save, tidy
from repshare_lab.results.records import entry, find, group
from repshare_lab.results.terminal import markdown

CLASSES = 10
EPSILONS = (0.1, 1.0, 10.0, 100.0)
SEEDS = {"mnist": 3, "digits": 5}  # at most
FREELY = 1e6  # an ε that leaves no noise to speak of


class Amount(NamedTuple):
    """An amount of data among a number of clients, and the round after which they release, once for all."""

    samples: int
    clients: int
    rounds: int
    release: int


# The paper's data, and ten times as much in a tenth of the rounds: as many steps. When to release was chosen on digits.
AMOUNTS = {
    "mnist": (Amount(1200, 10, 100, 5), Amount(12000, 10, 10, 1)),
    "digits": (Amount(600, 5, 50, 5),),
}


ROWS = [
    Row("IL", "IL"),
    Row("RS, every round", "RS"),
    Row("RS, one release", "RS", policy={"epsilon": FREELY}),
    *(Row(f"RS, ε = {epsilon:g}", "RS", policy={"epsilon": epsilon}) for epsilon in EPSILONS),
    Row("FC (fixed codes)", "FC"),
    Row("FC (codes all zero)", "FC", {"code_size": 0.0}),
]
END_TO_END = tuple(f"RS, ε = {epsilon:g} end to end" for epsilon in EPSILONS)  # DP-SGD: c528c6c is the last with it
LEVELS: dict[str, Any] = {  # rows without an ε, and their dashes
    "IL": STYLES["IL"].dashes,
    "RS, every round": "-",
    "RS, one release": (0, (5, 1)),
    "FC (fixed codes)": STYLES["FC"].dashes,
    "FC (codes all zero)": (0, (1, 3)),
}
FIRST = ("IL", "RS, every round", "FC (fixed codes)", "FC (codes all zero)", "RS, one release")  # in the table
CURVES: dict[str, Any] = {
    "RS, ε = {}": {"marker": "o", "label": "RS, one private release, release-only"},
    "RS, ε = {} end to end": {
        "marker": "s",
        "linestyle": (0, (1, 1)),
        "markerfacecolor": "white",
        "label": "RS, one private release, end to end",
    },
}


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan every way to learn with every amount of data and its number of rounds; seed by seed."""
    return [
        make_cell({"samples": amount.samples, "row": row.title, "seed": seed}, _release_once(row, amount), setting)
        for seed in range(min(seeds, SEEDS.get(setting.dataset, 0)))
        for amount in AMOUNTS.get(setting.dataset, ())
        for row in ROWS
    ]


def _release_once(row: Row, amount: Amount) -> Row:
    """Return the row with this amount of data; if private, with one release, which takes the whole budget.

    What others make of it stays the teacher to the end.
    """
    samples, clients, rounds, release = amount
    size = {"samples": samples, "clients": clients, "rounds": rounds, "eval_every": rounds}
    once = {"planned_releases": 1, "seeded_noise": True, "release_every": release} if row.policy else {}
    return row._replace(setting={**size, **row.setting}, policy={**row.policy, **once})


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Make a table, and draw a panel for each amount of data."""
    sizes = sorted(group(lines, "samples"))
    rows = []
    for title in [*FIRST, *(row.title for row in ROWS if row.title not in FIRST), *END_TO_END]:
        found = [find(lines, "accuracy", samples=size, row=title) for size in sizes]
        rows.append([title, *(f"{entry(each)} ({len(each)})" if each else "" for each in found)])
    figure, systems = panels(1.2 + 6.0 * len(sizes), 4.4, 1, len(sizes))
    for size, axes in zip(sizes, systems, strict=True):
        draw_by_epsilon(axes, [line for line in lines if line["samples"] == size], LEVELS, CURVES, EPSILONS)
        (clients,) = (amount.clients for amount in AMOUNTS[setting.dataset] if amount.samples == size)
        about = f"about {size // clients // CLASSES} of a class each"
        tidy(axes, f"{clients} clients, {size:,} samples: {about}", "ε of the one release", "")
    systems[0].set_ylabel("test accuracy [%], mean ± std over seeds")
    figure.legend(*systems[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return save(figure, folder, markdown([f"<{setting.dataset}", *(f"{size:,} samples" for size in sizes)], rows))
