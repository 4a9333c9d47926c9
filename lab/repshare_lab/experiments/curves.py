"""Accuracy by round: method by method, with what clients differ by; and with and without a teacher in round 1."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from repshare.records import Line
from repshare_lab.config import ResolvedSetting, Setting
from repshare_lab.experiments.experiment import Cell, Experiment, Row, make_cell
from repshare_lab.methods import find_method
from repshare_lab.results.plots import STYLES, Band, band, draw_curve, label_ends, panels, save, tidy
from repshare_lab.results.records import find, group, mean_std
from repshare_lab.results.terminal import markdown

METHODS = ("IL", "FL", "FD", "RS", "FC")
PARTS = {"train": "--", "test": "-"}
TAUGHT = ("FD", "RS")
STARTS = {"zeros": "class means of zero", "none": "no teacher"}  # in round 1
TESTS = 2000  # images, after each round


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
        end = draw_curve(together, points, alpha=0, color=colour, linestyle=own_dashes, linewidth=1.6)  # on the test
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


def plan_start(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan both methods with both starts between two clients, seed by seed. Each data set has its usual network."""
    setting = replace(setting, clients=2, eval_every=1)
    return [
        make_cell(
            {"method": method, "start": start, "seed": seed}, Row(method, method, policy={"start": start}), setting
        )
        for seed in range(seeds)
        for method in TAUGHT
        for start in STARTS
    ]


def show_start(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw a panel for each method, a line for each start; the mean of the last five rounds is a table."""
    figure, systems = panels(9.0, 3.8, 1, len(TAUGHT), sharex=True, sharey=True)
    rows = []
    for method, axes in zip(TAUGHT, systems, strict=True):
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
        if axes.lines:
            axes.legend(frameon=False, loc="lower right", title="in round 1")
    heads = ["<", "<teacher in round 1", "last round", "mean of the last five", "seeds"]
    told = (
        f"{setting.dataset}, two clients, {', '.join(setting.model)}: accuracy on the first {TESTS:,} test images [%]."
    )
    return save(figure, folder, f"{told}\n\n{markdown(heads, rows)}")


CURVES = Experiment("curves", plan, show, condense)
START = Experiment("start", plan_start, show_start, condense, tests=TESTS)
