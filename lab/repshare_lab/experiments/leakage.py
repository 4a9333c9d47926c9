"""Leakage: how well the attacks of the audit tell members from others, beside the accuracy that such a release buys."""

import statistics
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from torch import nn

from repshare.config import Policy
from repshare.records import Line
from repshare.space import exposure
from repshare_lab.audit.capture import capture_means
from repshare_lab.audit.pool import (
    BESIDE,
    DRAWS,
    Pool,
    attack_releases,
    attack_sums,
    attack_told,
    lay_ground,
    tell,
)
from repshare_lab.audit.sequences import Labels, Points, Public
from repshare_lab.config import ResolvedSetting
from repshare_lab.data import Splits, cache
from repshare_lab.experiments.backbone import SPACE
from repshare_lab.experiments.experiment import Cell, Experiment, Row, make_cell, missing
from repshare_lab.networks import build
from repshare_lab.results.plots import panels, save, tidy
from repshare_lab.results.records import group
from repshare_lab.results.terminal import markdown
from repshare_lab.simulation.embedding import embed

RELEASES = (1, 5, 20)
WITH_NOISE = f"CS, ε = {exposure.BUDGET:g}"

Case = tuple[int, int, int]  # the numbers of a vector (0: the usual space), samples behind what is seen, clients in it
CASES: dict[str, tuple[Case, ...]] = {  # those of one space one after the other: what is public is embedded once
    "mnist": (
        (14, 120, 1), (14, 1200, 10), (32, 1200, 10), (0, 12, 1), (0, 120, 1), (150, 1200, 10), (150, 4000, 10),
        (3, 120, 1), (3, 360, 1), (3, 360, 3), (32, 12, 1), (32, 120, 1), (32, 360, 1), (64, 120, 1), (64, 1200, 10),
        (14, 60, 1), (14, 360, 1), (14, 1200, 1), (14, 1200, 3), (49, 4000, 10), (150, 1200, 1), (0, 1200, 10),
        (0, 4000, 10), (100, 1200, 10), (256, 1200, 10), (49, 4000, 1), (49, 4000, 100), (14, 1200, 100),
        (150, 4000, 100), (150, 12000, 100), (150, 1200, 100), (14, 4000, 100),
    ),
    "fashion_mnist": (
        (14, 1200, 10), (64, 1200, 10), (64, 120, 1), (32, 1200, 10), (150, 1200, 10), (150, 4000, 10), (49, 4000, 10),
        (150, 12000, 100), (0, 120, 1), (0, 1200, 10),
    ),
    "digits": (
        (9, 840, 3), (9, 840, 10), (3, 360, 3), (9, 120, 1), (32, 840, 10), (32, 120, 1), (32, 12, 1), (0, 60, 1),
    ),
    "breast_cancer": (
        (2, 12, 1), (2, 60, 1), (2, 120, 3), (6, 12, 1), (6, 60, 1), (6, 120, 3), (32, 12, 1), (32, 60, 1),
        (32, 120, 3), (0, 12, 1), (0, 60, 1),
    ),
    "cifar10": (
        (117, 10_000, 10), (10, 1000, 1), (11, 1000, 10), (124, 10_000, 100), (0, 10_000, 10), (0, 1000, 1),
        (32, 10_000, 10), (32, 1000, 1), (128, 10_000, 10), (128, 1000, 1), (512, 10_000, 10), (512, 1000, 1),
        (0, 100, 1), (0, 1000, 10), (0, 10_000, 100), (32, 100, 1), (32, 1000, 10), (32, 10_000, 100), (128, 100, 1),
        (128, 1000, 10), (128, 10_000, 100), (512, 100, 1), (512, 1000, 10), (512, 10_000, 100),
    ),
}  # fmt: skip
NOISY: dict[str, tuple[Case, ...]] = {  # class sums, shared once, with the noise that the package proposes
    "mnist": (
        (exposure.NOISY, 120, 1), (exposure.NOISY, 1200, 1), (exposure.NOISY, 1200, 3), (exposure.NOISY, 1200, 10),
        (exposure.NOISY, 4000, 10), (64, 120, 1), (64, 1200, 10),
    ),
    "fashion_mnist": ((exposure.NOISY, 120, 1), (exposure.NOISY, 1200, 10), (64, 1200, 10)),
    "digits": ((32, 120, 1), (32, 840, 3), (32, 840, 10)),
    "breast_cancer": ((32, 60, 1), (32, 120, 3), (exposure.NOISY, 120, 3)),
    "cifar10": (
        (exposure.NOISY, 10_000, 10), (exposure.NOISY, 1000, 1), (exposure.NOISY, 10_000, 100),
        (exposure.NOISY, 100, 1), (512, 10_000, 10), (0, 10_000, 10), (0, 1000, 1),
    ),
}  # fmt: skip
TOGETHER = {"cifar10": 10_000}  # samples of all clients; elsewhere there are as few clients as can be
SHORT = {"cifar10": RELEASES[:2]}
FEATURES = {"cifar10": " in EfficientNet-Lite0's features (192 pixels; shorter rows: `components`)"}
NETWORKS = {"mnist": (120, 1200)}  # samples of a client of RS


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan every case, seed by seed."""
    cells = []
    for seed in range(seeds):
        cells += [_cell("RS", 0, samples, 1, seed, setting) for samples in NETWORKS.get(setting.dataset, ())]
        cells += [_cell(WITH_NOISE, *case, seed, setting) for case in NOISY.get(setting.dataset, ())]
        cells += [_cell("CS", *case, seed, setting) for case in CASES.get(setting.dataset, ())]
    return cells


def _cell(method: str, numbers: int, samples: int, members: int, seed: int, setting: ResolvedSetting) -> Cell:
    own_samples, releases = samples // members, SHORT.get(setting.dataset, RELEASES)
    clients = TOGETHER[setting.dataset] // own_samples if setting.dataset in TOGETHER else max(members, BESIDE)
    own = {"clients": clients, "samples": own_samples * clients, "rounds": max(releases), "eval_every": 1}
    key = {"method": method, "numbers": numbers, "samples": samples, "group": members, "seed": seed}
    space = _space(setting.dataset, numbers)
    return make_cell(key, Row(method, method[:2], {**own, "space": space}), setting)


def _space(dataset: str, numbers: int) -> tuple[str, ...]:
    """Return the words for a space with vectors of so many numbers."""
    if dataset == "breast_cancer":
        return ("fourier", f"features={numbers}") if numbers else ("fourier",)
    if dataset == "cifar10":
        return (*SPACE, f"components={numbers}") if numbers else SPACE
    return ("patches", f"components={numbers}") if numbers else ("patches",)


_held: list[tuple[Splits, Pool]] = []  # the last: one of the same splits is made once


def _hold(splits: Splits, setting: ResolvedSetting) -> Pool:
    if not _held or _held[0][0] is not splits:
        whole = replace(setting, space=setting.space[:1])
        _held[:] = [(splits, Pool(embed(splits, whole, len(splits.train.labels), cache=cache.root() / "vectors")))]
    return _held[0][1]


def carry_out(cell: Cell, splits: Splits) -> list[Line]:
    """Capture what two draws of clients release, attack both, and return a line for each number of releases."""
    pool, key, setting = _hold(splits, cell.run.setting), cell.key, cell.run.setting
    if key["method"] == "RS":
        return _attack_means(pool, [rows[: key["samples"]] for rows in pool.draws(key["seed"])], cell)
    drawn = {"samples": key["samples"], "members": key["group"], "seed": key["seed"], "clients": setting.clients}
    if key["method"] == "CS":
        ground, releases = lay_ground(pool, setting.space), SHORT.get(setting.dataset, RELEASES)
        return attack_releases(ground, pool.capture(ground.common, releases=max(releases), **drawn), releases)
    ground = lay_ground(pool, setting.space, "discriminant")
    shares = 2 * key["group"] // 3 + 1 if key["group"] > 2 else 1
    policy = Policy(epsilon=exposure.BUDGET, adjacency="add-remove", noise_shares=shares, seeded_noise=True)
    return [attack_sums(ground, pool.capture_sums(ground.common, policy, **drawn))]


def _attack_means(pool: Pool, draws: Sequence[Labels], cell: Cell) -> list[Line]:
    means, observations, width = [], [], 0
    for rows in draws:
        channels, model = pool.inputs.shape[1], cell.run.setting.model[0]
        network = build(model, channels=channels, classes=pool.classes, dimension=None, seed=cell.run.seed)
        width = [module for module in network.modules() if isinstance(module, nn.Linear)][-1].in_features
        others = [pool.inputs[pool.public], pool.inputs[pool.tested]]
        mean, observed, features = capture_means(
            network, pool.inputs[rows], pool.labels[rows], pool.classes, width, others
        )
        public = Public(Points(features[0], pool.labels[pool.public]), pool.classes)
        strangers = Points(features[1], pool.labels[pool.tested])
        means.append(attack_told(mean, 0.0, public, strangers))
        observations.append(attack_told(observed, 0.0, public, strangers, drawn=True))
    behind = len(draws[0])
    return [tell(width, behind, means, "class means"), tell(width, behind, observations, "observations")]


def show(lines: Sequence[Line], folder: Path, setting: ResolvedSetting) -> list[Path]:
    """Draw accuracy against AUC, a panel for each size of a group, and put all numbers in a table."""
    shared = [line for line in lines if line["accuracy"] and line["releases"] == _shown(line)]
    groups = sorted(group(shared, "group"))
    figure, systems = panels(1.2 + 4.4 * max(1, len(groups)), 4.8, 1, max(1, len(groups)), sharex=True, sharey=True)
    for axes, members in zip(systems, groups, strict=False):
        _draw(axes, [line for line in shared if line["group"] == members], members)
    systems[0].set_ylabel(f"{setting.dataset}: test accuracy after {SHOWN} releases [%]")
    handles: dict[str, Any] = {
        label: handle for axes in systems for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    named = [label for label in (*map(_title, COLOURS), STAR) if label in handles]
    figure.legend([handles[label] for label in named], named, loc="outside right upper", frameon=False)
    return save(figure, folder, write_table(lines, setting))


SHOWN = 5  # releases
STAR = f"class sums, ε = {exposure.BUDGET:g}, one release"
COLOURS = {  # by samples behind what is seen
    12: "#999999", 60: "#E69F00", 120: "#D55E00", 360: "#CC79A7", 840: "#56B4E9", 1200: "#0072B2", 4000: "#009E73",
    12000: "#7A1FA2", 100: "#D55E00", 1000: "#0072B2", 10_000: "#7A1FA2",
}  # fmt: skip


def _draw(axes: Axes, lines: Sequence[Line], members: int) -> None:
    for (samples, method), own in _by(lines):
        ordered = sorted(own, key=lambda line: line["d"])
        points = [(statistics.fmean(line["auc"]), statistics.fmean(line["accuracy"])) for line in ordered]
        x, y = zip(*points, strict=True)
        noisy, colour = method == WITH_NOISE, COLOURS[samples]
        axes.plot([], [], "o-", color=colour, label=_title(samples), markersize=4, linewidth=1)
        axes.plot(x, y, "*" if noisy else "o-", color=colour, markersize=9 if noisy else 4, linewidth=1)
        if noisy:
            axes.plot([], [], "*", color="black", label=STAR, markersize=9)
        for place, (one, point) in enumerate(zip(ordered, points, strict=True)):
            aside = (4, 4 if place % 2 else -9)  # so that neighbours do not meet
            axes.annotate(f"{one['d']:,}", point, aside, textcoords="offset points", fontsize=7, color=COLOURS[samples])
    axes.axvline(exposure.PROMISED, color="black", linestyle=":", linewidth=1)
    axes.set_xlim(0.48, 1.04)
    who = "a client alone" if members == 1 else f"the total of a group of {members}"
    tidy(axes, f"{who}; at each point: d", f"AUC of the best attack, {SHOWN} releases", "")


def _by(lines: Sequence[Line]) -> list[tuple[tuple[int, str], list[Line]]]:
    found: dict[tuple[int, str], list[Line]] = {}
    for line in lines:
        found.setdefault((line["samples"], line["method"]), []).append(line)
    return sorted(found.items())


def _shown(line: Line) -> int:
    """Return the number of releases after which a case is drawn. Sums with noise are released once."""
    return 1 if line["method"] == WITH_NOISE else SHOWN


def _title(samples: int) -> str:
    return f"{samples:,} samples"


def write_table(lines: Sequence[Line], setting: ResolvedSetting) -> str:
    """Return all numbers as Markdown: a row for each case, those that the rule allows marked."""
    rows = []
    cases: dict[tuple[str, int, int, int], list[Line]] = {}
    for line in lines:
        cases.setdefault((line["method"], line["group"], line["samples"], line["numbers"]), []).append(line)
    for own in (cases[each] for each in sorted(cases, key=lambda each: (each[0] != "CS", *each))):
        first = own[0]
        if first["method"] == "RS":
            rows += [[f"RS, {one['attack'][0]}", *_setting(one), _auc([one]), *[""] * 4] for one in own]
            continue
        by_releases = group(own, "releases")
        areas = [_auc(by_releases.get(releases, [])) for releases in RELEASES]
        known = _mean(
            [value for line in by_releases.get(_shown(first), []) for value in line["half_known"] or ()], ".2f"
        )
        right = _mean([value for line in by_releases.get(_shown(first), []) for value in line["accuracy"] or ()], ".1f")
        alone = _mean([value for line in own for value in line.get("alone") or ()], ".1f")
        right += f" (alone {alone})" if alone else ""
        allowed = first["method"] == "CS" and is_allowed(first, setting.dataset)
        title = first["method"] + (", allowed" if allowed else "")
        rows.append([title, *_setting(first), *areas, known, right])
    left = missing(plan(setting, 1), lines)
    note = f"\n{len(left)} cases have not been done yet.\n" if left else ""
    draws = " or ".join(map(str, sorted({DRAWS * len(group(own, "seed")) for own in cases.values()})))
    return (
        f"{setting.dataset}{FEATURES.get(setting.dataset, '')}: AUC of the best attack, mean of {draws} draws, after "
        f"one release and more; half known: after {SHOWN} releases, every other member of which the attacker knows; "
        "test accuracy after as many [%]. "
        "Allowed: by the rule for the numbers of a row.\n\n"
        + markdown(
            ["<", "in the sum", "samples", "d", *(f"{each} releases" if each > 1 else "1 release" for each in RELEASES),
             "half known", "accuracy"],
            rows,
        )
        + note
    )  # fmt: skip


def is_allowed(line: Line, dataset: str) -> bool:
    """Return whether the rule allows what a line is of."""
    return bool(line["d"] <= exposure.most_numbers(round(line["behind"]), CLASSES.get(dataset, 10)))


CLASSES = {"breast_cancer": 2}


def _setting(line: Line) -> list[str]:
    who = "a client" if line["group"] == 1 else f"{line['group']} clients"
    return [who, f"{line['behind']:,.0f}", f"{line['d']:,}"]


def _auc(lines: Sequence[Line]) -> str:
    return _mean([value for line in lines for value in line["auc"]], ".2f")


def _mean(values: Sequence[float], form: str) -> str:
    return f"{statistics.fmean(values):{form}}" if values else ""


LEAKAGE = Experiment("leakage", plan, show, datasets=tuple(CASES), carry_out=carry_out, rounds=max(RELEASES))
