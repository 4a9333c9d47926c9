"""A rehearsal of CS with a privacy budget: the accuracy to expect, tried on stand-in data before anyone sends anything.

Samples, noise and classifiers go through the code that ships. Of a data set only training samples are used, some of
them held out for the accuracy. If there are fewer than all clients together will have, their sums are multiplied: as if
everybody's data were like these.
"""

import math
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import torch

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.privacy.sums import SumsGuard
from repshare.randomness import numpy_stream
from repshare.samples import Samples
from repshare.sharing import sums
from repshare.sharing.representations import Floats, Integers, Teacher
from repshare.space import choose
from repshare.space.agreement import Agreement
from repshare.space.discriminant import Discriminant
from repshare.space.model import Linear
from repshare_lab.data.datasets import Dataset

SPACE = ("patches", "filters=24", "deep=0", "fourier=0", "components=256")  # few numbers need less noise
SEED = 0
MOST_HELD_OUT, HELD_OUT = 2000, 0.2  # samples that are only tested on: at most, and of all
MOST_TESTED = 10  # clients whose classifiers are tested
BATCH = 500  # samples that are embedded at a time
KINDS = ("common", "personal")  # without and with the client's own samples

Line = dict[str, Any]


class StandIn(NamedTuple):
    """The clients to expect, and the samples that stand for theirs."""

    data: Dataset  # normalised
    classes: int
    common: Agreement
    samples: int  # of all clients together
    clients: int
    draws: int

    @property
    def held_out(self) -> int:
        """The number of samples that are only tested on: the first ones in a random order."""
        return min(MOST_HELD_OUT, int(HELD_OUT * len(self.data.labels)))

    @property
    def used(self) -> int:
        """The number of samples in each draw."""
        return min(self.samples, len(self.data.labels) - self.held_out)


def set_scene(
    data: Dataset, classes: int, space: Sequence[str], *, samples: int | None, clients: int, draws: int
) -> StandIn:
    """Choose the space, and check that there is enough of everything. `samples` None: all there are."""
    common = Agreement(choose(space or SPACE, torch.from_numpy(data.images[:1].copy()), SEED), "discriminant")
    stand_in = StandIn(data, classes, common, samples or len(data.labels), clients, draws)
    if min(clients, draws) < 1 or not stand_in.held_out:
        raise ConfigError(f"a plan needs clients, draws and at least {math.ceil(1 / HELD_OUT)} training samples")
    if stand_in.samples < clients:
        raise ConfigError(f"{stand_in.samples} samples cannot be shared among {clients} clients, one each at least")
    return stand_in._replace(samples=stand_in.used) if samples is None else stand_in


def budgets(policy: Policy, epsilons: Sequence[float]) -> list[tuple[float | None, int]]:
    """Return what is tried: each ε with the noise shared out, and with each client's own; last, no noise."""
    kinds = dict.fromkeys((policy.noise_shares, 1))
    return [*((epsilon, shares) for epsilon in epsilons for shares in kinds), (None, 1)]


