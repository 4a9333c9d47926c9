"""The mutual-information bound by round, measured alike for methods that train it and for those that do not.

What is logged in training is seen on training samples, and only where observations are exchanged. Here every client
is looked at from outside: test samples of one half are s, averages of n_avg test samples of the other half, as other
clients represent them, are t. Nothing of it is trained on, and nothing is exchanged for it.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from repshare.measures import View
from repshare.network.objective import contrast, information_bound
from repshare.randomness import numpy_stream
from repshare.records import Line
from repshare.sharing.representations import Floats, Integers
from repshare_lab.config import ResolvedSetting, Setting
from repshare_lab.data import Splits
from repshare_lab.experiments.experiment import Cell, Experiment, Row, make_cell, what_was_seen
from repshare_lab.results.plots import STYLES, draw_curve, label_ends, panels, save, tidy
from repshare_lab.results.records import find, group

TESTS = 2000
CLASSES = 10
OBSERVATIONS = 50  # of each class, by each client
LOOKS = (1, 2, 3, 5, 7, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100)
CURVES = (Row("RS", "RS"), Row("RS, λ_disc = 0", "RS", policy={"lambda_disc": 0.0}), Row("IL", "IL"), Row("FC", "FC"))


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan five clients, looked at every few rounds."""
    looks = tuple(number for number in LOOKS if number <= setting.rounds)
    setting = replace(setting, clients=5, eval_every=setting.rounds)
    return [
        make_cell({"curve": row.title, "seed": seed}, row, setting, looks) for seed in range(seeds) for row in CURVES
    ]


def look(cell: Cell, views: Mapping[int, View], splits: Splits) -> Line:
    """Return means over clients, in nats: by the paper's discriminator, and one that reads t with its maker's own head.

    NaN where the two halves of the test samples have no class in common.
    """
    labels, half = torch.from_numpy(splits.test.labels), len(splits.test.labels) // 2
    rng, n_avg = numpy_stream(cell.run.seed, "bound"), cell.run.setting.policy.n_avg
    drawn = [_draw(splits.test.labels[half:], label, n_avg, rng) for label in range(splits.classes)]
    there = torch.tensor([len(rows) > 0 for rows in drawn])  # (C,)
    observed = {client: _observe(view.features[half:], drawn) for client, view in views.items()}
    found: dict[str, list[float]] = {"paper": [], "makers": []}
    for client, view in views.items():
        others = [other for other in views if other != client]
        readers = {"paper": [view] * len(others), "makers": [views[other] for other in others]}
        chosen = torch.from_numpy(rng.integers(0, OBSERVATIONS * len(others), (half, splits.classes)))
        student = _logits(torch.from_numpy(view.features[:half]), view)
        for name, heads in readers.items():
            read = [_logits(observed[other], head) for other, head in zip(others, heads, strict=True)]
            teacher = torch.cat(read)[chosen, torch.arange(splits.classes)]  # (half, C, C)
            bound = information_bound(contrast(student, teacher, labels[:half], there), labels[:half])
            found[name].append(math.nan if bound is None else float(bound))
    return {name: statistics.fmean(values) for name, values in found.items()}


def _draw(labels: Integers, label: int, n_avg: int, rng: np.random.Generator) -> Integers:
    """Draw the samples of each observation of a class (OBSERVATIONS, n_avg); none if it has none."""
    members = np.flatnonzero(labels == label)
    size = min(n_avg, len(members))
    return np.array([rng.choice(members, size, replace=False) for _ in range(OBSERVATIONS if size else 0)])


def _observe(features: Floats, drawn: Sequence[Integers]) -> Tensor:
    """Return a client's observations (OBSERVATIONS, C, d'); zeros where there are none."""
    observed = torch.zeros(OBSERVATIONS, len(drawn), features.shape[1])
    for label, rows in enumerate(drawn):
        if len(rows):
            observed[:, label] = torch.from_numpy(features[rows].mean(axis=1))
    return observed


def _logits(features: Tensor, view: View) -> Tensor:
    return features @ torch.from_numpy(view.weight).T + torch.from_numpy(view.bias)


def condense(cell: Cell, lines: Sequence[Line]) -> list[Line]:
    """Keep the bounds seen from outside, and the one logged in training in the same round, where there is one."""
    kept = []
    for line in what_was_seen(cell, lines):
        logged = [each.get("bound") for each in lines if each["round"] == line["round"]]
        known = [bound for bound in logged if bound is not None]
        kept.append({**line, "training": statistics.fmean(known) if known else None})
    return kept


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw two panels: the paper's discriminator, and the one that reads an observation with its maker's head."""
    figure, systems = panels(10.5, 4.6, 1, 2, sharey=True)
    titles = {"paper": "ĥ of the client itself (the paper's)", "makers": "ĥ that reads t with its maker's head"}
    for axes, (name, title) in zip(systems, titles.items(), strict=True):
        ends = []
        for row in CURVES:
            own = group((line for line in lines if line["curve"] == row.title), "round")
            found = {number: values for number, at in sorted(own.items()) if (values := find(at, name))}
            if not found:
                continue
            style, plain = STYLES[row.method], row.title == row.method
            points = {number: (statistics.fmean(each), min(each), max(each)) for number, each in found.items()}
            dashes, marker = (style.dashes, ".") if plain else ("--", "x")
            end = draw_curve(axes, points, color=style.colour, linestyle=dashes, linewidth=1.8, marker=marker)
            ends.append((row.title.removeprefix("RS, "), style.colour, *end))
        tidy(axes, title, "communication round", "")
        axes.axhline(math.log(CLASSES - 1), color="black", linewidth=0.8, linestyle=":")
        label_ends(axes, ends, digits=2)
    systems[0].set_ylabel("log K − L_disc on test samples [nats]")
    seeds = len(group(lines, "seed"))
    shaded = f"mean of {seeds} seeds, shaded from least to most; " if seeds > 1 else ""
    figure.suptitle(f"{setting.dataset}, 5 clients; {shaded}dotted: log K, the most it can be")
    return save(figure, folder)


BOUND = Experiment("bound", plan, show, condense, look=look, tests=TESTS)
