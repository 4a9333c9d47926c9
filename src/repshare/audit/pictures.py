"""What attacks came to, as figures."""

import math
from collections.abc import Sequence
from pathlib import Path

import matplotlib

from repshare.audit.campaign import Gallery, Line

matplotlib.use("Agg")
COLOURS = {"worst": "#D55E00", "real": "#0072B2"}  # Okabe and Ito's
MARKS = {"worst": "o", "real": "s"}
NAMES = {"worst": "worst case", "real": "real samples, worst pair"}
LEAST = 0.1  # ε below this is drawn here


def draw_bounds(lines: Sequence[Line], path: Path, title: str) -> None:
    """ε that attacks prove against ε that is accounted: no point may be above the line."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 5.0), layout="constrained")
    axes = figure.add_subplot()
    noisy = [line for line in lines if math.isfinite(line["accounted"])]
    ends = [LEAST, 1.6 * max(max(line["accounted"], line["gaussian"][1]) for line in noisy)]
    axes.plot(ends, ends, color="black", linewidth=1)
    axes.fill_between(ends, ends, [ends[1]] * 2, color="black", alpha=0.07, linewidth=0)
    axes.annotate("up here, the promise is broken", (0.05, 0.93), xycoords="axes fraction", fontsize=9)
    for case, colour in COLOURS.items():
        own = [line for line in noisy if line["case"] == case]
        beside = {"worst": -1, "real": 1}[case]
        for place, line in enumerate(own):
            earlier = sum(math.isclose(line["epsilon"], other["epsilon"]) for other in own[:place])
            x = line["accounted"] * 1.06 ** (beside * (0.5 + earlier))  # side by side
            low, high = (max(LEAST, end) for end in line["gaussian"])
            axes.plot([x, x], [low, high], color=colour, linewidth=1, alpha=0.6)
            label = NAMES[case] if place == 0 else None
            axes.plot(x, low, MARKS[case], color=colour, markersize=5, label=label)
    axes.set_title(title, parse_math=False)
    axes.set(
        xscale="log",
        yscale="log",
        xlim=ends,
        ylim=ends,
        xlabel="ε accounted",
        ylabel="ε proved: lower bound, and its interval",
    )
    axes.legend(loc="lower right", frameon=False)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def draw_galleries(galleries: Sequence[Gallery], path: Path, title: str) -> None:
    """A row for each kind of release, a column for each class."""
    from matplotlib.figure import Figure

    columns = len(galleries[0].images)
    figure = Figure(figsize=(2.4 + 0.72 * columns, 0.5 + 0.78 * len(galleries)), layout="constrained")
    grid = figure.subplots(len(galleries), columns, squeeze=False)
    for row, gallery in zip(grid, galleries, strict=True):
        for axes, image in zip(row, gallery.images, strict=True):
            axes.imshow(image.mean(dim=0).numpy(), cmap="gray")
            axes.set_xticks([])
            axes.set_yticks([])
        found = f"\nfound {gallery.line['found']:.0%}" if gallery.line else "\n(not released)"
        row[0].set_ylabel(gallery.title + found, rotation=0, ha="right", va="center", fontsize=9)
    figure.suptitle(title, parse_math=False)
    figure.savefig(path, dpi=150)
