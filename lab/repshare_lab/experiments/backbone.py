"""A pretrained backbone on CIFAR-10: CS beside AFL and FedAvg of a linear head, all on the same frozen features."""

import statistics
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from repshare.randomness import numpy_stream
from repshare.records import Line
from repshare.space.model import Linear
from repshare_lab.config import ResolvedSetting
from repshare_lab.data import Splits, cache
from repshare_lab.experiments.experiment import Cell, Experiment, Row, make_cell
from repshare_lab.methods.fedhead import HeadModel, HeadOptions
from repshare_lab.results.plots import STYLES, panels, save, tidy
from repshare_lab.results.records import entry, find, group
from repshare_lab.results.terminal import markdown
from repshare_lab.simulation import Inline, simulate
from repshare_lab.simulation.embedding import embed
from repshare_lab.simulation.plan import deal

SPACE = ("efficientnet-lite0",)
SAMPLES, ALL = 10_000, 50_000
DIVISIONS: dict[str, dict[str, Any]] = {
    "N=10": {"clients": 10},
    "N=10, Dirichlet 0.1": {"clients": 10, "partition": "dirichlet", "alpha": 0.1},
    "N=100": {"clients": 100},
    "N=100, Dirichlet 0.1": {"clients": 100, "partition": "dirichlet", "alpha": 0.1},
}
SKEWED = "N=100, Dirichlet 0.1"
ROUNDS = (1, 5, 20)  # after which methods are compared
HELD_OUT = range(SAMPLES, SAMPLES + 2000)  # training samples by which rates are chosen
RATES, EPOCHS = (3e-3, 1e-2, 3e-2, 1e-1, 3e-1), (1, 5)
POOLED, FEDAVG, OWN_MIX = "pooled", "FedAvg of the head", "CS, own mix"
POOLED_SHRINKAGE = 0.3  # ρ, the best of all candidates on the held-out samples
ONCE = ("CA", "AFL", POOLED)
METHODS = {"CA": "CA", "CS": "CS", OWN_MIX: "CS", "AFL": "AFL", POOLED: "CA"}


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan the choice of rates, then every method and division, seed by seed; all images in one division."""
    cells = [_cell("rates", division, SAMPLES, 0, setting) for division in DIVISIONS]
    for samples in (SAMPLES, ALL):  # a client with everything is the same in every division and draw
        cells += [_cell(method, "one client", samples, 0, setting) for method in (POOLED, "AFL")]
    for seed in range(seeds):
        for method, division in product(("CA", "CS", OWN_MIX, FEDAVG), DIVISIONS):
            if method != OWN_MIX or "Dirichlet" in division:
                cells.append(_cell(method, division, SAMPLES, seed, setting))
    return cells + [_cell(method, SKEWED, ALL, 0, setting) for method in ("CA", "CS", FEDAVG)]


def _cell(method: str, division: str, samples: int, seed: int, setting: ResolvedSetting) -> Cell:
    own = {"samples": samples, "space": SPACE, "rounds": max(ROUNDS), "space_rounds": max(ROUNDS), "eval_every": 1}
    if method == OWN_MIX:
        own |= {"rounds": ROUNDS[1], "space_rounds": ROUNDS[1], "eval_every": ROUNDS[1]}
    key = {"method": method, "division": division, "samples": samples, "seed": seed}
    divided = DIVISIONS.get(division, {"clients": 1})
    policy: dict[str, Any] = {"own_mix": method == OWN_MIX}
    if method == POOLED:
        own, policy = own | {"shrinkage": POOLED_SHRINKAGE / samples}, policy | {"held_out": 0.0}
    return make_cell(key, Row(method, METHODS.get(method, "FH"), {**own, **divided}, policy), setting)


_held: list[tuple[Splits, Splits]] = []  # the last: samples are mapped once
_chosen: dict[str, dict[int, HeadOptions]] = {}  # by division and rounds


def carry_out(cell: Cell, splits: Splits) -> list[Line]:
    """Carry out a cell: a line for each number of rounds."""
    if not _held or _held[0][0] is not splits:
        _held[:] = [(splits, embed(splits, cell.run.setting, ALL, cache=cache.root() / "vectors"))]
    mapped = _held[0][1]
    if cell.key["method"] == "rates":
        return _tune(cell, mapped)
    if cell.key["method"] != FEDAVG:
        return _simulate(cell, mapped)
    lines = []
    for rounds in ROUNDS:
        options = _choose(cell, mapped)[rounds]
        words = (f"FH.rate={options.rate}", f"FH.epochs={options.epochs}")
        setting = replace(cell.run.setting, rounds=rounds, eval_every=rounds, method_options=words)
        made = _simulate(cell._replace(run=replace(cell.run, setting=setting)), mapped)
        lines += [{**made[-1], **asdict(options)}]
    return lines


def _simulate(cell: Cell, splits: Splits) -> list[Line]:
    lines, up = [], 0.0
    with Inline() as workers:
        for number, records in enumerate(simulate(cell.run, splits, workers), start=1):
            up += statistics.fmean(record.bytes_up for record in records)
            tested = [record for record in records if record.test_accuracy is not None]
            if tested and (number in ROUNDS or number == cell.run.setting.rounds):
                accuracy, own = (
                    100 * statistics.fmean(getattr(record, name) for record in tested)
                    for name in ("test_accuracy", "test_own")
                )
                lines.append({"rounds": number, "accuracy": accuracy, "own": own, "up": up})
    return lines


def _tune(cell: Cell, splits: Splits) -> list[Line]:
    """Try every rate on held-out training samples: the rounds of FH in a plain loop."""
    setting, labels, vectors = cell.run.setting, splits.train.labels, splits.embedded.train
    parts = deal(setting, labels[:SAMPLES], numpy_stream(cell.run.seed, "partition"))
    models = [HeadModel(vectors[rows], labels[rows], splits.classes) for rows in parts]
    shares = np.array([len(rows) for rows in parts]) / SAMPLES
    tested, right = vectors[HELD_OUT], labels[HELD_OUT]
    lines = []
    for rate, epochs in product(RATES, EPOCHS):
        head = models[0].linear()
        for number in range(1, max(ROUNDS) + 1):
            rng = numpy_stream(cell.run.seed, "rates", number)
            heads = [model.train(head, HeadOptions(rate, epochs), rng) for model in models]
            pairs = zip(*heads, strict=True)
            head = Linear(*(np.tensordot(shares, np.stack(each), 1).astype(np.float32) for each in pairs))
            if number in ROUNDS:
                accuracy = 100 * float((head(tested).argmax(axis=1) == right).mean())
                lines.append({"rounds": number, "rate": rate, "epochs": epochs, "accuracy": accuracy})
    return lines


def _choose(cell: Cell, splits: Splits) -> dict[int, HeadOptions]:
    """The best rate and epochs for each number of rounds, by held-out training samples."""
    division = cell.key["division"]
    if division not in _chosen:
        lines = _tune(_cell("rates", division, SAMPLES, 0, cell.run.setting), splits)
        best = {rounds: max(own, key=lambda line: line["accuracy"]) for rounds, own in group(lines, "rounds").items()}
        _chosen[division] = {rounds: HeadOptions(line["rate"], line["epochs"]) for rounds, line in best.items()}
    return _chosen[division]


def show(lines: Sequence[Line], folder: Path, setting: ResolvedSetting) -> list[Path]:
    """Draw accuracy against bytes, a panel for each division, and put all numbers in a table."""
    figure, systems = panels(4.2 * len(DIVISIONS), 4.2, 1, len(DIVISIONS), sharey=True)
    for axes, division in zip(systems, DIVISIONS, strict=True):
        for method, style in (("CS", STYLES["CS"]), (FEDAVG, STYLES["FL"])):
            points = [(_mean(lines, "up", method, division, n), _mean(lines, "accuracy", method, division, n))
                      for n in ROUNDS]  # fmt: skip
            known = [(up / 1000, accuracy) for up, accuracy in points if up and accuracy]
            axes.plot(*zip(*known, strict=True) if known else ([], []), "o-", color=style.colour, label=method)
        for method, dashes in ((POOLED, ":"), ("AFL", "--")):
            for value in find(lines, "accuracy", method=method, samples=SAMPLES)[-1:]:
                axes.axhline(value, color="black", linestyle=dashes, linewidth=1, label=method)
        axes.set_xscale("log")
        tidy(axes, division, "kB that a client sends", "")
    systems[0].set_ylabel("CIFAR-10, 10,000 images: test accuracy [%]")
    systems[0].legend(frameon=False, loc="lower right")
    return save(figure, folder, write_table(lines))


def _mean(lines: Sequence[Line], field: str, method: str, division: str, rounds: int) -> float | None:
    found = find(lines, field, method=method, division=division, rounds=rounds, samples=SAMPLES)
    return statistics.fmean(found) if found else None


def write_table(lines: Sequence[Line]) -> str:
    """Return all numbers as Markdown: all classes, then clients' own mixes of classes."""
    text = (
        "CIFAR-10 in EfficientNet-Lite0's features (192 pixels, the last layer and all stages, d = 2,064): test "
        "accuracy [%], mean ± standard deviation over draws of the division. sends: a client, in all, fp16; AFL fp64. "
        "FedAvg of the head: rate and epochs chosen for each division and number of rounds on 2,000 held-out training "
        "images. AFL and pooled (ridge, chosen on these) are the same for every division.\n"
    )
    for field, title in (("accuracy", "all classes"), ("own", "own mix of classes")):
        text += f"\n**{title}**\n\n{_table(lines, field)}"
    return text + (
        "\nPublished figures of a frozen ResNet-18 at N = 100, Dirichlet 0.1 (AFL 80.75, GH-OFL 86.05, SAFLe 90.73) do "
        "not compare: another network and resolution. AFL on these features is the bridge.\n"
    )


