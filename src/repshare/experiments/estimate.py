"""An estimate of how long cells will take: a few steps of each model are timed here, and counted."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch

from repshare.client import Client
from repshare.config import ResolvedSetting, Run
from repshare.data import Splits
from repshare.data.arrays import take
from repshare.experiments.experiment import Cell, Load
from repshare.learning.samples import Samples
from repshare.methods import find_method
from repshare.simulation.plan import Plan, as_tensors, build_model, make_common, make_plan
from repshare.simulation.schedule import test_interval

TIMED_BATCHES, TIMED_IMAGES = 2, 50
Pace = tuple[float, float]  # seconds that one core takes to train on a sample, and to represent it


def estimate(cells: Sequence[Cell], load: Load, workers: int) -> float:
    """Return the seconds for these cells, shared among this many processes that have a core each."""
    paces: dict[tuple[str, tuple[str, ...]], Pace] = {}
    total = 0.0
    for cell in cells:
        setting = cell.run.setting
        splits = load(setting.dataset)
        if find_method(cell.run.method).in_space:
            total += _seconds_in_space(make_plan(cell.run, splits))
            continue
        model = (setting.dataset, setting.model)
        if model not in paces:
            paces[model] = _time(make_plan(cell.run, splits))
        at_once = 1 if find_method(cell.run.method).models == "pooled" else min(workers, setting.clients)
        total += _seconds(cell.run, splits, paces[model]) / at_once
    return total


def in_words(seconds: float) -> str:
    """Return a duration as text, rounded so that it does not look exact."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(seconds, 1):.0f} seconds"


def _seconds(run: Run[ResolvedSetting], splits: Splits, pace: Pace) -> float:
    method, setting = find_method(run.method), run.setting
    rounds, samples = setting.rounds, setting.samples
    trained = rounds * samples * setting.policy.epochs
    represented = rounds * samples if method.share is not None and method.models != "one" else 0
    tests = math.ceil(rounds / test_interval(setting))
    tested = tests * len(splits.test.labels) * (1 if method.models in ("one", "pooled") else setting.clients)
    training, representing = pace
    return trained * training + (represented + tested) * representing


def _seconds_in_space(plan: Plan) -> float:
    """Return what the common space takes for all training and test samples; the rounds take less."""
    space = make_common(plan.run, take(plan.train_inputs, slice(1))).space
    timed = as_tensors(take(plan.train_inputs, slice(TIMED_IMAGES)), copied=True)
    count = min(TIMED_IMAGES, len(plan.train_labels))
    return _once(lambda: space(timed)) / count * (len(plan.train_labels) + len(plan.test_labels))


def _time(plan: Plan) -> Pace:
    """Train and test one client for a moment, with one thread as a worker does."""
    threads, batch = torch.get_num_threads(), plan.run.setting.policy.batch_size
    torch.set_num_threads(1)
    try:
        timed = slice(TIMED_BATCHES * batch)
        data = take(plan.train_inputs, timed), plan.train_labels[timed]
        policy = replace(plan.run.setting.policy, epsilon=None, end_to_end=False)  # DP-SGD takes a few times as long
        client = Client(build_model(plan, plan.model(0), 0), Samples(data), policy=policy)
        return _once(client.learner.train) / len(data[1]), _once(client.learner.represent) / len(data[1])
    finally:
        torch.set_num_threads(threads)


def _once(work: Callable[[], object]) -> float:
    work()  # the first time, memory is fetched
    started = time.perf_counter()
    work()
    return time.perf_counter() - started