def count_steps(stand_in: StandIn, policy: Policy, epsilons: Sequence[float]) -> int:
    """Return how many times `rehearse` yields."""
    return -(-len(_rows(stand_in)) // BATCH) + stand_in.draws * len(budgets(policy, epsilons))


def rehearse(stand_in: StandIn, policy: Policy, epsilons: Sequence[float]) -> Generator[Line | None]:
    """Yield a line for each draw, budget and kind of noise: accuracies, and the noise's deviation. None: no line yet.

    `policy` says how many members' noise is enough, where it is shared out.
    """
    rows = _rows(stand_in)
    pieces = []
    for chosen in np.split(rows, range(BATCH, len(rows), BATCH)):
        batch = Samples((stand_in.data.images[chosen].astype(np.float32), stand_in.data.labels[chosen]))
        pieces.append(stand_in.common.embed(batch)[0])
        yield None
    vectors, labels = np.concatenate(pieces), stand_in.data.labels[rows]
    place = {int(row): number for number, row in enumerate(rows)}
    tested = vectors[: stand_in.held_out], labels[: stand_in.held_out]
    for draw in range(stand_in.draws):
        chosen = np.array([place[int(row)] for row in _draw(stand_in, draw)])
        yield from _rehearse(stand_in, policy, epsilons, draw, (vectors, labels), chosen, tested)


def _rehearse(
    stand_in: StandIn,
    policy: Policy,
    epsilons: Sequence[float],
    draw: int,
    everything: tuple[Floats, Integers],
    chosen: Integers,
    tested: tuple[Floats, Integers],
) -> Iterator[Line]:
    vectors, labels = everything
    exact = sums.add_up(sums.lift(vectors[chosen]), labels[chosen], stand_in.classes)
    exact *= stand_in.samples / len(chosen)
    parts = _divide(chosen, stand_in.samples, stand_in.clients)[:MOST_TESTED]
    clients = [
        {kind: Discriminant(vectors[own], labels[own], stand_in.classes, personal=kind == "personal") for kind in KINDS}
        for own in parts
    ]
    alone = np.mean([_accuracy(client["personal"].alone(), tested) for client in clients])
    rng = numpy_stream(SEED, "noise", draw)
    for epsilon, shares in budgets(policy, epsilons):
        line: Line = {"draw": draw, "epsilon": epsilon, "shares": shares, "alone": float(alone)}
        noise, variance = np.zeros_like(exact), 0.0
        if epsilon is not None:
            noise, variance = _draw_noise(stand_in, replace(policy, epsilon=epsilon, noise_shares=shares), rng)
        total = _total(stand_in, exact + noise, variance)
        line["deviation"] = math.sqrt(total.variance)
        for kind in KINDS:
            for client in clients:
                client[kind].absorb(total)
            line[kind] = float(np.mean([_accuracy(client[kind].linear(), tested) for client in clients]))
        yield line


def _draw_noise(stand_in: StandIn, policy: Policy, rng: np.random.Generator) -> tuple[sums.Sum, float]:
    """Return the noise in the sum of all clients' releases, and the variance of one client's.

    A client without samples releases noise only; that of all clients is √clients times as large.
    """
    dimension, nobody = stand_in.common.space.dimension, np.zeros(0, np.int64)
    guard = SumsGuard(policy, nobody, classes=stand_in.classes, space=stand_in.common.name, seeded=rng)
    release = guard.release(sums.lift(np.zeros((0, dimension), np.float32)), nobody, nobody, 1)
    noise = release.means.vectors[: stand_in.classes, : dimension + 1].astype(np.float64)
    return noise * math.sqrt(stand_in.clients), sums.read_variance(release)


def _total(stand_in: StandIn, noisy: sums.Sum, variance: float) -> sums.Sums:
    """Return sums as a client reads them off a teacher, the mean over clients."""
    release = sums.as_release(noisy / stand_in.clients, 1, stand_in.common.name, variance=variance)
    means = release.means._replace(counts=np.full_like(release.means.counts, stand_in.clients))
    teacher = Teacher(means, release.observations, stand_in.common.name)
    total = sums.read_sums(teacher, stand_in.classes, stand_in.common.space.dimension, stand_in.common.name)
    assert total is not None  # it has rows
    return total


def _rows(stand_in: StandIn) -> Integers:
    """Return the rows that are needed: those held out, then those of any draw."""
    held = _order(stand_in)[: stand_in.held_out]
    return np.concatenate([held, np.unique(np.concatenate([_draw(stand_in, draw) for draw in range(stand_in.draws)]))])


def _draw(stand_in: StandIn, draw: int) -> Integers:
    """Return the rows of a draw, in random order."""
    rest = _order(stand_in)[stand_in.held_out :]
    return numpy_stream(SEED, "draw", draw).permutation(rest)[: stand_in.used]


def _order(stand_in: StandIn) -> Integers:
    return numpy_stream(SEED, "held out").permutation(len(stand_in.data.labels))


def _divide(rows: Integers, samples: int, clients: int) -> list[Integers]:
    """Return each client's rows. Where there are too few for all, clients have some in common."""
    size = samples // clients
    reach = np.arange(min(size, len(rows)))
    return [rows[(client * size + reach) % len(rows)] for client in range(clients)]


def _accuracy(linear: Linear, tested: tuple[Floats, Integers]) -> float:
    vectors, labels = tested
    return float((linear(vectors).argmax(axis=1) == labels).mean())
