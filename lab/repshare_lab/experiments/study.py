"""A study beyond the paper: one thing varied for every method, a figure of panels and a table."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from repshare.records import Line
from repshare_lab.config import ResolvedSetting, Setting
from repshare_lab.experiments.experiment import Cell, Experiment, Row, make_cell, missing, tell_exposure
from repshare_lab.results.plots import STYLES, draw_points, panels, save, tidy
from repshare_lab.results.records import entry, find, group, mean_std, summarise
from repshare_lab.results.terminal import markdown

METHODS = ("IL", "FL", "RS")
ORDER = ("CL", "IL", "FL", "FD", "RS", "FC", "CA", "CS")
CLIENTS = 10
SEEDS = 3
APART = 0.06  # of the space between two variants: what keeps error bars from covering each other


class Variant(NamedTuple):
    """One value of what is varied."""

    label: str
    """The variant's name: no other variant of the study has the same."""
    setting: Mapping[str, Any] = {}
    """The differences from the paper's setting."""
    policy: Mapping[str, Any] = {}
    """The differences from the usual policy."""
    methods: tuple[str, ...] = METHODS
    """The methods to run. A method that is run on one variant only does not depend on what is varied."""
    seeds: int | None = None
    """The most seeds, where a run takes long. Default: as many as the study has."""


class Panel(NamedTuple):
    """One system of axes."""

    title: str
    x: str
    ticks: Mapping[str, str]
    """The names of its variants on the axis, from left to right, by their labels."""
    field: str = "accuracy"
    """The field of a line to show: accuracy, own or unseen."""


class Study(NamedTuple):
    """A study: what is varied, and how it is shown."""

    name: str
    variants: Sequence[Variant]
    panels: Sequence[Panel]
    ordered: bool = True
    """Join the points: there is something between two of them."""
    kinds: tuple[str, ...] = ()
    """Networks that were dealt out in turn where all are together: each is shown at the variant of its own, by the same
    clients, that is, the same data."""

    def experiment(self) -> Experiment:
        """Return the study as an experiment."""
        planned, shown, condensed = partial(plan, self), partial(show, self), partial(condense, self)
        return Experiment(self.name, planned, shown, condensed, seeds=SEEDS)


