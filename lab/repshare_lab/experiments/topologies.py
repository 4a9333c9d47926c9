"""The cost of having no server: RS over several topologies, a relay and learning alone. Records only."""

import statistics
from collections.abc import Sequence
from pathlib import Path

from matplotlib.axes import Axes

from repshare.cli.terminal import traffic as in_units
from repshare.records import Line
from repshare_lab.config import Setting
from repshare_lab.experiments.experiment import drawn
from repshare_lab.results.plots import OTHER, Style, draw_points, panels, save, tidy
from repshare_lab.results.records import entry, find, group, mean_std
from repshare_lab.results.terminal import markdown

ALONE, RELAY = "alone (IL)", "relay"  # for comparison
TITLES = (  # partners that a client learns from; without a relay, so many peers
    *(ALONE, RELAY, "complete, 1 peer", "complete, 2 peers", "complete, 5 peers", "ring, 2 peers"),
    *("regular, 2 peers", "random, 2 peers", "star, 2 peers", "small world, 2 peers"),
)
SEEDS = 5
SIZE = 10  # clients, of the whole study
STYLES = {  # methods with every size
    RELAY: Style("#D55E00", "-", "o"),
    "complete, 5 peers": Style("#56B4E9", "-", "s"),
    "complete, 2 peers": Style("#0072B2", "-", "D"),
    "complete, 1 peer": Style("#000000", "-", "^"),
    "ring, 2 peers": Style("#CC79A7", "-", "v"),
    ALONE: Style("#E69F00", "-", "x"),
}


def write_table(dataset: str, lines: Sequence[Line]) -> str:
    """Write the accuracy, and what a client downloads in a round, by way and number of clients."""
    sizes = sorted(group(lines, "clients"))
    rows = []
    for title in TITLES:
        own = group((line for line in lines if line["row"] == title), "clients")
        found = [own.get(size, []) for size in sizes]
        fewer = [f" ({len(each)})" if each and len(each) != SEEDS else "" for each in found]
        accuracies = [entry(find(each, "accuracy")) + few for each, few in zip(found, fewer, strict=True)]
        moved = [in_units(statistics.fmean(find(each, "down"))) if each else "" for each in found]
        rows.append([title, *accuracies, _difference(title, lines), *moved])
    heads = [f"N = {size}" for size in sizes] + [f"to the relay, N = {SIZE}"] + [f"down, N = {size}" for size in sizes]
    return (
        f"{dataset}: mean test accuracy over clients after the last round [%], "
        f"± standard deviation over {SEEDS} seeds\n"
        "(in brackets how many, where they are fewer); the difference to the relay with the same seeds; and what a\n"
        f"client downloads in a round.\n\n{markdown(['<', *heads], rows)}"
    )


def _difference(title: str, lines: Sequence[Line]) -> str:
    """The mean difference to the relay, seed by seed [points]."""
    own, relay = (
        {line["seed"]: line["accuracy"] for line in lines if (line["row"], line["clients"]) == (row, SIZE)}
        for row in (title, RELAY)
    )
    differences = [own[seed] - relay[seed] for seed in own if seed in relay]
    return f"{statistics.fmean(differences):+.2f}" if differences and title != RELAY else ""


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw accuracy by way at one size; accuracy, and what a client downloads, by the number of clients."""
    lines = [{**line, "down": line["bytes_down"] / line["client_rounds"]} for line in lines]  # a client and round
    figure, (ways, sizes, traffic) = panels(11, 4.4, 1, 3, width_ratios=(1.25, 1, 1))
    _draw_ways(ways, lines)
    there = sorted(group(lines, "clients"))
    for title, (colour, _, marker) in STYLES.items():
        for axes, field, scale in ((sizes, "accuracy", 1), (traffic, "down", 1000)):
            found = {size: find(lines, field, row=title, clients=size) for size in there}
            points = {size: [value / scale for value in values] for size, values in found.items() if values}
            if any(map(any, points.values())):
                draw_points(axes, points, color=colour, marker=marker, label=title)
    tidy(ways, "", f"test accuracy [%], {SIZE} clients", "")
    tidy(sizes, "", "clients", "test accuracy [%]")
    tidy(traffic, "", "clients", "kB down, a client and round")
    traffic.set_ylim(0, None)
    figure.legend(*sizes.get_legend_handles_labels(), loc="outside lower right", ncols=len(STYLES), frameon=False)
    for axes in (sizes, traffic):
        axes.set_xticks(there)
    compared = "learning together with a relay, without one, and alone"
    figure.suptitle(f"{setting.dataset}: {compared}; mean ± std over seeds", parse_math=False)
    return save(figure, folder, write_table(setting.dataset, lines))


def _draw_ways(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw a dot for each way, with relay and alone as lines to compare with."""
    found = {title: find(lines, "accuracy", row=title, clients=SIZE) for title in TITLES}
    titles = [title for title, values in found.items() if values]
    for place, title in enumerate(titles):
        (mean, spread), colour = mean_std(found[title]), STYLES.get(title, OTHER).colour
        axes.errorbar(mean, place, xerr=spread, fmt="o", color=colour, capsize=3)
        if title in (ALONE, RELAY):
            axes.axvline(mean, color=colour, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(titles)), titles)
    axes.invert_yaxis()


TOPOLOGIES = drawn("topologies", show, computed_by="d934b08")
