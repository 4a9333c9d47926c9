"""What does a whole run of CS cost beside FedAvg's? Writes benchmarks/common.md.

Both in this process, one after the other, with one thread: processor seconds of all ten clients and the board, and
bytes that a client sends and receives. FedAvg with a large network takes hours. So a part of its run is measured, some
rounds with some samples, and multiplied by what is left out: the table says by how much.

    python benchmarks/common.py            # MNIST, Fashion-MNIST and CIFAR-10: about ten minutes
    python benchmarks/common.py mnist
"""

import resource
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import torch

from repshare.space.dual import Dual
from repshare_lab.config import ResolvedSetting, Setting
from repshare_lab.data import Splits, load
from repshare_lab.simulation import Inline, resolve, simulate
from repshare_lab.simulation.plan import make_run

HEAD = """# What a run of CS costs, compared with FedAvg's

`python benchmarks/common.py`: ten clients, both methods in one process with one thread, one after the other. Compute:
processor seconds of the whole simulation, all clients together, tested on ten images only. CS includes computing the
space, FedAvg computes in fp32. Where a part of FedAvg's run was measured, the factor by which it was multiplied is in
brackets. Traffic: what one client sends and receives.

| data set, network | rounds | compute | of FedAvg's | traffic | of FedAvg's |
|---|---:|---:|---:|---:|---:|
"""


class Part(NamedTuple):
    """How much of FedAvg's run is measured."""

    rounds: int
    samples: int


PARTS = {"mnist": Part(100, 1200), "fashion_mnist": Part(1, 3000), "cifar10": Part(1, 640)}


class Cost(NamedTuple):
    """Of a whole run."""

    rounds: int
    seconds: float
    bytes: float
    factor: float = 1.0


def measure(method: str, setting: ResolvedSetting, splits: Splits) -> Cost:
    """Run it, and add up what its records say."""
    run = make_run(method, 0, setting)
    run = replace(run, setting=replace(run.setting, eval_every=run.setting.rounds))
    with Inline() as workers:
        started = time.process_time()
        records = [record for records in simulate(run, splits.first(test=10), workers) for record in records]
        seconds = time.process_time() - started
        print(f"  {method}: {seconds:.0f} s", file=sys.stderr, flush=True)
    traffic = sum(record.bytes_up + record.bytes_down for record in records) / setting.clients
    return Cost(run.setting.rounds, seconds, traffic)


def compare(dataset: str) -> str:
    """One row for each method."""
    splits, part = load(dataset), PARTS[dataset]
    setting = resolve(Setting(dataset=dataset, clients=10), len(splits.train.labels))
    rounds, samples = setting.rounds, setting.samples
    print(dataset, file=sys.stderr, flush=True)
    less = measure("FL", replace(setting, rounds=part.rounds, samples=part.samples), splits)
    times = rounds / part.rounds
    factor = times * samples / part.samples
    fedavg = Cost(rounds, less.seconds * factor, less.bytes * times, factor)
    shared = measure("CS", setting, splits)
    bracket = f" (× {factor:.0f})" if factor > 1 else ""
    name = f"{dataset}, {setting.model[0]}"
    return (
        f"| {name}: FedAvg | {rounds} | {fedavg.seconds:.1f} s{bracket} | | {fedavg.bytes / 1e6:.2f} MB | |\n"
        f"| CS | {shared.rounds} | {shared.seconds:.1f} s | 1/{fedavg.seconds / shared.seconds:.1f} "
        f"| {shared.bytes / 1e6:.2f} MB | {shared.bytes / fedavg.bytes:.2%} |\n"
    )


def solve_large() -> str:
    """One client with 3,000 samples in 20,000 dimensions: the time of preparing and of a round."""
    vectors = torch.randn(3000, 20_000, generator=torch.Generator().manual_seed(0))
    vectors *= 20_000**0.5 / vectors.norm(dim=1, keepdim=True)
    labels = torch.arange(3000) % 10
    before, started = _peak_bytes(), time.perf_counter()
    dual = Dual(vectors, labels, 10)
    prepared = time.perf_counter() - started
    dual.improve()
    dual.part()
    first = time.perf_counter() - started - prepared
    more = (_peak_bytes() - before) / 1e6
    return (
        f"\nA client with 3,000 samples in 20,000 dimensions, one thread: {prepared:.1f} s to prepare (inner products\n"
        f"and votes), {first:.1f} s for a round. Beside its vectors (240 MB) it takes {more:.0f} MB at most.\n"
    )


def _peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    torch.set_num_threads(1)
    chosen = sys.argv[1:] or list(PARTS)
    large = solve_large()  # first, while little memory has been used
    text = HEAD + "".join(compare(dataset) for dataset in chosen) + large
    print(text)
    if chosen == list(PARTS):
        (Path(__file__).parent / "common.md").write_text(text)
