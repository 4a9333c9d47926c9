"""Accuracy against ε end to end: MNIST, ten clients, the paper's data and ten times as much.

    python benchmarks/end_to_end.py 240        # seconds after which no more are begun; the same command goes on

Nothing was tuned here: as in `repshare reproduce privacy`, there is one release, which takes the whole budget, after
round 5 of 100, or with ten times the data after round 1 of 10. Until then training has the noise of DP-SGD; after it
nothing can leave any more, and training goes on without.
"""

import json
import math
import statistics
import sys
import time
from pathlib import Path

from repshare.config import Policy, Run, Setting
from repshare.data import load
from repshare.results import write_atomically
from repshare.simulation import Processes, simulate
from repshare.simulation.plan import resolve

FOLDER = Path(__file__).parent.parent / "docs/results/end-to-end"
CLIENTS, SEEDS = 10, 3
SAMPLES = {1200: (100, 5), 12_000: (10, 1)}  # and rounds, and after which the one release is
EPSILONS = (1.0, 10.0, 100.0)


def points() -> list[tuple[str, int, float | None, int]]:
    """Method, samples, ε and seed of each; seed by seed, so that what is there is even."""
    order: list[tuple[str, float | None]] = [("RS", 10.0), ("IL", None), ("RS", 100.0), ("RS", 1.0), ("RS", None)]
    return [(method, n, epsilon, seed) for seed in range(SEEDS) for method, epsilon in order for n in SAMPLES]


def measure(method: str, samples: int, epsilon: float | None, seed: int, splits: object, workers: object) -> float:
    rounds, after = SAMPLES[samples]
    policy = Policy()
    if epsilon is not None:
        policy = Policy(epsilon=epsilon, end_to_end=True, planned_releases=1, release_every=after)
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
        ("RS, no noise, every round", "RS", None),
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