def _table(lines: Sequence[Line], field: str) -> str:
    columns = [*((SAMPLES, division) for division in DIVISIONS), (ALL, SKEWED)]
    rows = []
    for method in ("CA", "CS", OWN_MIX, FEDAVG, "AFL", POOLED):
        own = [line for line in lines if line["method"] == method]
        if field == "own":
            own = [line for line in own if "Dirichlet" in line["division"]]
        for rounds, here in sorted(group(own, "rounds").items()):
            if method in ONCE and rounds < max(line["rounds"] for line in own):
                continue  # it is the same after what was shared once
            told = method if method in ONCE else f"{method}, {rounds} release{'s'[: rounds > 1]}"
            cells = [
                entry([line[field] for line in here if line["samples"] == samples
                       and line["division"] in (division, "one client")])
                for samples, division in columns
            ]  # fmt: skip
            sends = statistics.fmean(line["up"] for line in here)
            if any(cells):
                rows.append([told, *(each or "–" for each in cells), f"{sends / 1000:,.0f} kB" if sends else "–"])
    heads = [division if samples == SAMPLES else f"{division}, 50,000 images" for samples, division in columns]
    return markdown(["<", *heads, "sends"], rows)


BACKBONE = Experiment("backbone", plan, show, seeds=3, datasets=("cifar10",), carry_out=carry_out, rounds=max(ROUNDS))
