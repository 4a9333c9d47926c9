"""The mutual-information bound by round, measured alike for methods that train it and for those that do not.

What is logged in training is seen on training samples, and only where observations are exchanged. Here every client
was looked at from outside: test samples of one half were s, averages of n_avg test samples of the other half, as other
clients represent them, were t. Nothing of it was trained on, and nothing was exchanged for it. Records only.
"""

import math
import statistics
from collections.abc import Sequence
from pathlib import Path

from repshare.records import Line
from repshare_lab.config import Setting
from repshare_lab.experiments.experiment import drawn
from repshare_lab.results.plots import STYLES, draw_curve, label_ends, panels, save, tidy
from repshare_lab.results.records import find, group

CLASSES = 10
CURVES = ("RS", "RS, λ_disc = 0", "IL", "FC")


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw two panels: the paper's discriminator, and the one that reads an observation with its maker's head."""
    figure, systems = panels(10.5, 4.6, 1, 2, sharey=True)
    titles = {"paper": "ĥ of the client itself (the paper's)", "makers": "ĥ that reads t with its maker's head"}
    for axes, (name, title) in zip(systems, titles.items(), strict=True):
        ends = []
        for curve in CURVES:
            own = group((line for line in lines if line["curve"] == curve), "round")
            found = {number: values for number, at in sorted(own.items()) if (values := find(at, name))}
            if not found:
                continue
            style, plain = STYLES[curve[:2]], len(curve) == 2
            points = {number: (statistics.fmean(each), min(each), max(each)) for number, each in found.items()}
            dashes, marker = (style.dashes, ".") if plain else ("--", "x")
            end = draw_curve(axes, points, color=style.colour, linestyle=dashes, linewidth=1.8, marker=marker)
            ends.append((curve.removeprefix("RS, "), style.colour, *end))
        tidy(axes, title, "communication round", "")
        axes.axhline(math.log(CLASSES - 1), color="black", linewidth=0.8, linestyle=":")
        label_ends(axes, ends, digits=2)
    systems[0].set_ylabel("log K − L_disc on test samples [nats]")
    seeds = len(group(lines, "seed"))
    shaded = f"mean of {seeds} seeds, shaded from least to most; " if seeds > 1 else ""
    figure.suptitle(f"{setting.dataset}, 5 clients; {shaded}dotted: log K, the most it can be")
    return save(figure, folder)


BOUND = drawn("bound", show)
