"""The first round with and without a teacher: test accuracy by round of two clients, whose networks are ResNet9s."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from repshare.config import ResolvedSetting, Setting
from repshare.experiments.curves import condense
from repshare.experiments.experiment import Cell, Experiment, Row, make_cell
from repshare.results.plots import STYLES, band, draw_curve, panels, save, tidy
from repshare.results.records import Line, find, group, mean_std
from repshare.results.terminal import markdown

METHODS = ("FD", "RS")
STARTS = {"zeros": "class means of zero", "none": "no teacher"}  # in round 1
TESTS = 2000  # images, after each round


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan both methods with both starts, seed by seed."""
    setting = replace(setting, clients=2, model=("resnet9",), eval_every=1)
    return [
        make_cell(
            {"method": method, "start": start, "seed": seed}, Row(method, method, policy={"start": start}), setting
        )
        for seed in range(seeds)
        for method in METHODS
        for start in STARTS
    ]


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw a panel for each method, a line for each start; the mean of the last five rounds is a table."""
    figure, systems = panels(9.0, 3.8, 1, len(METHODS), sharex=True, sharey=True)
    rows = []
    for method, axes in zip(METHODS, systems, strict=True):
        for (start, words), dashes in zip(STARTS.items(), ("-", "--"), strict=True):
            own = [line for line in lines if (line["method"], line["start"]) == (method, start)]
            points = {number: band(*mean_std(find(here, "test"))) for number, here in group(own, "round").items()}
            if not points:
                continue
            draw_curve(axes, points, color=STYLES[method].colour, linestyle=dashes, linewidth=1.6, label=words)
            last = [point for point, *_ in points.values()]
            seeds = len(group(own, "seed"))
            rows.append([method, words, f"{last[-1]:.2f}", f"{statistics.fmean(last[-5:]):.2f}", f"{seeds}"])
        tidy(axes, method, "communication round", f"test accuracy [%], first {TESTS:,} images")
        axes.legend(frameon=False, loc="lower right", title="in round 1")
    heads = ["<", "<teacher in round 1", "last round", "mean of the last five", "seeds"]
    return save(figure, folder, f"{setting.dataset}, two clients with ResNet9s.\n\n{markdown(heads, rows)}")


START = Experiment("start", plan, show, condense, tests=TESTS)
