"""Train and test accuracy by round, method by method, with what clients differ by."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from repshare.config import ResolvedSetting, Setting
from repshare.experiments.experiment import Cell, Experiment
from repshare.methods import find_method
from repshare.results.plots import COLOURS, DASHES, label_ends, panels, save, tidy
from repshare.results.records import Line
from repshare.simulation.plan import make_run

if TYPE_CHECKING:
    from matplotlib.axes import Axes

METHODS = ("IL", "FL", "FD", "RS", "FC")
PARTS = {"train": "--", "test": "-"}


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan five methods among five clients, tested every tenth round."""
    setting = replace(setting, clients=5, eval_every=10)
    return [
        Cell({"method": method, "seed": seed}, make_run(method, seed, setting))
        for seed in range(seeds)
        for method in METHODS
    ]


def condense(lines: Sequence[Line]) -> list[Line]:
    """Return, for each round, means and deviations over clients, in percent."""
    kept = []
    for number, at in groupby(lines, key=lambda line: line["round"]):
        here, entry = list(at), {"round": number}
        for part in PARTS:
            values = [100 * line[f"{part}_accuracy"] for line in here if line[f"{part}_accuracy"] is not None]
            entry[part] = statistics.fmean(values) if values else None
            entry[f"{part}_std"] = statistics.pstdev(values) if values else None
        kept.append(entry)
    return kept


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw a panel for each method, and one with all of them."""
    methods = [method for method in METHODS if any(line["method"] == method for line in lines)]
    figure, systems = panels(10.5, 6.4, 2, 3, sharex=True, sharey=True)
    ends = []
    for method, axes in zip(methods, systems, strict=False):
        for part, dashes in PARTS.items():
            _draw(axes, [line for line in lines if line["method"] == method], part, COLOURS[method], dashes)
        tidy(axes, f"{method}: {find_method(method).title.split(' (')[0]}", "", "")
        axes.legend(frameon=False, loc="lower right")
    for axes in systems[len(methods) : -1]:  # of methods that are not done yet
        axes.set_visible(False)
    for method in methods:
        own = [line for line in lines if line["method"] == method]
        ends.append(
            (method, COLOURS[method], *_draw(systems[-1], own, "test", COLOURS[method], DASHES[method], shaded=False))
        )
    tidy(systems[-1], "all, test accuracy", "", "")
    label_ends(systems[-1], ends)
    seeds = len({line["seed"] for line in lines})
    several = f"mean of {seeds} seeds; " if seeds > 1 else ""
    figure.suptitle(f"{setting.dataset}, 5 clients; {several}shaded: standard deviation over clients")
    figure.supxlabel("communication round")
    figure.supylabel("accuracy [%]")
    return save(figure, folder)


def _draw(
    axes: "Axes", lines: Sequence[Line], part: str, colour: str, dashes: object, *, shaded: bool = True
) -> tuple[float, float]:
    """Draw one curve, the mean over seeds; where it ends."""
    held = [line for line in lines if line[part] is not None]
    rounds = sorted({line["round"] for line in held})
    by_round = [[line for line in held if line["round"] == number] for number in rounds]
    mean, spread = (
        np.array([statistics.fmean(line[name] for line in at) for at in by_round]) for name in (part, f"{part}_std")
    )
    axes.plot(rounds, mean, color=colour, linestyle=dashes, linewidth=1.6, label=part)
    if shaded:
        axes.fill_between(rounds, mean - spread, mean + spread, color=colour, alpha=0.2, linewidth=0)
    return rounds[-1], float(mean[-1])


CURVES = Experiment("curves", "train and test accuracy by round, N = 5", plan, show, condense)
