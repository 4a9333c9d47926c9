"""Results -> figures. Reads lines of results and nothing else."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib
import numpy as np
from numpy.typing import NDArray

from repshare.results.records import Line, find, mean_std

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

matplotlib.use("Agg")
matplotlib.rcParams["svg.hashsalt"] = "repshare"  # else every drawing gives other names to its parts

# Okabe and Ito's colours, distinguishable by everyone; a method has the same one in every figure.
COLOURS = {
    "CL": "#000000",
    "IL": "#E69F00",
    "FL": "#0072B2",
    "FD": "#009E73",
    "RS": "#D55E00",
    "FC": "#CC79A7",
    "SL": "#56B4E9",
    "CS": "#7A1FA2",
    "CA": "#8C7B00",
}
NUMBERED_CELLS, NAMED_CLIENTS = 400, 40  # more than these would not be readable
DASHES = {
    "CL": ":",
    "IL": "--",
    "FL": "-.",
    "FD": (0, (5, 1)),
    "RS": "-",
    "FC": (0, (1, 1)),
    "SL": (0, (3, 1, 1, 1)),
    "CS": "-",
    "CA": "--",
}
MARKERS = {"CL": "_", "IL": "v", "FL": "s", "FD": "D", "RS": "o", "FC": "P", "SL": "X", "CS": "*", "CA": "^"}


def panels(width: float, height: float, rows: int = 1, columns: int = 1, **shared: Any) -> "tuple[Figure, list[Axes]]":
    """Return a figure of this size in inches, and its axes, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared).flatten().tolist()


def draw_accuracy(lines: Sequence[Line], path: Path, title: str) -> None:
    """Test accuracy by round, a line for each method, shaded by the standard deviation over clients."""
    figure, (axes,) = panels(7.2, 4.4)
    draw_methods(axes, lines, "test_accuracy")
    tidy(axes, title, "communication round", "test accuracy [%], mean ± std over clients")
    figure.savefig(path, dpi=150)


def draw_methods(axes: "Axes", lines: Sequence[Line], measure: str, x: str = "round", digits: int = 1) -> None:
    """Draw a measure by round, a line for each method that has it, shaded by the standard deviation over clients."""
    from matplotlib.ticker import MaxNLocator

    scale, ends = 100 if measure.endswith("accuracy") else 1, []
    for method in dict.fromkeys(line["method"] for line in lines):
        own = [line for line in lines if line["method"] == method and line.get(measure) is not None]
        if not own:
            continue
        places = sorted({line[x] for line in own})
        at = [[line for line in own if line[x] == place] for place in places]
        means = np.array([statistics.fmean(scale * line[measure] for line in here) for here in at])
        spread = np.array([_spread_over_clients(here, measure, scale) for here in at])
        colour, marker = COLOURS.get(method, "#777777"), "o" if len(places) == 1 else None
        dashes = DASHES.get(method, "-")
        axes.plot(places, means, color=colour, linestyle=dashes, linewidth=1.8, marker=marker)
        axes.fill_between(places, means - spread, means + spread, color=colour, alpha=0.15, linewidth=0)
        ends.append((method, colour, places[-1], float(means[-1])))
    label_ends(axes, ends, digits)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _spread_over_clients(lines: Sequence[Line], measure: str, scale: float) -> float:
    seeds = {line["seed"] for line in lines}
    return statistics.fmean(
        statistics.pstdev(scale * line[measure] for line in lines if line["seed"] == seed) for seed in seeds
    )


def label_ends(axes: "Axes", ends: Sequence[tuple[str, str, float, float]], digits: int = 1) -> None:
    """Name each line (name, colour, x, y) where it ends, moved apart where two ends meet."""
    low, high = axes.get_ylim()
    gap, places = 0.055 * (high - low), list[float]()
    ends = sorted(ends, key=lambda end: -end[3])
    for *_, y in ends:
        places.append(min([y, *(place - gap for place in places[-1:])]))
    sunk = max(0.0, low - min(places, default=low))
    for (name, colour, x, y), place in zip(ends, places, strict=True):
        axes.annotate(
            f"{name}  {y:.{digits}f}", (x, place + sunk), (8, 0), textcoords="offset points", va="center",
            color=colour, fontweight="bold", annotation_clip=False, parse_math=False,
        )  # fmt: skip


def draw_partition(counts: NDArray[Any], path: Path, title: str) -> None:
    """Draw who has what: a cell for each client and class, the darker the more samples."""
    clients, classes = counts.shape  # (clients, classes)
    figure, (axes,) = panels(1.6 + 0.45 * classes, 1.3 + 0.36 * min(clients, 40))
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


def save(figure: "Figure", folder: Path, name: str = "figure") -> list[Path]:
    """Save the figure as PNG and SVG, the same bytes each time."""
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    figure.savefig(png, dpi=150)
    figure.savefig(svg, metadata={"Date": None})
    return [png, svg]


def tidy(axes: "Axes", title: str, x: str, y: str) -> None:
    """Name the axes, draw a light grid, and no frame where there is nothing to read."""
    axes.set_title(title, parse_math=False)
    axes.set(xlabel=x, ylabel=y)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def draw_points(axes: "Axes", points: Mapping[float, Sequence[float]], **style: Any) -> None:
    """Draw a point for each place: the mean of the values there, ± their standard deviation."""
    means, spreads = zip(*map(mean_std, points.values()), strict=True)
    axes.errorbar(list(points), means, spreads, **{"capsize": 3, **style})


def draw_table(
    lines: Sequence[Line], folder: Path, dataset: str, published: Mapping[str, Mapping[int, float]]
) -> list[Path]:
    """Draw accuracy by number of clients: a line for each row of the table, crosses for what was published."""
    figure, (axes,) = panels(8.4, 5.0)
    sizes, rows = sorted({line["clients"] for line in lines}), list(dict.fromkeys(line["row"] for line in lines))
    ends = []
    for number, row in enumerate(rows):
        held = {size: own for size in sizes if (own := find(lines, "accuracy", row=row, clients=size))}
        aside = 0.03 * (number - len(rows) / 2)  # so that error bars do not hide each other
        method, dashes = row.partition(" ")[0], ":" if row.endswith(("published)", "zero)")) else "-"
        colour, x = COLOURS.get(method, "#777777"), [sizes.index(size) + aside for size in held]
        points = dict(zip(x, held.values(), strict=True))
        draw_points(axes, points, linestyle=dashes, marker=MARKERS.get(method), color=colour)
        known = [published.get(row, {}).get(size, np.nan) for size in held]
        axes.plot(x, known, "x", color=colour, markersize=9)
        means = [mean_std(own)[0] for own in held.values()]
        if method == "CL":  # does not depend on N
            axes.axhline(means[0], color=colour, linestyle=":", linewidth=1)
        ends.append((row, colour, len(sizes) - 0.8, means[-1]))
    over = "mean ± std over seeds" if len({line["seed"] for line in lines}) > 1 else "one seed"
    tidy(axes, f"{dataset}; crosses: published", "clients", f"test accuracy [%], {over}")
    axes.set_xticks(range(len(sizes)), [f"N = {size}" for size in sizes])
    axes.set_xlim(-0.25, len(sizes) - 0.75)
    label_ends(axes, ends)
    return save(figure, folder)
