"""How much faster are clients side by side? Both kernels take turns, on MNIST with LeNet5 and batches of 32.

    .venv/bin/python benchmarks/stacked.py            about two minutes; prints ratios of median seconds a round
    .venv/bin/python benchmarks/stacked.py --turns 1  a look

Nothing is tested, and the first round of a turn does not count. With one client a worker, none has company.
"""

import argparse
import os
import statistics
import time

from repshare.config import Kernels, Run, Setting
from repshare.data import Splits, load
from repshare.simulation import Inline, Processes, Workers, simulate

KERNELS: tuple[Kernels, ...] = ("single", "stacked")
CASES = [("FL", 2, 20), ("FL", 10, 9), ("RS", 10, 9), ("FL", 100, 3)]  # method, clients, rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=3, help="how many times each is measured")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes; 0 uses none")
    options = parser.parse_args()
    splits = load("mnist")
    with Processes(options.workers) if options.workers else Inline() as workers:
        for method, clients, rounds in CASES:
            seconds: dict[Kernels, list[float]] = {kernels: [] for kernels in KERNELS}
            for _ in range(options.turns):
                for kernels in KERNELS:
                    seconds[kernels].append(measure(method, clients, rounds, kernels, splits, workers))
            single, stacked = (statistics.median(seconds[kernels]) for kernels in KERNELS)
            ratios = sorted(a / b for a, b in zip(*seconds.values(), strict=True))
            spread = f"{ratios[0]:.2f}–{ratios[-1]:.2f}"
            print(
                f"{method}, N = {clients}: {single:.4f} s a round single, {stacked:.4f} stacked: "
                f"× {statistics.median(ratios):.2f} ({spread})",
                flush=True,
            )


def measure(method: str, clients: int, rounds: int, kernels: Kernels, splits: Splits, workers: Workers) -> float:
    """Return the median seconds of a round."""
    setting = Setting(
        samples=120 * clients, clients=clients, rounds=rounds + 2, model=("lenet5",), eval_every=rounds + 2,
        kernels=kernels,
    )  # fmt: skip
    steps, took = simulate(Run(method, 0, setting), splits, workers), []
    next(steps)
    for _ in range(rounds):
        began = time.perf_counter()
        next(steps)
        took.append(time.perf_counter() - began)
    steps.close()
    return statistics.median(took)


if __name__ == "__main__":
    main()
