"""How well do honest clients learn when a fifth of all clients lie? Writes benchmarks/poisoning.md.

MNIST, 1,200 samples, 10 clients with LeNet5, 30 rounds. Liars share their class means and observations turned round, or
a hundred times as long. The same seeds, and the same honest clients, with and without liars.
"""

from dataclasses import replace
from pathlib import Path
from typing import get_args

import numpy as np

from repshare.config import Aggregation
from repshare_lab.config import Run, Setting
from repshare_lab.data import Splits, load
from repshare_lab.simulation import Processes, Workers, simulate
from repshare_lab.simulation.attacks import choose_attackers
from repshare_lab.simulation.plan import resolve

SEEDS = 5
SHARE = 0.2
TIGHT = 84**0.5  # no representation made of tanh can be longer

HEAD = f"""# A fifth of the clients lie

`python benchmarks/poisoning.py`: MNIST, 1,200 samples, 10 clients, LeNet5, RS, 30 rounds; test accuracy of the 8 honest
clients after the last round [%], mean ± standard deviation over {SEEDS} seeds; in brackets the difference to no liars
with the same aggregate. Liars turn every vector round (`flip`) or make it a hundred times as long (`scale`). The task's
norm bound is √84, the most that 84 tanh features can have, except in the last column.

| aggregate | no liars | flip | scale | scale, no bound to speak of (10⁶) |
|---|---|---|---|---|
"""

TAIL = """
With a norm bound that fits the features, what is too long is refused at the door, whatever the aggregate. Without one,
the mean is lost; the robust aggregates hold the class means, but observations, which go to clients one by one, still
arrive a hundred times too long. So a relay's tasks have a norm bound of 4 √d' unless `--norm-bound` says otherwise. The
median bears fewer than half. Means turned round did no harm in 30 rounds,
even with the mean; why, and whether that lasts for 100 rounds, was not measured.
"""


def honest_accuracy(setting: Setting, seed: int, splits: Splits, workers: Workers) -> float:
    """The mean over those that are honest also when others lie."""
    *_, last = simulate(Run("RS", seed, setting), splits, workers)
    liars = choose_attackers(replace(setting, attackers=SHARE), seed, setting.clients)
    accuracies = [record.test_accuracy for client, record in enumerate(last) if client not in liars]
    return 100 * float(np.mean(np.array(accuracies, float)))


def main() -> None:
    splits = load("mnist", progress=True)
    base = resolve(Setting(clients=10, rounds=30, eval_every=30, norm_bound=TIGHT), len(splits.train.labels))
    columns = {
        "no liars": {},
        "flip": {"attackers": SHARE, "attack": "flip"},
        "scale": {"attackers": SHARE, "attack": "scale"},
        "scale, no bound": {"attackers": SHARE, "attack": "scale", "norm_bound": 1e6},
    }
    lines = []
    with Processes(2) as workers:
        for how in get_args(Aggregation):
            cells: list[str] = []
            alone = 0.0
            for name, changes in columns.items():
                setting = replace(base, aggregation=how, **changes)
                found = [honest_accuracy(setting, seed, splits, workers) for seed in range(SEEDS)]
                alone = alone or float(np.mean(found))
                change = "" if name == "no liars" else f" ({np.mean(found) - alone:+.2f})"
                cells.append(f"{np.mean(found):.2f} ± {np.std(found):.2f}{change}")
                print(how, name, cells[-1], flush=True)
            lines.append(f"| {how} | {' | '.join(cells)} |")
    Path(__file__).with_suffix(".md").write_text(HEAD + "\n".join(lines) + "\n" + TAIL)


if __name__ == "__main__":
    main()
