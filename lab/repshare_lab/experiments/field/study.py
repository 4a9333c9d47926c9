"""The field: every method on the same splits, with the same local epochs, each with and without short features."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from repshare.config import Policy
from repshare.methods import METHODS, Method
from repshare.records import Line
from repshare_lab.config import ResolvedSetting
from repshare_lab.experiments.experiment import Cell, Experiment, Row, make_cell, tell_exposure
from repshare_lab.experiments.field.contenders import BLOCKS, LENGTH, MODEL, ROUNDS, Division, fits
from repshare_lab.experiments.field.rates import Candidate, chosen_for
from repshare_lab.experiments.field.reading import draw, write_tables
from repshare_lab.results.findings import summarise_own
from repshare_lab.results.plots import save
from repshare_lab.results.records import group, summarise

CLIENTS, SAMPLES, SEEDS = 10, 1200, 3


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan every method that fits each division: block by block, and in a block seed by seed. Tested at the end."""
    samples = min(SAMPLES, setting.samples)
    usual = replace(setting, clients=CLIENTS, samples=samples, model=MODEL, eval_every=setting.rounds)
    return [
        _cell(method, chosen, division, penalty, seed, usual)
        for block in BLOCKS
        for seed in range(seeds)
        for penalty in ("off", "on")
        for division in block
        for method, chosen in _contenders(division, penalty)
    ]


def _contenders(division: Division, penalty: str) -> Iterator[tuple[Method, Candidate]]:
    for method in METHODS.values():
        chosen, penalised = chosen_for(method, division), division.penalised and _keeps_features_short(method)
        if chosen is not None and fits(method, division) and (penalty == "off" or penalised):
            yield method, chosen


def _cell(
    method: Method, chosen: Candidate, division: Division, penalty: str, seed: int, usual: ResolvedSetting
) -> Cell:
    key = {"division": division.label, "method": method.name, "penalty": penalty, "seed": seed}
    own = {**division.setting, "method_options": chosen.options}
    policy = {**chosen.policy, "lambda_length": LENGTH if penalty == "on" else 0.0}
    return make_cell(key, Row(method.title, method.name, own, policy), usual)


def _keeps_features_short(method: Method) -> bool:
    """Whether clients train networks by a loss that can have a penalty on long features (λ_length)."""
    return method.adapt(Policy(lambda_length=1.0)).lambda_length > 0


def condense(_: Cell, lines: Sequence[Line]) -> list[Line]:
    """Return the run's summary, with the clients' own mixes, the worst of them, and every client's accuracy."""
    tests = group((line for line in lines if line["test_accuracy"] is not None), "round")
    accuracies = [100 * line["test_accuracy"] for line in tests[max(tests)]]  # in the order of clients
    mix = summarise_own(lines)
    more = {
        name: values[0] if values else None
        for name, values in {"own": mix.own, "worst": mix.worst, "unseen": mix.unseen}.items()
    }
    return [{**summarise(lines)._asdict(), **more, "accuracies": accuracies}]


def show(lines: Sequence[Line], folder: Path, setting: ResolvedSetting) -> list[Path]:
    """Draw accuracy against bytes, and write a table for each division."""
    tables = write_tables(lines, setting.dataset) + tell_exposure(plan(setting, 1))
    return save(draw(lines, setting.dataset), folder, tables)


FIELD = Experiment("field", plan, show, condense, seeds=SEEDS, rounds=ROUNDS, datasets=("mnist",))
