"""Results -> figures. Reads lines of results and nothing else."""

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from repshare.files import write_atomically
from repshare.records import Line
from repshare_lab.results.records import find, group, mean_std

Band = tuple[float, float, float]  # a mean, and the edges of what is shaded around it

matplotlib.rcParams["svg.hashsalt"] = "repshare"  # else every drawing gives other names to its parts

NUMBERED_CELLS, NAMED_CLIENTS = 400, 40  # more than these would not be readable


class Style(NamedTuple):
    """The look of a method, the same in every figure."""

    colour: str
    dashes: Any
    marker: str | None


STYLES = {  # Okabe and Ito's colours, distinguishable by everyone
    "CL": Style("#000000", ":", "_"),
    "IL": Style("#E69F00", "--", "v"),
    "FL": Style("#0072B2", "-.", "s"),
    "FD": Style("#009E73", (0, (5, 1)), "D"),
    "RS": Style("#D55E00", "-", "o"),
    "FC": Style("#CC79A7", (0, (1, 1)), "P"),
    "SL": Style("#56B4E9", (0, (3, 1, 1, 1)), "X"),
    "CS": Style("#7A1FA2", "-", "*"),
    "CA": Style("#8C7B00", "--", "^"),
}
OTHER = Style("#777777", "-", None)  # a user's own method


def panels(width: float, height: float, rows: int = 1, columns: int = 1, **shared: Any) -> tuple[Figure, list[Axes]]:
    """Return a figure of this size in inches, and its axes, row by row."""
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **shared).flatten().tolist()


def draw_accuracy(lines: Sequence[Line], path: Path | BinaryIO, title: str, *, differ: bool = False) -> None:
    """Test accuracy by round, a line for each method, shaded by the standard deviation over clients.

    Where clients' classes differ, a second panel is for tests with each client's own mix of classes.
    """
    shown = {"test_accuracy": title}
    if differ:
        shown = {"test_accuracy": f"{title}: all classes", "test_own": "each client's own mix of classes"}
    figure, axes = panels(7.2 * len(shown), 4.4, columns=len(shown))
    for ax, (measure, heading) in zip(axes, shown.items(), strict=True):
        draw_methods(ax, lines, measure)
        tidy(ax, heading, "communication round", "test accuracy [%], mean ± std over clients")
    figure.savefig(path, dpi=150)


def draw_methods(axes: Axes, lines: Sequence[Line], measure: str, x: str = "round", digits: int = 1) -> None:
    """Draw a measure by round, a line for each method that has it, shaded by the standard deviation over clients."""
    scale, ends = 100 if measure.endswith(("accuracy", "own", "unseen")) else 1, []
    known = [{**line, measure: scale * line[measure]} for line in lines if line.get(measure) is not None]
    for method, own in group(known, "method").items():
        points = {place: _band_over_clients(here, measure) for place, here in sorted(group(own, x).items())}
        style, marker = STYLES.get(method, OTHER), "o" if len(points) == 1 else None
        end = draw_curve(axes, points, color=style.colour, linestyle=style.dashes, linewidth=1.8, marker=marker)
        ends.append((method, style.colour, *end))
    label_ends(axes, ends, digits)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))


def _band_over_clients(lines: Sequence[Line], measure: str) -> Band:
    """Return the mean, and the edges of the standard deviation over clients, which is the mean over seeds."""
    spread = statistics.fmean(statistics.pstdev(find(own, measure)) for own in group(lines, "seed").values())
    return band(statistics.fmean(find(lines, measure)), spread)


def band(mean: float, spread: float) -> Band:
    """Return a mean with a spread on both sides."""
    return mean, mean - spread, mean + spread


def draw_curve(axes: Axes, points: Mapping[float, Band], alpha: float = 0.15, **style: Any) -> tuple[float, float]:
    """Draw means by place as a line, shaded between the edges unless alpha is 0. Return where it ends."""
    means, low, high = zip(*points.values(), strict=True)
    axes.plot(list(points), means, **style)
    if alpha:
        axes.fill_between(list(points), low, high, color=style["color"], alpha=alpha, linewidth=0)
    return list(points)[-1], means[-1]


