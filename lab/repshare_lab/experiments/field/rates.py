"""The local optimizer and rates of each method in the field: the best on training samples that are held out.

Every method that trains networks has the same four candidates, Adam and SGD with two rates each; SCAFFOLD, which is
written for plain SGD, has four rates of that. FedProx's μ is chosen next to FL's optimizer. All are chosen
once for uniform divisions, and once for skewed ones. A method without a choice of its own has its control's: FL's
if its clients share weights, else IL's. A candidate is trained on 1,200 training samples, and scored on 2,000 others in
place of tests; 2,000 more stood in for public ones. The field uses none of these.
"""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from repshare.methods import METHODS, Method
from repshare.records import Line
from repshare_lab.config import ResolvedSetting, Setting
from repshare_lab.data import Dataset, Splits
from repshare_lab.data.arrays import take
from repshare_lab.experiments.experiment import Cell, Experiment, Row, make_cell
from repshare_lab.experiments.field.contenders import MODEL, ROUNDS, SKEWED, UNIFORM, Division
from repshare_lab.methods.weights.scaffold import PlainSGD
from repshare_lab.results.findings import summarise_own
from repshare_lab.results.plots import panels, save, tidy
from repshare_lab.results.records import find, group, summarise
from repshare_lab.results.terminal import markdown

CLIENTS = 10
AS_GOOD = 0.25  # percentage points, which one seed cannot tell apart
TRAINED, HELD_OUT = 1200, 2000  # of the last training samples: the field uses the first
PUBLIC = 2000  # between those two: they stood in for public samples, while a method had any
DIVISIONS = UNIFORM, SKEWED
LOCAL = {
    f"{name} {rate:g}": {"optimizer": name.lower(), "learning_rate": rate}
    for name, rates in {"Adam": (0.001, 0.003), "SGD": (0.3, 1.0)}.items()
    for rate in rates
}
PLAIN = {f"SGD {rate:g}": {"optimizer": "sgd", "learning_rate": rate} for rate in (0.03, 0.1, 0.3, 1.0)}
OPTIONS = {"FEDPROX": ("mu", (0.01, 0.1, 1.0))}  # of a method's own, by its name
FOLLOWING = ("CL", "FC", "FEDPER", "SL")  # they train as their controls do
REFUSED = {"FD": ("SGD 0.3", "SGD 1")}  # logits have no bound: in the third round they are beyond any task's
CHOSEN: dict[str, dict[str, str]] = {  # `best` of the committed lines, by division
    UNIFORM.label: {
        "IL": "Adam 0.001",
        "FL": "Adam 0.003",
        "FD": "Adam 0.001",
        "RS": "Adam 0.003",
        "FEDPROTO": "Adam 0.003",
        "FEDPROX": "mu 0.01",
        "SCAFFOLD": "SGD 1",
    },
    SKEWED.label: {
        "IL": "Adam 0.003",
        "FL": "SGD 0.3",
        "FD": "Adam 0.001",
        "RS": "Adam 0.003",
        "FEDPROTO": "Adam 0.003",
        "FEDPROX": "mu 0.01",
        "SCAFFOLD": "SGD 0.3",
    },
}


class Candidate(NamedTuple):
    """A local optimizer with its rate, and a method's own option."""

    title: str
    policy: Mapping[str, Any]
    options: tuple[str, ...] = ()
    """As `method_options` has them."""


def candidates(method: Method, division: str) -> list[Candidate]:
    """Return what is tried for a method. μ comes after FL's choice."""
    if method.in_space or method.name in FOLLOWING:
        return []
    if method.name in OPTIONS:
        (option, values), local = OPTIONS[method.name], LOCAL.get(CHOSEN[division].get("FL", ""), {})
        tried = [Candidate(f"{option} {v:g}", local, (f"{method.name}.{option}={v:g}",)) for v in values]
        return tried if local else []
    grid, refused = PLAIN if method.learner == PlainSGD.open else LOCAL, REFUSED.get(method.name, ())
    return [Candidate(title, policy) for title, policy in grid.items() if title not in refused]


