"""`compare` and `run` as lists of runs, each carried out round by round, and resumed where it was interrupted."""

from collections.abc import Generator, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repshare.config import ResolvedSetting, Run, Setting
from repshare.data import Splits, histogram
from repshare.errors import ConfigError
from repshare.imports import describe_code, is_reference
from repshare.learning.randomness import numpy_stream
from repshare.methods import METHODS, Method, find_method
from repshare.results.records import Folder, Journal, Line, Summary, group, summarise
from repshare.simulation import Checkpoint, Workers, following, resolve, simulate
from repshare.simulation.checkpoint import States
from repshare.simulation.plan import deal, make_plan, make_run, make_task
from repshare.simulation.schedule import is_ever_tested

Step = tuple[str, int, int]  # a run's title, the round that is over, and the number of its rounds


def plan_comparison(setting: Setting, methods: Sequence[str], seeds: int, splits: Splits) -> list[Run[ResolvedSetting]]:
    """Plan every method on the same splits and seeds. Raises on anything that could not be carried out."""
    resolved, chosen = resolve(setting, splits), choose_methods(methods, setting)
    runs = [make_run(name, seed, resolved) for seed in range(seeds) for name in chosen]
    for run in runs[: len(chosen)]:
        make_task(make_plan(run, splits))
    for run in runs:
        if find_method(run.method).models != "pooled" and not is_ever_tested(run.setting, run.seed):
            why = f"seed {run.seed}: no client is present in any round that is tested"
            raise ConfigError(f"{why}: use more clients, more tests or fewer absences")
    return runs


def choose_methods(methods: Sequence[str], setting: Setting) -> dict[str, Method]:
    """Return the methods, by their names in a run, with their options. Raises if one is unknown or named twice."""
    found = {each if is_reference(each) else each.upper(): find_method(each, setting) for each in methods}
    if not found:
        raise ConfigError(f"methods are missing: choose from {', '.join(METHODS)}, or your own as file.py:NAME")
    names = [method.name.upper() for method in found.values()]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"two methods are called {twice[0]}: give one of them another name")
    for option in setting.method_options:
        name, dot, _ = option.partition(".")
        if not dot or name.upper() not in names:
            told = ", ".join(method.name for method in found.values())
            raise ConfigError(f"{option!r} is no METHOD.option=value: the methods of this comparison are {told}")
    return found


def name_of(run: Run[Setting]) -> str:
    """Return the name of the run's method in records, tables and figures."""
    return find_method(run.method).name


def who_has_what(run: Run[Setting], splits: Splits) -> NDArray[np.int64]:
    """Count samples by client and class (clients, classes)."""
    labels = splits.train.labels[: run.setting.samples]
    parts = deal(run.setting, labels, numpy_stream(run.seed, "partition"))
    return histogram(labels, parts, splits.classes)


def describe(runs: Sequence[Run[Setting]]) -> dict[str, Any]:
    """Return the contents of run.json."""
    methods, setting = list(dict.fromkeys(run.method for run in runs)), runs[0].setting
    described = {"methods": methods, "seeds": sorted({run.seed for run in runs}), "setting": asdict(setting)}
    return described | describe_code([*methods, setting.dataset, *setting.model, *setting.space])


def carry_out(
    runs: Sequence[Run[ResolvedSetting]],
    splits: Splits,
    folder: Folder,
    workers: Workers,
    *,
    checkpoint_every: int | None = None,
) -> Generator[Step]:
    """Carry out the runs that the folder does not hold yet, writing each round's records as it ends.

    A run that was interrupted resumes from its last checkpoint, and what was recorded after that is recorded again.
    """
    finished = folder.finished()
    for run in runs:
        called, last = name_of(run), run.setting.rounds
        if (called, run.seed) in finished:
            yield f"{called}, seed {run.seed}", last, last
            continue
        name = f"{called}-{run.seed}"
        yield from resume_run(run, splits, folder, name, folder.records, workers, checkpoint_every)
        folder.finish(called, run.seed)
        checkpoints(folder, name).clear()


def resume_run(
    run: Run[ResolvedSetting],
    splits: Splits,
    folder: Folder,
    name: str,
    journal: Journal,
    workers: Workers,
    checkpoint_every: int | None,
) -> Generator[Step]:
    """Simulate from the last checkpoint, with the journal holding this run's records up to there."""
    checkpoint = Checkpoint(checkpoints(folder, name).folder, run)
    own, done = (name_of(run), run.seed), checkpoint.manifest.round
    lines = journal.read()
    journal.keep_only(line for line in lines if (line["method"], line["seed"]) != own or line["round"] <= done)
    with following(simulate(run, splits, workers, checkpoint, checkpoint_every=checkpoint_every)) as rounds:
        for number, records in enumerate(rounds, start=done + 1):
            journal.add({"method": own[0], "seed": run.seed, **asdict(record)} for record in records)
            yield f"{own[0]}, seed {run.seed}", number, run.setting.rounds


def checkpoints(folder: Folder, name: str) -> States:
    """Return the folder with the states of an unfinished run."""
    return States(folder.path / "checkpoints" / name)


def summaries(lines: Sequence[Line]) -> dict[str, Summary]:
    """Return one summary for each method, in the order they were run."""
    return {method: summarise(own) for method, own in group(lines, "method").items()}
