"""Bytes that a client sends and receives in a round, counted, next to the paper's formulas and its ratios."""

from collections.abc import Sequence
from pathlib import Path

from torch import nn

from repshare.cli.terminal import traffic as in_units
from repshare.config import Policy
from repshare.records import Line
from repshare_lab.config import Setting
from repshare_lab.experiments.experiment import drawn
from repshare_lab.networks import build
from repshare_lab.results.plots import STYLES, panels, save, tidy
from repshare_lab.results.terminal import markdown
from repshare_lab.simulation import PAPER

METHODS = ("RS", "FD", "FL", "SL")
BATCHES = 2  # batches counted for SL, which sends every one
CLASSES, CHANNELS = 10, {"mnist": 1, "fashion_mnist": 1, "cifar10": 3}
CLAIMED = {"fashion_mnist": "≈ 1000", "cifar10": "≈ 2000"}
HEADS = "<model, data set|<method|up|down|<the paper's formula, up|in fp32|FL's up ÷ this|<the paper"
N = 10  # clients among whom the paper's samples are shared: what SL sends depends on how many each has


class Volume:
    """The bytes that one method sends in a round for one data set."""

    def __init__(self, line: Line) -> None:
        self.dataset, self.method, self.model = line["dataset"], line["method"], line["model"]
        own = PAPER[self.dataset].samples // N
        scale = own / (BATCHES * Policy().batch_size) if self.method == "SL" else 1
        self.up, self.down = scale * line["bytes_up"], scale * line["bytes_down"]
        model = build(self.model, channels=CHANNELS[self.dataset], classes=CLASSES, dimension=None, seed=0)
        parameters = sum(parameter.numel() for parameter in model.parameters())
        width = [module for module in model.modules() if isinstance(module, nn.Linear)][-1].in_features
        self.formula, numbers = {
            "RS": ("(M↑ + 1) C d'", (Policy().m_up + 1) * CLASSES * width),
            "FD": ("C² (not in the paper)", CLASSES**2),
            "FL": ("D", parameters),
            "SL": ("n d'", own * width),
        }[self.method]
        self.expected = 4 * numbers  # bytes


def show(lines: Sequence[Line], folder: Path, _: Setting) -> list[Path]:
    """Draw bars next to the formulas, and make a table with both and their ratios."""
    volumes = [Volume(line) for line in lines if line["seed"] == 0]
    figure, (axes,) = panels(8.4, 4.4)
    datasets = list(dict.fromkeys(one.dataset for one in volumes))
    names = [f"{PAPER[dataset].model}\n{dataset}" for dataset in datasets]
    for place, method in enumerate(METHODS):
        own = {one.dataset: one for one in volumes if one.method == method}
        at = [datasets.index(dataset) + 0.2 * (place - 1.5) for dataset in own]
        axes.bar(at, [one.up for one in own.values()], 0.18, color=STYLES[method].colour, label=method)
        for x, one in zip(at, own.values(), strict=True):
            axes.hlines(one.expected, x - 0.09, x + 0.09, color="black", linewidth=1.5)
            top = max(one.up, one.expected)
            axes.annotate(in_units(one.up), (x, top), (0, 4), textcoords="offset points", ha="center", fontsize=9)
    axes.set_yscale("log")
    axes.set_xticks(range(len(datasets)), names)
    tidy(axes, "what a client sends in a round; black: the formula in fp32", "", "bytes")
    axes.margins(y=0.12)
    axes.legend(frameon=False, loc="upper left", ncols=len(METHODS))
    return save(figure, folder, write_table(volumes))


def write_table(volumes: Sequence[Volume]) -> str:
    """Write what was counted, the formulas, and how much more FL sends."""
    rows = []
    for one in volumes:
        fl = next((each.up for each in volumes if each.dataset == one.dataset and each.method == "FL"), None)
        ratio = f"{fl / one.up:,.1f}" if fl and one.method != "FL" else ""
        claim = CLAIMED.get(one.dataset, "") if one.method == "RS" else ""
        amounts = in_units(one.up), in_units(one.down), one.formula, in_units(one.expected)
        rows.append([f"{one.model}, {one.dataset}", one.method, *amounts, ratio, claim])
    return markdown(HEADS.split("|"), rows)


TRAFFIC = drawn("traffic", show, datasets=())
