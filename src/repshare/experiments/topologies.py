"""What it costs to have no server: RS over several topologies beside a relay and learning alone, as a list of runs."""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from repshare.config import Policy, Run, Setting, Topology
from repshare.experiments.experiment import Cell, Experiment
from repshare.files import write_atomically
from repshare.results.plots import COLOURS, save
from repshare.results.records import Line
from repshare.results.terminal import traffic

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Way(NamedTuple):
    """A row of the study: whom a client learns from. `m_down` is from how many peers, where there is no relay."""

    title: str
    method: str = "RS"
    m_down: int = 1
    topology: Topology | None = None


ALONE, RELAY = "alone (IL)", "relay"  # which the others are compared with
WAYS = [
    Way(ALONE, "IL"),
    Way(RELAY),
    Way("complete, 1 peer", m_down=1, topology="complete"),
    Way("complete, 2 peers", m_down=2, topology="complete"),
    Way("complete, 5 peers", m_down=5, topology="complete"),
    Way("ring, 2 peers", m_down=2, topology="ring"),
    Way("regular, 2 peers", m_down=2, topology="regular"),
    Way("random, 2 peers", m_down=2, topology="random"),
    Way("star, 2 peers", m_down=2, topology="star"),
    Way("small world, 2 peers", m_down=2, topology="small_world"),
]
SEEDS = 5
SIZE = 10  # clients, of the whole study
OTHER_SIZES = (5, 20)  # at which only a part of it is done
STYLES = {  # of those that are done at every size
    RELAY: (COLOURS["RS"], "o"),
    "complete, 5 peers": ("#56B4E9", "s"),
    "complete, 2 peers": ("#0072B2", "D"),
    "complete, 1 peer": ("#000000", "^"),
    "ring, 2 peers": ("#CC79A7", "v"),
    ALONE: (COLOURS["IL"], "x"),
}
OTHER = ("#777777", "o")


def plan(setting: Setting, seeds: int) -> list[Cell]:
    """All ways at one size, then some of them at others; seed by seed. Tested after the last round."""
    setting = replace(setting, eval_every=setting.rounds or 1)
    whole = [_cell(way, SIZE, seed, setting) for seed in range(seeds) for way in WAYS]
    part = [
        _cell(way, clients, seed, setting)
        for seed in range(seeds)
        for clients in OTHER_SIZES
        for way in WAYS
        if way.title in STYLES
    ]
    return whole + part


def _cell(way: Way, clients: int, seed: int, setting: Setting) -> Cell:
    own = replace(setting, clients=clients, topology=way.topology, policy=Policy(m_down=way.m_down))
    return Cell({"row": way.title, "clients": clients, "seed": seed}, Run(way.method, seed, own))


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """The study as Markdown, and as a figure."""
    write_atomically(folder / "table.md", markdown(setting.dataset, lines))
    return [folder / "table.md", *draw(setting.dataset, lines, folder)]


def markdown(dataset: str, lines: Sequence[Line]) -> str:
    """Accuracy, and what a client downloads in a round, by way and number of clients."""
    sizes = sorted({line["clients"] for line in lines})
    heads = [f"N = {size}" for size in sizes] + [f"to the relay, N = {SIZE}"] + [f"down, N = {size}" for size in sizes]
    parts = [
        f"{dataset}: mean test accuracy over clients after the last round [%], ± standard deviation over {SEEDS} seeds",
        "(in brackets how many, where they are fewer); the difference to the relay with the same seeds; and what a",
        "client downloads in a round.",
        "",
        "| | " + " | ".join(heads) + " |",
        "|---|" + "---:|" * len(heads),
    ]
    for way in WAYS:
        cells = [[line for line in lines if (line["row"], line["clients"]) == (way.title, size)] for size in sizes]
        entries = [*map(_accuracy, cells), _difference(way.title, lines), *map(_down, cells)]
        parts.append(f"| {way.title} | " + " | ".join(entries) + " |")
    return "\n".join(parts) + "\n"


