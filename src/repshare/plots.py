"""Results -> figures. Reads lines of results and nothing else."""

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

from repshare.results import Line

if TYPE_CHECKING:
    from matplotlib.axes import Axes

matplotlib.use("Agg")

# Okabe and Ito's colours, distinguishable by everyone; a method has the same one in every figure.
COLOURS = {"CL": "#000000", "IL": "#E69F00", "FL": "#0072B2", "FD": "#009E73", "RS": "#D55E00"}
NUMBERED_CELLS, NAMED_CLIENTS = 400, 40  # more than these would not be readable
DASHES = {"CL": ":", "IL": "--", "FL": "-.", "FD": (0, (5, 1)), "RS": "-"}


def draw_accuracy(lines: Sequence[Line], path: Path, title: str) -> None:
    """Test accuracy by round, a line for each method, shaded by the standard deviation over clients."""
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    ends = [_draw_method(axes, method, lines) for method in dict.fromkeys(line["method"] for line in lines)]
    _label_ends(axes, ends)
    axes.set_title(title, parse_math=False)
    axes.set(xlabel="communication round", ylabel="test accuracy [%], mean ± std over clients")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def _draw_method(axes: "Axes", method: str, lines: Sequence[Line]) -> tuple[str, float, float]:
    tested = [line for line in lines if line["method"] == method and line["test_accuracy"] is not None]
    rounds = sorted({line["round"] for line in tested})
    by_round = [[line for line in tested if line["round"] == round] for round in rounds]
    means = np.array([statistics.fmean(100 * line["test_accuracy"] for line in at) for at in by_round])
    spread = np.array([_spread_over_clients(at) for at in by_round])
    colour = COLOURS.get(method, "#777777")
    axes.plot(rounds, means, color=colour, linestyle=DASHES.get(method, "-"), linewidth=1.8, label=method)
    axes.fill_between(rounds, means - spread, means + spread, color=colour, alpha=0.15, linewidth=0)
    return method, rounds[-1], float(means[-1])


def _spread_over_clients(lines: Sequence[Line]) -> float:
    seeds = {line["seed"] for line in lines}
    return statistics.fmean(
        statistics.pstdev(100 * line["test_accuracy"] for line in lines if line["seed"] == seed) for seed in seeds
    )


def _label_ends(axes: "Axes", ends: list[tuple[str, float, float]]) -> None:
    """Name each line where it ends, moved apart where two ends meet."""
    low, high = axes.get_ylim()
    gap, place = 0.055 * (high - low), float("inf")
    for method, x, y in sorted(ends, key=lambda end: -end[2]):
        place = min(y, place - gap)
        axes.annotate(
            f"{method} {y:.1f}", (x, place), (8, 0), textcoords="offset points", va="center",
            color=COLOURS.get(method, "#777777"), fontweight="bold", annotation_clip=False,
        )  # fmt: skip


def draw_partition(counts: NDArray[Any], path: Path, title: str) -> None:
    """Who has what: a cell for each client and class, the darker the more samples."""
    from matplotlib.figure import Figure

    clients, classes = counts.shape  # (clients, classes)
    figure = Figure(figsize=(1.6 + 0.45 * classes, 1.3 + 0.36 * min(clients, 40)), layout="constrained")
    axes = figure.add_subplot()
    axes.imshow(counts, cmap="Blues", vmin=0, vmax=max(counts.max(), 1), aspect="auto")
    if counts.size <= NUMBERED_CELLS:
        for (client, label), count in np.ndenumerate(counts):
            colour = "white" if count > 0.6 * counts.max() else "black"
            axes.text(label, client, str(count), ha="center", va="center", fontsize=8, color=colour)
    shown = range(clients) if clients <= NAMED_CLIENTS else (0, clients - 1)
    axes.set_yticks(list(shown), [str(client + 1) for client in shown])
    axes.set_xticks(range(classes))
    axes.set_title(f"samples of each class: {title}", parse_math=False)
    axes.set(xlabel="class", ylabel="client")
    figure.savefig(path, dpi=150)
