"""The results of attacks as figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from repshare_lab.results.plots import panels

CASES = {  # colours as in plots
    "added": ("a sample is there or not", "#D55E00", "o"),
    "opposite": ("replaced by its opposite", "#0072B2", "s"),
    "shared noise": ("the same, noise shared out", "#009E73", "D"),
    "class mean": ("RS: replaced by its opposite", "#E69F00", "v"),
    "other class": ("replaced by one of another class", "#CC79A7", "^"),
}
LEAST = 0.1  # ε below this is drawn here; below a fifth of the least budget, if that is less


def draw_bounds(lines: Sequence[dict[str, Any]], path: Path, title: str) -> None:
    """Draw ε that attacks prove, and ε that is accounted: no mark may be above its bar."""
    figure, (axes,) = panels(7.2, 4.4)
    budgets = sorted({line["epsilon"] for line in lines})
    order, least = list(CASES), min(LEAST, min(budgets) / 5)
    for place, epsilon in enumerate(budgets):
        at = [line for line in lines if line["epsilon"] == epsilon]
        ends, accounted = [place - 0.4, place + 0.4], max(line["accounted"] for line in at)
        axes.plot(ends, [accounted] * 2, color="black", linewidth=2, label="accounted" if place == 0 else None)
        for number, line in enumerate(sorted(at, key=lambda line: order.index(line["case"]))):
            x = place + 0.7 * ((number + 0.5) / len(at) - 0.5)
            low, high = (max(least, end) for end in line["gaussian"])
            _, colour, marker = CASES[line["case"]]
            axes.plot([x, x], [low, high], color=colour, linewidth=1, alpha=0.6)
            filled = "white" if line["releases"] > 1 else colour
            axes.plot(x, low, marker, color=colour, markersize=5, markerfacecolor=filled)
    for name, colour, marker in (CASES[case] for case in order if any(line["case"] == case for line in lines)):
        axes.plot([], [], marker, color=colour, label=f"proved: {name}")
    axes.set_title(title, parse_math=False)
    axes.set_xticks(range(len(budgets)), [f"ε = {epsilon:g}" for epsilon in budgets])
    axes.set(yscale="log", ylabel="ε: lower bound, up to its interval's other end")
    axes.legend(loc="upper left", frameon=False)
    axes.grid(visible=True, axis="y", alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
