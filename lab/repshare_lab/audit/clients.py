"""Membership inference on the bytes that a client publishes: the attacker knows everything but one sample.

Attacks on the guard alone do not see what a client does before it: which samples it holds out, how it embeds them. The
attacker can run clients of its own, so that it learns from half of the trials what the two worlds differ in on average,
whatever the reason, and scores the other half by that.
"""

from collections.abc import Generator
from typing import Any, Literal

import numpy as np
import torch

from repshare.board import Board
from repshare.client import Client
from repshare.config import Policy
from repshare.errors import RepshareError
from repshare.exchange.local import LocalExchange
from repshare.sharing import wire
from repshare.space import Fourier
from repshare.space.agreement import Agreement
from repshare_lab.audit.bounds import Worlds, judge
from repshare_lab.audit.capture import Tapped
from repshare_lab.audit.grid import Grid
from repshare_lab.audit.sequences import Array

Adjacency = Literal["add-remove", "replace"]

CASES: dict[str, Adjacency] = {"client, added": "add-remove", "client, replaced": "replace"}
SAMPLES, COLUMNS, CLASSES = 40, 2, 2
EDGE = 3.0  # the largest value of a column
HELD_OUT = 0.5  # large: other held-out samples would show
MOST_TRIALS = 200  # each takes four clients
SECRET = b"\5" * 16  # by this one the candidate counts: an attacker that knows what is held out sees more
COMMON = Agreement(Fourier((-EDGE,) * COLUMNS, (EDGE,) * COLUMNS, features=4), "discriminant")

Data = tuple[torch.Tensor, torch.Tensor]


def infer_membership(grid: Grid, *, share: float) -> Generator[dict[str, Any]]:
    """Attack one release that takes the whole budget, in each case."""
    trials = min(grid.trials, MOST_TRIALS)
    for epsilon in grid.epsilons:
        for name in CASES:
            worlds, accounted = attack_clients(name, epsilon, trials, delta=grid.delta, share=share)
            setting = {"case": name, "epsilon": epsilon, "releases": 1, "trials": trials}
            yield {**setting, "accounted": accounted, **judge(worlds, grid.delta)._asdict()}


def attack_clients(
    case: str, epsilon: float, trials: int, *, delta: float = Policy.delta, share: float = 1.0
) -> tuple[Worlds, float]:
    """Return the scores in both worlds, of so many trials, and ε as clients' ledgers have it.

    Args:
        case: Its name.
        epsilon: The clients' budget.
        trials: The number of trials that are scored, each of a client of its own; as many more are learnt from.
        delta: δ.
        share: The share of the noise that clients add: 1, or less to see that it is noticed.
    """
    adjacency = CASES[case]
    policy = Policy(epsilon=epsilon, delta=delta, adjacency=adjacency, releases=1, held_out=HELD_OUT, seeded_noise=True)
    seen, spent = [], 0.0
    for world, data in enumerate(_make_worlds(adjacency)):
        found = []
        for trial in range(2 * trials):
            rows, spent = _publish(data, policy, seed=4 * trials * world + trial, share=share)
            found.append(rows)
        seen.append(np.stack(found))  # (2 trials, numbers)
    direction = seen[1][:trials].mean(axis=0) - seen[0][:trials].mean(axis=0)
    return Worlds(seen[0][trials:] @ direction, seen[1][trials:] @ direction), spent


def _make_worlds(adjacency: Adjacency) -> tuple[Data, Data]:
    """Return the samples without a candidate in their middle, or with its opposite, and with it."""
    rng, middle = np.random.default_rng(0), SAMPLES // 2
    rows = rng.uniform(-EDGE, EDGE, (SAMPLES, COLUMNS)).astype(np.float32)
    labels = np.arange(SAMPLES) % CLASSES
    rows[middle] = EDGE
    other = rows.copy()
    other[middle] = -EDGE
    kept = np.arange(SAMPLES) != middle if adjacency == "add-remove" else np.ones(SAMPLES, bool)
    without, within = (other[kept], labels[kept]), (rows, labels)
    return _as_tensors(*without), _as_tensors(*within)


def _as_tensors(rows: Any, labels: Any) -> Data:
    return torch.from_numpy(rows), torch.from_numpy(labels)


def _publish(data: Data, policy: Policy, *, seed: int, share: float) -> tuple[Array, float]:
    """Return the sums in what a client publishes in its first round, and what its ledger says of them."""
    given: dict[str, Any] = {"policy": policy, "seed": seed, "name": "client"}
    tap = Tapped(LocalExchange(Board(COMMON.task(CLASSES)), "client"))
    client = Client(None, data, tap, space=COMMON, classes=CLASSES, secret=SECRET, **given)
    guard: Any = client.guard
    bill = guard._bill

    def bill_less(*told: Any) -> Any:
        noise, *rest = bill(*told)
        return noise * share, *rest

    guard._bill = bill_less
    if (trouble := client.round(test=False).trouble) is not None:
        raise RepshareError(f"nothing was released: {trouble}")
    means = wire.decode_release(tap.published[0]).means
    return means.vectors[:CLASSES].ravel().astype(np.float64), guard.spent
