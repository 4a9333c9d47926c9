"""The feature spaces of two clients for the same test images, as t-SNE draws them, by round."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from repshare.records import Line
from repshare_lab.config import Setting
from repshare_lab.experiments.experiment import drawn
from repshare_lab.results.plots import STYLES, panels, save
from repshare_lab.results.records import group

NEIGHBOURS = 10
CLIENTS = (STYLES["FL"].colour, STYLES["RS"].colour)  # blue and orange
PALEST = 0.12  # opacity of the first class; the last one's is 1


def neighbourhood(both: NDArray[np.float64], labels: NDArray[np.int64]) -> tuple[float, float]:
    """The shares of a point's ten nearest that are of its class, and the other client's: means over all points."""
    points, whose = both.reshape(-1, 2), np.repeat([0, 1], len(labels))
    distances = np.square(points[:, None] - points[None]).sum(-1)
    np.fill_diagonal(distances, np.inf)
    near, classes = distances.argsort(axis=1)[:, :NEIGHBOURS], np.tile(labels, 2)  # (n, NEIGHBOURS), (n,)
    return float((classes[near] == classes[:, None]).mean()), float((whose[near] != whose[:, None]).mean())


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw methods downwards, rounds to the right, of the first seed; client by colour, class by opacity."""
    lines = [line for line in lines if line["seed"] == 0]
    methods, rounds = (list(group(lines, field)) for field in ("method", "round"))
    figure, systems = panels(9.6, 9.8, len(methods), len(rounds))
    for line in lines:
        axes = systems[methods.index(line["method"]) * len(rounds) + rounds.index(line["round"])]
        labels = np.array(line["labels"])
        opacity = PALEST + (1 - PALEST) * labels / max(1, labels.max())
        both = np.array(line["points"]).reshape(len(CLIENTS), len(labels), 2)
        for points, colour, marker in zip(both, CLIENTS, "o^", strict=True):
            axes.scatter(points[:, 0], points[:, 1], s=11, c=colour, alpha=opacity, marker=marker, linewidths=0)
        axes.set(xticks=[], yticks=[])
        alike, mixed = neighbourhood(both, labels)
        axes.set_title(f"{line['method']}, round {line['round']}", fontweight="bold", fontsize=11)
        axes.set_xlabel(f"near: {alike:.0%} same class, {mixed:.0%} the other's")
    figure.suptitle(
        f"{setting.dataset}: {len(lines[0]['labels'])} test images as two clients represent them (t-SNE)\n"
        "blue circles: client 1, orange triangles: client 2; the later the class, the more opaque"
    )
    return save(figure, folder)


TSNE_FIGURE = drawn("tsne", show)
