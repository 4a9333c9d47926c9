"""Accuracy against ε end to end: MNIST, ten clients, the paper's data and ten times as much.

    python benchmarks/end_to_end.py 240        # seconds after which no more are begun; the same command goes on

Nothing was tuned: one setting, chosen before looking at any result. Batches are of 60 on average (half of the paper's
120 samples of a client: DP-SGD wants large ones), there is a release every 5 rounds, and observations are of whole
classes. There are 40 rounds, not the paper's 100, since each costs privacy; with ten times the data 10, each of which
has ten times as many steps.
"""

import json
import math
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path

from repshare.config import Policy, Run, Setting
from repshare.data import load
from repshare.results import write_atomically
from repshare.simulation import Processes, simulate
from repshare.simulation.plan import resolve

FOLDER = Path(__file__).parent.parent / "docs/results/end-to-end"
CLIENTS, SEEDS, EVERY = 10, 3, 5
SAMPLES = {1200: 40, 12_000: 10}  # and rounds
EPSILONS = (2.0, 8.0, 32.0)
PRIVATE = Policy(batch_size=60, n_avg=10_000, release_every=EVERY)


def points() -> list[tuple[str, int, float | None, int]]:
    """Method, samples, ε and seed of each; seed by seed, so that what is there is even."""
    order: list[tuple[str, float | None]] = [("RS", 8.0), ("IL", None), ("RS", None), ("RS", 32.0), ("RS", 2.0)]
    return [(method, n, epsilon, seed) for seed in range(SEEDS) for method, epsilon in order for n in SAMPLES]


def measure(method: str, samples: int, epsilon: float | None, seed: int, splits: object, workers: object) -> float:
    rounds = SAMPLES[samples]
    private = {} if epsilon is None else {"epsilon": epsilon, "end_to_end": True}
    policy = replace(PRIVATE, planned_releases=rounds // EVERY, **private)
    setting = Setting(samples=samples, clients=CLIENTS, rounds=rounds, eval_every=rounds, policy=policy)
    run = Run(method, seed, resolve(setting, len(splits.train.labels)))
    *_, last = simulate(run, splits, workers)
    return statistics.fmean(record.test_accuracy for record in last)


def main() -> None:
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / "records.jsonl"
    lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    done = {(line["method"], line["samples"], line["epsilon"], line["seed"]) for line in lines}
    splits, until = load("mnist"), time.monotonic() + (float(sys.argv[1]) if len(sys.argv) > 1 else math.inf)
    with Processes(2) as workers:
        for point in (point for point in points() if point not in done):
            if time.monotonic() > until:
                break
            accuracy = measure(*point, splits, workers)
            lines.append(
                dict(zip(("method", "samples", "epsilon", "seed"), point, strict=True)) | {"accuracy": accuracy}
            )
            write_atomically(path, "".join(json.dumps(line) + "\n" for line in lines))
            print(lines[-1], flush=True)
    write_atomically(FOLDER / "table.md", table(lines))


def table(lines: list[dict]) -> str:
    """Mean ± standard deviation over seeds, last round."""
    rows = ["| MNIST, 10 clients | " + " | ".join(f"{n // CLIENTS} samples a client" for n in SAMPLES) + " |"]
    rows.append("|---|" + "---:|" * len(SAMPLES))
    for title, method, epsilon in [
        ("IL, no noise", "IL", None),
        ("RS, no noise", "RS", None),
        *((f"RS, ε = {epsilon:g} end to end", "RS", epsilon) for epsilon in EPSILONS),
    ]:
        cells = []
        for n in SAMPLES:
            found = [
                100 * line["accuracy"]
                for line in lines
                if (line["method"], line["samples"], line["epsilon"]) == (method, n, epsilon)
            ]
            spread = f" ± {statistics.stdev(found):.2f}" if len(found) > 1 else ""
            cells.append(f"{statistics.fmean(found):.2f}{spread} ({len(found)})" if found else "–")
        rows.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join([*rows, "", "Test accuracy [%], mean ± standard deviation over (so many) seeds, δ = 10⁻⁵.", ""])


if __name__ == "__main__":
    main()