def _difference(title: str, lines: Sequence[Line]) -> str:
    """How far this way is from the relay, seed by seed [points]."""
    own, relay = (
        {line["seed"]: line["accuracy"] for line in lines if (line["row"], line["clients"]) == (row, SIZE)}
        for row in (title, RELAY)
    )
    differences = [own[seed] - relay[seed] for seed in own if seed in relay]
    return f"{statistics.fmean(differences):+.2f}" if differences and title != RELAY else ""


def _accuracy(cell: Sequence[Line]) -> str:
    accuracies = [line["accuracy"] for line in cell]
    if not cell:
        return ""
    spread = f" ± {statistics.stdev(accuracies):.2f}" if len(cell) > 1 else ""
    return f"{statistics.fmean(accuracies):.2f}{spread}" + (f" ({len(cell)})" if len(cell) != SEEDS else "")


def _down(cell: Sequence[Line]) -> str:
    return traffic(statistics.fmean(map(down, cell))) if cell else ""


def down(line: Line) -> float:
    """Bytes that a client downloads in a round."""
    return float(line["bytes_down"] / line["client_rounds"])


def draw(dataset: str, lines: Sequence[Line], folder: Path) -> list[Path]:
    """Accuracy by way at one size; accuracy, and what a client downloads, by the number of clients."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.4), layout="constrained")
    ways, sizes, traffic = figure.subplots(1, 3, width_ratios=(1.25, 1, 1))
    _draw_ways(ways, [line for line in lines if line["clients"] == SIZE])
    for title in STYLES:
        own = [line for line in lines if line["row"] == title]
        _draw_sizes(sizes, title, own, lambda line: line["accuracy"])
        if any(map(down, own)):
            _draw_sizes(traffic, title, own, lambda line: down(line) / 1000)
    sizes.set(xlabel="clients", ylabel="test accuracy [%]")
    traffic.set(xlabel="clients", ylabel="kB down, a client and round", ylim=(0, None))
    figure.legend(*sizes.get_legend_handles_labels(), loc="outside lower right", ncols=len(STYLES), frameon=False)
    for axes in (sizes, traffic):
        axes.set_xticks(sorted({line["clients"] for line in lines}))
    for axes in (ways, sizes, traffic):
        axes.grid(visible=True, alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    figure.suptitle(
        f"{dataset}: learning together with a relay, without one, and alone; mean ± std over seeds", parse_math=False
    )
    return save(figure, folder)


def _draw_ways(axes: "Axes", lines: Sequence[Line]) -> None:
    """A dot for each way, relay and alone as lines to compare with."""
    titles = [way.title for way in WAYS if any(line["row"] == way.title for line in lines)]
    for place, title in enumerate(titles):
        found = [line["accuracy"] for line in lines if line["row"] == title]
        colour = STYLES.get(title, OTHER)[0]
        spread = statistics.stdev(found) if len(found) > 1 else 0.0
        axes.errorbar(statistics.fmean(found), place, xerr=spread, fmt="o", color=colour, capsize=3)
        if title in (ALONE, RELAY):
            axes.axvline(statistics.fmean(found), color=colour, linewidth=0.8, linestyle="--")
    axes.set_yticks(range(len(titles)), titles)
    axes.invert_yaxis()
    axes.set(xlabel=f"test accuracy [%], {SIZE} clients")


def _draw_sizes(axes: "Axes", title: str, lines: Sequence[Line], of: Callable[[Line], float]) -> None:
    sizes = sorted({line["clients"] for line in lines})
    found = [[of(line) for line in lines if line["clients"] == size] for size in sizes]
    spread = [statistics.stdev(each) if len(each) > 1 else 0.0 for each in found]
    colour, marker = STYLES[title]
    axes.errorbar(
        sizes, list(map(statistics.fmean, found)), yerr=spread, color=colour, marker=marker, capsize=3, label=title
    )


TOPOLOGIES = Experiment("topologies", "what it costs to have no server", plan, show, seeds=SEEDS)
