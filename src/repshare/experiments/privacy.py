"""Accuracy against ε: what differentially private releases still teach, beside learning alone and sharing openly."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from repshare.config import Run, Setting
from repshare.experiments.experiment import Cell, Experiment
from repshare.files import write_atomically
from repshare.results.plots import COLOURS, DASHES, label_ends, save, tidy
from repshare.results.records import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLASSES = 10
EPSILONS = (0.1, 1.0, 10.0, 100.0)
FREELY = 1e6  # an ε that leaves no noise to speak of


class Amount(NamedTuple):
    """So much data among so many clients, and the round after which they release, once for all."""

    samples: int
    clients: int
    rounds: int
    release: int


# The paper's data, and ten times as much in a tenth of the rounds: as many steps. When to release was chosen on digits.
AMOUNTS = {
    "mnist": (Amount(1200, 10, 100, 5), Amount(12000, 10, 10, 1)),
    "digits": (Amount(600, 5, 50, 5),),
}


class Row(NamedTuple):
    """One way to learn."""

    title: str
    method: str
    epsilon: float | None = None
    end_to_end: bool = False
    code_size: float = Setting.code_size


ROWS = [
    Row("IL", "IL"),
    Row("RS, every round", "RS"),
    Row("RS, one release", "RS", FREELY),
    *(Row(f"RS, ε = {epsilon:g}", "RS", epsilon) for epsilon in EPSILONS),
    *(Row(f"RS, ε = {epsilon:g} end to end", "RS", epsilon, True) for epsilon in EPSILONS),
    Row("FC (fixed codes)", "FC"),
    Row("FC (codes all zero)", "FC", code_size=0.0),
]


def plan(setting: Setting, seeds: int) -> list[Cell]:
    """Every way to learn with every amount of data, which has rounds of its own; seed by seed."""
    return [
        Cell({"samples": own.samples, "row": row.title, "seed": seed}, Run(row.method, seed, own))
        for seed in range(seeds)
        for amount in AMOUNTS[setting.dataset]
        for row in ROWS
        for own in [_make_setting(setting, amount, row)]
    ]


def _make_setting(setting: Setting, amount: Amount, row: Row) -> Setting:
    """One release takes the whole budget; what others make of it stays the teacher to the end.

    End to end, training has the noise of DP-SGD until then, and none after: nothing leaves any more.
    """
    samples, clients, rounds, release = amount
    policy = setting.policy
    if row.epsilon is not None:
        policy = replace(
            policy,
            epsilon=row.epsilon,
            end_to_end=row.end_to_end,
            planned_releases=1,
            release_every=release,
            seeded_noise=True,
        )
    return replace(
        setting,
        samples=samples,
        clients=clients,
        rounds=rounds,
        eval_every=rounds,
        code_size=row.code_size,
        policy=policy,
    )


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """A table, and a panel for each amount of data."""
    from matplotlib.figure import Figure

    sizes = sorted({line["samples"] for line in lines})
    text = [
        f"| {setting.dataset} | " + " | ".join(f"{size:,} samples" for size in sizes) + " |",
        "|---|" + "---:|" * len(sizes),
    ]
    rows = sorted(ROWS, key=lambda row: (row.end_to_end, row.epsilon in EPSILONS, row.epsilon or 0))
    for row in rows:
        found = [_accuracies(lines, size, row) for size in sizes]
        text.append(f"| {row.title} | " + " | ".join(_said(accuracies) for accuracies in found) + " |")
    write_atomically(folder / "table.md", "\n".join(text) + "\n")
    figure = Figure(figsize=(1.2 + 6.0 * len(sizes), 4.4), layout="constrained")
    panels = figure.subplots(1, len(sizes), squeeze=False)[0]
    for size, axes in zip(sizes, panels, strict=True):
        _draw(axes, lines, size)
        (clients,) = (amount.clients for amount in AMOUNTS[setting.dataset] if amount.samples == size)
        about = f"about {size // clients // CLASSES} of a class each"
        tidy(axes, f"{clients} clients, {size:,} samples: {about}", "ε of the one release", "")
    panels[0].set_ylabel("test accuracy [%], mean ± std over seeds")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return [folder / "table.md", *save(figure, folder)]


def _accuracies(lines: Sequence[Line], size: int, row: Row) -> list[float]:
    return [line["accuracy"] for line in lines if line["samples"] == size and line["row"] == row.title]


def _said(accuracies: Sequence[float]) -> str:
    if not accuracies:
        return ""
    spread = f" ± {statistics.stdev(accuracies):.2f}" if len(accuracies) > 1 else ""
    return f"{statistics.fmean(accuracies):.2f}{spread} ({len(accuracies)})"


def _draw(axes: "Axes", lines: Sequence[Line], size: int) -> None:
    """Private releases as curves over ε; the others, which have none, as lines across."""
    looks = {
        "RS, every round": "-",
        "RS, one release": (0, (5, 1)),
        "IL": DASHES["IL"],
        "FC (fixed codes)": DASHES["FC"],
        "FC (codes all zero)": (0, (1, 3)),
    }
    edge, ends = 2 * max(EPSILONS), []
    for row in ROWS:
        found = _accuracies(lines, size, row)
        if row.epsilon in EPSILONS or not found:
            continue
        mean, colour = statistics.fmean(found), COLOURS[row.method]
        axes.axhline(mean, color=colour, linestyle=looks[row.title], linewidth=1.5)
        ends.append((row.title.replace("one release", "once, no noise"), colour, edge, mean))
    for end_to_end, label in ((False, "release-only"), (True, "end to end")):
        curve = [row for row in ROWS if row.epsilon in EPSILONS and row.end_to_end == end_to_end]
        _draw_curve(axes, label, {row.epsilon or 0: _accuracies(lines, size, row) for row in curve}, end_to_end)
    axes.set_xscale("log")
    axes.set_xticks(sorted(EPSILONS), [f"{epsilon:g}" for epsilon in sorted(EPSILONS)])
    axes.set_xlim(min(EPSILONS) / 2, edge)
    axes.margins(y=0.12)
    label_ends(axes, ends)


def _draw_curve(axes: "Axes", label: str, curve: dict[float, list[float]], end_to_end: bool) -> None:
    there = {epsilon: found for epsilon, found in curve.items() if found}
    means = [statistics.fmean(found) for found in there.values()]
    spreads = [statistics.stdev(found) if len(found) > 1 else 0.0 for found in there.values()]
    look = {"marker": "s", "linestyle": (0, (1, 1)), "markerfacecolor": "white"} if end_to_end else {"marker": "o"}
    axes.errorbar(
        list(there), means, spreads, color=COLOURS["RS"], capsize=3, label=f"RS, one private release, {label}", **look
    )


PRIVACY = Experiment(
    "privacy", "accuracy against ε of differentially private releases", plan, show, seeds=3, datasets=tuple(AMOUNTS)
)