def label_ends(axes: Axes, ends: Sequence[tuple[str, str, float, float]], digits: int = 1) -> None:
    """Name each line (name, colour, x, y) where it ends, moved apart where two end at the same x and meet."""
    low, high = axes.get_ylim()
    furthest = max((end[2] for end in ends), default=0)  # elsewhere a name stands below its end, not on others' lines
    for x in dict.fromkeys(end[2] for end in ends):
        gap, places = 0.055 * (high - low), list[float]()
        here = sorted((end for end in ends if end[2] == x), key=lambda end: -end[3])
        for *_, y in here:
            places.append(min([y, *(place - gap for place in places[-1:])]))
        sunk = max(0.0, low - min(places))
        for (name, colour, _, y), place in zip(here, places, strict=True):
            axes.annotate(
                f"{name}  {y:.{digits}f}", (x, place + sunk), (8, 0 if x == furthest else -9), va="center",
                textcoords="offset points",
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


def save(figure: Figure, folder: Path, table: str | None = None, *, name: str = "figure") -> list[Path]:
    """Save a table, if there is one, and the figure as PNG and SVG, the same bytes each time. Return the files."""
    markdown = folder / ("table.md" if name == "figure" else f"{name}.md")
    png, svg = folder / f"{name}.png", folder / f"{name}.svg"
    if table is not None:
        write_atomically(markdown, table)
    figure.savefig(png, dpi=150)
    figure.savefig(svg, metadata={"Date": None})
    return [png, svg] if table is None else [markdown, png, svg]


def tidy(axes: Axes, title: str, x: str, y: str) -> None:
    """Name the axes, draw a light grid, and no frame where there is nothing to read."""
    axes.set_title(title, parse_math=False)
    axes.set(xlabel=x, ylabel=y)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def draw_points(axes: Axes, points: Mapping[float, Sequence[float]], **style: Any) -> None:
    """Draw a point for each place: the mean of the values there, ± their standard deviation."""
    means, spreads = zip(*map(mean_std, points.values()), strict=True)
    axes.errorbar(list(points), means, spreads, **{"capsize": 3, **style})


def draw_by_epsilon(
    axes: Axes, lines: Sequence[Line], levels: Mapping[str, Any], curves: Mapping[str, Any], epsilons: Sequence[float]
) -> None:
    """Draw the accuracy of private rows as curves over ε, of others as horizontal lines.

    Args:
        axes: Where.
        lines: The lines of all rows.
        levels: The dashes of rows without an ε, by their titles.
        curves: The style of each curve, by its rows' titles with {} for ε.
        epsilons: All ε.
    """
    edge, ends, by_row = 2 * max(epsilons), [], group(lines, "row")
    for title, dashes in levels.items():
        if title in by_row:
            mean, colour = statistics.fmean(find(by_row[title], "accuracy")), STYLES[title[:2]].colour
            axes.axhline(mean, color=colour, linestyle=dashes, linewidth=1.5)
            ends.append((title.replace("one release", "once, no noise"), colour, edge, mean))
    for title, style in curves.items():
        found = {epsilon: by_row.get(title.format(f"{epsilon:g}"), []) for epsilon in epsilons}
        if points := {epsilon: find(own, "accuracy") for epsilon, own in found.items() if own}:
            draw_points(axes, points, **{"color": STYLES[title[:2]].colour, **style})
    axes.set_xscale("log")
    axes.set_xticks(epsilons, [f"{epsilon:g}" for epsilon in epsilons])
    axes.set_xlim(min(epsilons) / 2, edge)
    axes.margins(y=0.12)
    label_ends(axes, ends)


def draw_table(lines: Sequence[Line], dataset: str, published: Mapping[str, Mapping[int, float]]) -> Figure:
    """Draw accuracy by number of clients: a line for each row of the table, crosses for what was published."""
    figure, (axes,) = panels(8.4, 5.0)
    sizes, rows, ends = sorted(group(lines, "clients")), group(lines, "row"), []
    for number, (row, own) in enumerate(rows.items()):
        held = group(own, "clients")
        aside = 0.03 * (number - len(rows) / 2)  # error bars side by side
        method, dashes = row.partition(" ")[0], ":" if row.endswith(("published)", "zero)")) else "-"
        style = STYLES.get(method, OTHER)
        points = {sizes.index(size) + aside: find(held[size], "accuracy") for size in sorted(held)}
        draw_points(axes, points, linestyle=dashes, marker=style.marker, color=style.colour)
        known = [published.get(row, {}).get(size, np.nan) for size in sorted(held)]
        axes.plot(list(points), known, "x", color=style.colour, markersize=9)
        means = list(map(statistics.fmean, points.values()))
        if method == "CL":  # does not depend on N
            axes.axhline(means[0], color=style.colour, linestyle=":", linewidth=1)
        ends.append((row, style.colour, len(sizes) - 0.8, means[-1]))
    over = "mean ± std over seeds" if len(group(lines, "seed")) > 1 else "one seed"
    tidy(axes, f"{dataset}; crosses: published", "clients", f"test accuracy [%], {over}")
    axes.set_xticks(range(len(sizes)), [f"N = {size}" for size in sizes])
    axes.set_xlim(-0.25, len(sizes) - 0.75)
    label_ends(axes, ends)
    return figure
