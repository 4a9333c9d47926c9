"""Accuracy by round: method by method, with what clients differ by."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from repshare.records import Line
from repshare_lab.config import ResolvedSetting, Setting
from repshare_lab.experiments.experiment import Cell, Experiment, Row, make_cell
from repshare_lab.methods import find_method
from repshare_lab.results.plots import STYLES, Band, band, draw_curve, label_ends, panels, save, tidy
from repshare_lab.results.records import find, group

METHODS = ("IL", "FL", "FD", "RS", "FC")
PARTS = {"train": "--", "test": "-"}


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan five methods among five clients, tested every tenth round."""
    setting = replace(setting, clients=5, eval_every=10)
    return [
        make_cell({"method": method, "seed": seed}, Row(method, method), setting)
        for seed in range(seeds)
        for method in METHODS
    ]


def condense(_: Cell, lines: Sequence[Line]) -> list[Line]:
    """Return, for each round, means and deviations over clients, in percent."""
    kept = []
    for number, here in group(lines, "round").items():
        entry = {"round": number}
        for part in PARTS:
            values = [100 * accuracy for accuracy in find(here, f"{part}_accuracy")]
            entry[part] = statistics.fmean(values) if values else None
            entry[f"{part}_std"] = statistics.pstdev(values) if values else None
        kept.append(entry)
    return kept


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw a panel for each method, and one with all of them."""
    figure, systems = panels(10.5, 6.4, 2, 3, sharex=True, sharey=True)
    by_method, together, ends = group(lines, "method"), systems[-1], []
    for method, axes in zip(METHODS, systems, strict=False):
        if method not in by_method:
            axes.set_visible(False)
            continue
        colour, own_dashes, _ = STYLES[method]
        for part, dashes in PARTS.items():
            points = _over_seeds(by_method[method], part)
            draw_curve(axes, points, alpha=0.2, color=colour, linestyle=dashes, linewidth=1.6, label=part)
        end = draw_curve(together, points, alpha=0, color=colour, linestyle=own_dashes, linewidth=1.6)  # of the test
        ends.append((method, colour, *end))
        tidy(axes, f"{method}: {find_method(method).title.split(' (')[0]}", "", "")
        axes.legend(frameon=False, loc="lower right")
    tidy(together, "all, test accuracy", "", "")
    label_ends(together, ends)
    seeds = len(group(lines, "seed"))
    several = f"mean of {seeds} seeds; " if seeds > 1 else ""
    figure.suptitle(f"{setting.dataset}, 5 clients; {several}shaded: standard deviation over clients")
    figure.supxlabel("communication round")
    figure.supylabel("accuracy [%]")
    return save(figure, folder)


def _over_seeds(lines: Sequence[Line], part: str) -> dict[float, Band]:
    """Return one curve by round: means over seeds of the mean and of the standard deviation over clients."""
    by_round = group((line for line in lines if line[part] is not None), "round")
    return {
        number: band(statistics.fmean(find(here, part)), statistics.fmean(find(here, f"{part}_std")))
        for number, here in sorted(by_round.items())
    }


CURVES = Experiment("curves", plan, show, condense)
