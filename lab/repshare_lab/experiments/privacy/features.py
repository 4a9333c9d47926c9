"""Accuracy against ε of releases of networks' features, next to learning alone and sharing openly. Records only.

38a6b14d is the last commit that computes them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repshare.records import Line
from repshare_lab.config import Setting
from repshare_lab.results.plots import STYLES, draw_by_epsilon, panels, save, tidy
from repshare_lab.results.records import entry, find, group
from repshare_lab.results.terminal import markdown

CLASSES = 10
EPSILONS = (0.1, 1.0, 10.0, 100.0)


# The clients that share an amount of data: the paper's, and ten times as much in a tenth of the rounds.
AMOUNTS = {"mnist": {1200: 10, 12000: 10}, "digits": {600: 5}}
ROWS = (
    *("IL", "RS, every round", "FC (fixed codes)", "FC (codes all zero)", "RS, one release"),
    *(f"RS, ε = {epsilon:g}" for epsilon in EPSILONS),
)
END_TO_END = tuple(f"RS, ε = {epsilon:g} end to end" for epsilon in EPSILONS)  # DP-SGD: c528c6c is the last with it
LEVELS: dict[str, Any] = {  # rows without an ε, and their dashes
    "IL": STYLES["IL"].dashes,
    "RS, every round": "-",
    "RS, one release": (0, (5, 1)),
    "FC (fixed codes)": STYLES["FC"].dashes,
    "FC (codes all zero)": (0, (1, 3)),
}
CURVES: dict[str, Any] = {
    "RS, ε = {}": {"marker": "o", "label": "RS, one private release, release-only"},
    "RS, ε = {} end to end": {
        "marker": "s",
        "linestyle": (0, (1, 1)),
        "markerfacecolor": "white",
        "label": "RS, one private release, end to end",
    },
}


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Make a table, and draw a panel for each amount of data."""
    sizes = sorted(group(lines, "samples"))
    rows = []
    for title in (*ROWS, *END_TO_END):
        found = [find(lines, "accuracy", samples=size, row=title) for size in sizes]
        rows.append([title, *(f"{entry(each)} ({len(each)})" if each else "" for each in found)])
    figure, systems = panels(1.2 + 6.0 * len(sizes), 4.4, 1, len(sizes))
    for size, axes in zip(sizes, systems, strict=True):
        draw_by_epsilon(axes, [line for line in lines if line["samples"] == size], LEVELS, CURVES, EPSILONS)
        clients = AMOUNTS[setting.dataset][size]
        about = f"about {size // clients // CLASSES} of a class each"
        tidy(axes, f"{clients} clients, {size:,} samples: {about}", "ε of the one release", "")
    systems[0].set_ylabel("test accuracy [%], mean ± std over seeds")
    figure.legend(*systems[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return save(figure, folder, markdown([f"<{setting.dataset}", *(f"{size:,} samples" for size in sizes)], rows))