def chosen_for(method: Method, division: Division) -> Candidate | None:
    """Return what a method gets in the field: its own choice, or its control's; None before there is any."""
    if method.in_space:
        return Candidate("", {})
    chosen = CHOSEN[division.rates]
    if method.name in chosen:
        return next(each for each in candidates(method, division.rates) if each.title == chosen[method.name])
    title = chosen.get("FL" if method.shares_weights else "IL", "")
    alike = method.name not in OPTIONS and method.learner != PlainSGD.open
    return Candidate(title, LOCAL[title]) if title and alike else None


def select(splits: Splits) -> Splits:
    """Return the last training samples in place of all: some to train on, the others in place of test samples."""
    end, needed = len(splits.train.labels) - HELD_OUT, TRAINED + PUBLIC
    first, last = (
        Dataset(take(splits.train.inputs, rows), splits.train.labels[rows])
        for rows in (slice(end - needed, end), slice(end, None))
    )
    return replace(splits, train=first, test=last)


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan every candidate of every method, method by method. Tested at the end."""
    usual = replace(setting, clients=CLIENTS, samples=TRAINED, model=MODEL, eval_every=setting.rounds)
    return [
        make_cell(
            {"method": method.name, "candidate": each.title, "division": division.label, "seed": seed},
            Row(each.title, method.name, {**division.setting, "method_options": each.options}, each.policy),
            usual,
        )
        for seed in range(seeds)
        for method in METHODS.values()
        for division in DIVISIONS
        for each in candidates(method, division.label)
    ]


def condense(_: Cell, lines: Sequence[Line]) -> list[Line]:
    """Return accuracy on held-out samples of all classes, and with each client's own mix of classes."""
    return [{"accuracy": summarise(lines).accuracy, "own": statistics.fmean(summarise_own(lines).own)}]


def scores(lines: Sequence[Line]) -> dict[str, dict[str, dict[str, float]]]:
    """Return the score of each candidate by division and method: the mean of both accuracies, over seeds."""
    return {
        division: {
            method: {
                title: statistics.fmean(find(here, "accuracy") + find(here, "own"))
                for title, here in group(own, "candidate").items()
            }
            for method, own in group(there, "method").items()
        }
        for division, there in group(lines, "division").items()
    }


def best(lines: Sequence[Line]) -> dict[str, dict[str, str]]:
    """Return the first candidate, by division and method, whose score is the highest, or as good."""
    return {
        division: {
            method: next(title for title, score in scored.items() if score >= max(scored.values()) - AS_GOOD)
            for method, scored in there.items()
        }
        for division, there in scores(lines).items()
    }


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw the score of every candidate, a row for each method, and write them down."""
    scored, chosen = scores(lines), best(lines)
    figure, systems = panels(12, 1.4 + 0.3 * len(group(lines, "method")), 1, len(DIVISIONS))
    rows = []
    for axes, division in zip(systems, (each.label for each in DIVISIONS), strict=True):
        for place, (method, own) in enumerate(scored.get(division, {}).items()):
            axes.plot(list(own.values()), [place] * len(own), "o", color="#777777", alpha=0.6)
            axes.plot(own[chosen[division][method]], place, "o", color="#D55E00")
            for title in own:
                here = {"method": method, "candidate": title, "division": division}
                numbers = [f"{statistics.fmean(find(lines, field, **here)):.2f}" for field in ("accuracy", "own")]
                marked = f"**{title}**" if title == chosen[division][method] else title
                rows.append([division, method, marked, *numbers])
        tidy(axes, f"{division}: the chosen in orange", "score: accuracy on held-out training samples [%]", "")
        axes.set_yticks(range(len(scored.get(division, {}))), list(scored.get(division, {})))
        axes.invert_yaxis()
    text = (
        f"{setting.dataset}: accuracy on {HELD_OUT:,} held-out training samples after the last round [%]. Chosen, by "
        "the mean of both: bold.\n\n"
    )
    return save(figure, folder, text + markdown(["<division", "<method", "<candidate", "all classes", "own mix"], rows))


RATES = Experiment("rates", plan, show, condense, rounds=ROUNDS, select=select, datasets=("mnist",))
