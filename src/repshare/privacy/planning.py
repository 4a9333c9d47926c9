"""The noise that a privacy budget means, and the error that it causes, before anyone releases anything."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.privacy.guard import common_noise, individual_noise
from repshare.sharing.representations import Shape

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
RANGE = 30.0  # the figure goes from this many times less to this many times more than ε
POINTS = 9


class Expected(NamedTuple):
    """The errors to expect in a class of this size: root mean square lengths, over the clip norm."""

    size: int
    mean: float
    observation: float
    together: float
    """The error of the mean of all clients' means, if all have as many samples."""


class Outlook(NamedTuple):
    """The noise and the errors that a budget means."""

    noise: float
    """The noise multiplier: the deviation over how far one sample can move a sum."""
    deviation: float
    """Of the noise on each number of a class sum."""
    clip: float
    classes: list[Expected]


def foresee(policy: Policy, sizes: Sequence[int], dimension: int, clients: int) -> Outlook:
    """Return the noise, and the error that it makes, for classes of these sizes."""
    if policy.epsilon is None:
        raise ConfigError("there is nothing to plan without epsilon")
    if not sizes or min(sizes) < 1 or dimension < 1 or clients < 1:
        raise ConfigError("class sizes, dimension and clients must be at least 1")
    clip, shape = policy.clip or math.sqrt(dimension), Shape(1, policy.n_avg, policy.m_up, 1)
    replaced = policy.adjacency == "replace"
    noise = common_noise(policy, shape, min(sizes)) if replaced else individual_noise(policy, shape)
    sensitivity = 2.0 if replaced else 1.0  # in clip norms
    length = noise * sensitivity * math.sqrt(dimension)
    classes = [
        Expected(size, length / size, length / min(policy.n_avg, size), length / size / math.sqrt(clients))
        for size in sorted(set(sizes))
    ]
    return Outlook(noise, noise * sensitivity * clip, clip, classes)


def draw_outlook(policy: Policy, sizes: Sequence[int], dimension: int, clients: int, path: Path) -> None:
    """Draw the error of class means against ε, a curve for each class size."""
    from matplotlib.figure import Figure

    chosen = policy.epsilon or 1.0
    epsilons = [chosen * RANGE ** (2 * i / (POINTS - 1) - 1) for i in range(POINTS)]
    outlooks = [foresee(replace(policy, epsilon=epsilon), sizes, dimension, clients) for epsilon in epsilons]
    figure = Figure(figsize=(7.6, 4.8), layout="constrained")
    axes = figure.add_subplot()
    axes.axhspan(1, 1e9, color="#777777", alpha=0.12, linewidth=0)
    axes.axvline(chosen, color="#777777", linewidth=1)
    for place, expected in enumerate(outlooks[0].classes):
        colour = COLOURS[place % len(COLOURS)]
        one = [outlook.classes[place].mean for outlook in outlooks]
        all_of_them = [outlook.classes[place].together for outlook in outlooks]
        label = f"{expected.size:,} samples of a class"
        axes.plot(epsilons, one, color=colour, marker="o", markersize=4, label=label)
        axes.plot(epsilons, all_of_them, color=colour, linestyle="--", linewidth=1.2)
    low = min(outlook.classes[-1].together for outlook in outlooks)
    high = max(outlook.classes[0].mean for outlook in outlooks)
    axes.set(xscale="log", yscale="log", ylim=(low / 2, max(high * 2, 4)))
    axes.text(epsilons[0], max(high * 2, 4) / 1.3, " more noise than mean", va="top", color="#444444")
    axes.annotate(f" ε = {chosen:g}", (chosen, low / 2), (0, 4), textcoords="offset points", color="#444444")
    axes.set_xlabel(f"ε of {policy.planned_releases} releases together (δ = {policy.delta:g}, {policy.adjacency})")
    axes.set_ylabel("error of a class mean ÷ the longest it can be")
    axes.set_title(f"solid: one client's mean; dashed: the mean of {clients} clients' means", fontsize=10)
    axes.grid(visible=True, alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower left")
    figure.savefig(path, dpi=150)
