"""Accuracy against ε in a common space: class sums with noise, beside learning alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from repshare.records import Line
from repshare_lab.config import Setting
from repshare_lab.results.plots import STYLES, draw_by_epsilon, panels, save, tidy
from repshare_lab.results.records import entry, find
from repshare_lab.results.terminal import markdown

CLIENTS = 10
EPSILONS = (0.1, 0.5, 1.0, 3.0, 10.0)


class DataSize(NamedTuple):
    """An amount of data, and the numbers that a sample is reduced to: chosen on training images held out."""

    samples: int
    components: int


# The dimensions that the records are of. Shorter spaces, of glyphs, do better (lab/notebook/tries.md).
AMOUNTS = {
    "mnist": (DataSize(1200, 256), DataSize(6000, 256), DataSize(60000, 512)),
    "fashion_mnist": (DataSize(6000, 256), DataSize(60000, 512)),
}
KINDS = ("", ", common part", ", own noise", ", own noise, common part", ", replaced, common part")  # ends of titles
AT_ONE = (", own noise, common part", ", replaced, common part")  # kinds that were computed for ε = 1 only
LEVELS = {  # rows without noise, and their dashes
    "CA": "--",
    "CA, reduced space": (0, (1, 1)),
    "CS, 10 rounds, no noise": "-",
    "CS, no noise": (0, (5, 1)),
    "CA, 5 classes each": (0, (3, 1, 1, 1)),
}
HALVES = (0.5, 1.0, 3.0)  # ε for clients with half of the classes
# ScatterNet features and a linear model by DP-SGD (Tramèr and Boneh, 2021): one party with all 60,000 samples.
ANCHORS = {("mnist", 60000): (3.0, 98.7), ("fashion_mnist", 60000): (3.0, 89.7)}


OPEN = {"markerfacecolor": "white", "linestyle": ":", "label": "… without own samples"}
APART = {"marker": "s", "color": "#CC79A7"}
CURVES: dict[str, dict[str, Any]] = {
    "CS, ε = {}": {"marker": "o", "label": "CS, noise shared out"},
    "CS, ε = {}, common part": {"marker": "o", **OPEN},
    "CS, ε = {}, own noise": {**APART, "label": "CS, each its own noise"},
    "CS, ε = {}, 5 classes each": {"marker": "D", "color": "#009E73", "label": "CS, clients with 5 of 10 classes"},
    "FL, ε = {}": {"marker": "^", "color": STYLES["FL"].colour, "label": "FedAvg with DP-SGD"},
}


# FedAvg of clients that train with DP-SGD: records are left, and c528c6c is the last commit that makes such runs.
TRAINED = tuple(f"FL, ε = {epsilon:g}" for epsilon in EPSILONS)


def titles(samples: int) -> list[str]:
    """Return the rows of an amount of data."""
    few = samples <= 6000
    return [
        *("CA", "CA, reduced space", "CS, no noise", "CS, no noise, common part"),
        *(["CS, 10 rounds, no noise"] if few else []),
        *(f"CS, ε = {e:g}{ending}" for ending in KINDS for e in ((1.0,) if ending in AT_ONE else EPSILONS)),
        *(f"CS, ε = 1{ending}, others send noise" for ending in KINDS[:2]),
        *(["CA, 5 classes each", "CS, no noise, 5 classes each"] if few else []),
        *([f"CS, ε = {e:g}, 5 classes each" for e in HALVES] if few else []),
    ]


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Make a table of all rows, and draw a panel for each amount of data."""
    amounts = [amount for amount in AMOUNTS[setting.dataset] if find(lines, "accuracy", samples=amount.samples)]
    if not amounts:
        return []
    table = []
    for title in dict.fromkeys([*(title for amount in amounts for title in titles(amount.samples)), *TRAINED]):
        found = [find(lines, "accuracy", samples=amount.samples, row=title) for amount in amounts]
        if any(found):
            table.append([title, *(f"{entry(each)} ({len(each)})" if each else "" for each in found)])
    figure, systems = panels(1.2 + 5.6 * len(amounts), 4.6, 1, len(amounts))
    for amount, axes in zip(amounts, systems, strict=True):
        shown = [line for line in lines if line["samples"] == amount.samples]
        draw_by_epsilon(axes, shown, LEVELS, CURVES, EPSILONS)
        if anchor := ANCHORS.get((setting.dataset, amount.samples)):
            axes.plot(*anchor, "*", color="#444444", markersize=11, label="ScatterNet, DP-SGD, one party (published)")
        about = f"d = {amount.components}"
        tidy(axes, f"{CLIENTS} clients, {amount.samples:,} samples, {about}", "ε of the one release", "")
    systems[0].set_ylabel("test accuracy [%], mean ± std over draws")
    handles = {
        label: handle for axes in systems for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend(handles.values(), handles, loc="outside lower center", ncols=2, frameon=False)
    heads = [f"<{setting.dataset}", *(f"{amount.samples:,} samples" for amount in amounts)]
    return save(figure, folder, markdown(heads, table), name="common")
