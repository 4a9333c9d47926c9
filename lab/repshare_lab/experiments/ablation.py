"""The worth of each of the two terms: accuracy gained over learning alone, for a grid of λ_KD and λ_disc."""

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.colors import TwoSlopeNorm
from matplotlib.patches import Rectangle

from repshare.config import Policy
from repshare.records import Line
from repshare_lab.config import Setting
from repshare_lab.experiments.experiment import drawn
from repshare_lab.results.plots import STYLES, panels, save
from repshare_lab.results.records import group, mean_std

KD = (0.0, 1.0, 10.0, 100.0)
DISC = (0.0, 0.1, 1.0, 10.0)
NOT_DONE = (math.nan, 0.0)


def gains(lines: Sequence[Line]) -> dict[tuple[float, float], tuple[float, float]]:
    """Return points of accuracy above learning alone on the same split by (λ_KD, λ_disc): mean and deviation."""
    alone = {line["seed"]: line["accuracy"] for line in lines if not line["lambda_kd"] and not line["lambda_disc"]}
    found: dict[tuple[float, float], list[float]] = {}
    for line in lines:
        if line["seed"] in alone:
            gain = line["accuracy"] - alone[line["seed"]]
            found.setdefault((line["lambda_kd"], line["lambda_disc"]), []).append(gain)
    return {at: mean_std(each) for at, each in found.items()}


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw a heat map; the point that all other experiments use has a frame."""
    by_point, chosen = gains(lines), Policy()
    grid = np.array([[by_point.get((kd, disc), NOT_DONE)[0] for disc in DISC] for kd in KD])
    figure, (axes,) = panels(6.2, 5.2)
    low, high = min(float(np.nanmin(grid)), -5.0), max(float(np.nanmax(grid)), 5.0)
    picture = axes.imshow(grid, cmap="PuOr", norm=TwoSlopeNorm(0, low, high), aspect="auto")
    for (row, column), gain in np.ndenumerate(grid):
        spread = by_point.get((KD[row], DISC[column]), NOT_DONE)[1]
        text = "" if np.isnan(gain) else f"{gain:+.1f}" + ("" if not spread else f"\n±{spread:.1f}")
        dark = gain > 0.6 * high or gain < 0.6 * low
        axes.text(column, row, text, ha="center", va="center", color="white" if dark else "black")
    corner = (DISC.index(chosen.lambda_disc) - 0.47, KD.index(chosen.lambda_kd) - 0.46)
    axes.add_patch(Rectangle(corner, 0.94, 0.92, fill=False, edgecolor=STYLES["RS"].colour, linewidth=4))
    axes.set_xticks(range(len(DISC)), [f"{value:g}" for value in DISC])
    axes.set_yticks(range(len(KD)), [f"{value:g}" for value in KD])
    axes.set(xlabel="λ_disc", ylabel="λ_KD", title=f"{setting.dataset}, 5 clients; framed: used everywhere else")
    seeds = len(group(lines, "seed"))
    over = f", mean ± std over {seeds} seeds" if seeds > 1 else ""
    figure.colorbar(picture, label=f"gain over learning alone [points]{over}")
    return save(figure, folder)


ABLATION = drawn("ablation", show)
