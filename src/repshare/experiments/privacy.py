"""Accuracy against ε: what differentially private releases still teach, next to learning alone and sharing openly."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from repshare.config import ResolvedSetting, Run, Setting
from repshare.experiments.experiment import Cell, Experiment
from repshare.files import write_atomically
from repshare.results.plots import COLOURS, DASHES, draw_points, label_ends, panels, save, tidy
from repshare.results.records import Line, entry, find
from repshare.results.terminal import markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CLASSES = 10
EPSILONS = (0.1, 1.0, 10.0, 100.0)
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


class PrivacyRow(NamedTuple):
    """One way to learn."""

    title: str
    method: str
    epsilon: float | None = None
    end_to_end: bool = False
    code_size: float = Setting.code_size


ROWS = [
    PrivacyRow("IL", "IL"),
    PrivacyRow("RS, every round", "RS"),
    PrivacyRow("RS, one release", "RS", FREELY),
    *(PrivacyRow(f"RS, ε = {epsilon:g}", "RS", epsilon) for epsilon in EPSILONS),
    *(PrivacyRow(f"RS, ε = {epsilon:g} end to end", "RS", epsilon, True) for epsilon in EPSILONS),
    PrivacyRow("FC (fixed codes)", "FC"),
    PrivacyRow("FC (codes all zero)", "FC", code_size=0.0),
]


LOOKS: dict[str, Any] = {
    "RS, every round": "-",
    "RS, one release": (0, (5, 1)),
    "IL": DASHES["IL"],
    "FC (fixed codes)": DASHES["FC"],
    "FC (codes all zero)": (0, (1, 3)),
}
CURVES: dict[str, Any] = {
    "release-only": {"marker": "o"},
    "end to end": {"marker": "s", "linestyle": (0, (1, 1)), "markerfacecolor": "white"},
}


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan every way to learn with every amount of data, which has rounds of its own; seed by seed."""
    return [
        Cell({"samples": own.samples, "row": row.title, "seed": seed}, Run(row.method, seed, own))
        for seed in range(seeds)
        for amount in AMOUNTS[setting.dataset]
        for row in ROWS
        for own in [_make_setting(setting, amount, row)]
    ]


def _make_setting(setting: ResolvedSetting, amount: Amount, row: PrivacyRow) -> ResolvedSetting:
    """Make a setting. One release takes the whole budget; what others make of it stays the teacher to the end.

    End to end, training has the noise of DP-SGD until then, and none after: nothing leaves any more.
    """
    samples, clients, rounds, release = amount
    policy = setting.policy
    if row.epsilon is not None:
        private = {"epsilon": row.epsilon, "end_to_end": row.end_to_end, "release_every": release}
        policy = replace(policy, planned_releases=1, seeded_noise=True, **private)  # type: ignore[arg-type]
    size = {"samples": samples, "clients": clients, "rounds": rounds, "eval_every": rounds}
    return replace(setting, code_size=row.code_size, policy=policy, **size)  # type: ignore[arg-type]


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Make a table, and draw a panel for each amount of data."""
    sizes = sorted({line["samples"] for line in lines})
    rows = []
    for row in sorted(ROWS, key=lambda row: (row.end_to_end, row.epsilon in EPSILONS, row.epsilon or 0)):
        found = [find(lines, "accuracy", samples=size, row=row.title) for size in sizes]
        rows.append([row.title, *(f"{entry(each)} ({len(each)})" if each else "" for each in found)])
    write_atomically(folder / "table.md", markdown([setting.dataset, *(f"{size:,} samples" for size in sizes)], rows))
    figure, systems = panels(1.2 + 6.0 * len(sizes), 4.4, 1, len(sizes))
    for size, axes in zip(sizes, systems, strict=True):
        _draw(axes, [line for line in lines if line["samples"] == size])
        (clients,) = (amount.clients for amount in AMOUNTS[setting.dataset] if amount.samples == size)
        about = f"about {size // clients // CLASSES} of a class each"
        tidy(axes, f"{clients} clients, {size:,} samples: {about}", "ε of the one release", "")
    systems[0].set_ylabel("test accuracy [%], mean ± std over seeds")
    figure.legend(*systems[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return [folder / "table.md", *save(figure, folder)]


def _draw(axes: "Axes", lines: Sequence[Line]) -> None:
    """Draw private releases as curves over ε; the others, which have none, as horizontal lines."""
    edge, ends = 2 * max(EPSILONS), []
    found = {row.title: find(lines, "accuracy", row=row.title) for row in ROWS}
    for row in ROWS:
        if row.epsilon not in EPSILONS and found[row.title]:
            mean, colour = statistics.fmean(found[row.title]), COLOURS[row.method]
            axes.axhline(mean, color=colour, linestyle=LOOKS[row.title], linewidth=1.5)
            ends.append((row.title.replace("one release", "once, no noise"), colour, edge, mean))
    for label, look in CURVES.items():
        own = [row for row in ROWS if row.epsilon in EPSILONS and row.end_to_end == (label == "end to end")]
        points = {row.epsilon: found[row.title] for row in own if row.epsilon and found[row.title]}
        draw_points(axes, points, color=COLOURS["RS"], label=f"RS, one private release, {label}", **look)
    axes.set_xscale("log")
    axes.set_xticks(sorted(EPSILONS), [f"{epsilon:g}" for epsilon in sorted(EPSILONS)])
    axes.set_xlim(min(EPSILONS) / 2, edge)
    axes.margins(y=0.12)
    label_ends(axes, ends)


PRIVACY = Experiment(
    "privacy", "accuracy against ε of differentially private releases", plan, show, seeds=3, datasets=tuple(AMOUNTS)
)