def plan(study: Study, setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan every variant with its methods, seed by seed, so that an interrupted study is even. Tested at the end."""
    usual = replace(setting, clients=CLIENTS, eval_every=setting.rounds)
    return [
        make_cell(
            {"variant": variant.label, "method": method, "seed": seed},
            Row(variant.label, method, variant.setting, variant.policy),
            usual,
        )
        for seed in range(seeds)
        for variant in study.variants
        if variant.seeds is None or seed < variant.seeds
        for method in variant.methods
    ]


def condense(study: Study, _: Cell, lines: Sequence[Line]) -> list[Line]:
    """Return the run's summary, with what else of the last tests the study shows, in percent."""
    tests = group((line for line in lines if line["test_accuracy"] is not None), "round")
    last = tests[max(tests)]
    more: Line = {}
    for field in sorted({panel.field for panel in study.panels} - {"accuracy"}):
        values = [line[f"test_{field}"] for line in last]
        more[field] = None if None in values else 100 * statistics.fmean(values)
    if study.kinds:
        more["accuracies"] = [100 * line["test_accuracy"] for line in last]  # in the order of clients
    return [{**summarise(lines)._asdict(), **more}]


def apart(lines: Sequence[Line], kinds: Sequence[str]) -> list[Line]:
    """Return lines where kinds are together as lines of each kind; of one alone, as lines of the clients with it."""
    if not kinds:
        return list(lines)
    found = []
    for line in lines:
        alone = line["variant"] in kinds
        for turn, kind in enumerate(kinds):
            if not alone or kind == line["variant"]:
                accuracy = statistics.fmean(line["accuracies"][turn :: len(kinds)])
                method = line["method"] if alone else f"{line['method']} {line['variant']}"
                found.append({**line, "variant": kind, "method": method, "accuracy": accuracy})
    return found


def show(study: Study, lines: Sequence[Line], folder: Path, setting: ResolvedSetting) -> list[Path]:
    """Draw the panels next to each other, and put all numbers in a table."""
    cells = plan(study, setting, SEEDS)
    left, lines = missing(cells, lines), even(cells, lines)
    figure, systems = panels(3.4 + 3.6 * len(study.panels), 4.2, 1, len(study.panels))
    for axes, panel in zip(systems, study.panels, strict=True):
        draw(axes, study, panel, apart(lines, study.kinds))
    systems[0].set_ylabel(f"{setting.dataset}: test accuracy [%],\n{_over_seeds(lines)}")
    figure.legend(*systems[0].get_legend_handles_labels(), loc="outside right upper", frameon=False)
    note = f"\n{len(left)} of {len(cells)} runs have not been done yet.\n" if left else ""
    return save(figure, folder, write_table(study, lines, setting) + note + tell_exposure(cells))


def even(cells: Sequence[Cell], lines: Sequence[Line]) -> list[Line]:
    """Return lines of complete seeds only, so that means are over the same splits; all lines before the first."""
    lacking = {cell.run.seed for cell in missing(cells, lines)}
    return [line for line in lines if line["seed"] not in lacking] or list(lines)


def draw(axes: Axes, study: Study, panel: Panel, lines: Sequence[Line]) -> None:
    """Draw a line for each method; a level one for a method that does not depend on what is varied here."""
    by_method, places = group(lines, "method"), list(panel.ticks)
    methods = sorted(by_method, key=lambda method: (ORDER.index(method.partition(" ")[0]), method))
    shown = {method: panel.ticks.keys() & group(by_method[method], "variant") for method in methods}
    varied = [method for method in methods if len(shown[method]) > 1] or methods
    for method in methods:
        own, (letters, _, rest) = by_method[method], method.partition(" ")
        colour, dashes, marker = STYLES[letters]
        if method not in varied:
            here = [line for line in own if not shown[method] or line["variant"] in shown[method]]
            mean, spread = mean_std(find(here, panel.field))
            axes.axhline(mean, linestyle=dashes, linewidth=1.6, color=colour, label=method)
            axes.axhspan(mean - spread, mean + spread, color=colour, alpha=0.12, linewidth=0)
            continue
        shift = APART * (varied.index(method) - (len(varied) - 1) / 2)
        found = [find(own, panel.field, variant=label) for label in places]
        draw_points(
            axes,
            {place + shift: values for place, values in enumerate(found) if values},
            linestyle=dashes if study.ordered else "none",
            marker=marker,
            markerfacecolor="white" if rest else None,
            markersize=8,
            capsize=4,
            color=colour,
            label=method,
        )
    tidy(axes, panel.title, panel.x, "")
    axes.set_xticks(range(len(places)), list(panel.ticks.values()))
    axes.set_xlim(-0.4, len(places) - 0.6)


def write_table(study: Study, lines: Sequence[Line], setting: Setting) -> str:
    """Return all numbers as Markdown: a row for each variant and method."""
    fields = list(dict.fromkeys(["accuracy", *(panel.field for panel in study.panels)]))
    heads = {"accuracy": "on all classes", "own": "on what a client has", "unseen": "on what it lacks"}
    by_variant, rows = group(apart(lines, study.kinds), "variant"), []
    for label in dict.fromkeys(variant.label for variant in study.variants):
        for method, own in group(by_variant.get(label, []), "method").items():
            numbers = [entry(find(own, field)) or "–" for field in fields]
            for way in ("bytes_up", "bytes_down"):
                moved = statistics.fmean(line[way] / line["client_rounds"] for line in own)
                numbers.append(f"{moved / 1000:.1f} kB" if moved else "–")
            rows.append([label, method, *numbers, str(len(own))])
    return (
        f"{setting.dataset}: test accuracy after the last round [%], mean over clients, "
        f"{_over_seeds(lines)}; what a client sends and receives in a round.\n\n"
        + markdown(["<", "<method", *(heads[field] for field in fields), "up", "down", "seeds"], rows)
    )


def _over_seeds(lines: Sequence[Line]) -> str:
    seeds = len(group(lines, "seed"))
    return "one seed" if seeds == 1 else f"mean ± std over {seeds} seeds"
