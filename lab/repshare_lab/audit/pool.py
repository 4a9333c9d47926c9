"""Attacks carried out on a data set: whose samples clients have, what is public, and what attacks come to.

Everything is two draws of clients. An attack's choices are those that were best on the other draw, so that none is
made by its result.
"""

import statistics
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch

from repshare.config import Policy, SpaceLoss
from repshare.errors import ConfigError
from repshare.space import choose
from repshare.space.agreement import Agreement
from repshare.space.space import Space
from repshare_lab.audit.capture import Captured, Noisy, Told, capture, capture_sums
from repshare_lab.audit.sequences import (
    ATTACKS,
    FIRST,
    KNOWING,
    Array,
    Attack,
    Labels,
    Points,
    Public,
    area,
    guess_weights,
    score,
    score_means,
)
from repshare_lab.data import Splits
from repshare_lab.simulation.embedding import Shortened

DRAWS = 2
BESIDE = 3  # clients, at least: whoever is seen alone has two others
MOST_PUBLIC, MOST_TESTED = 8000, 2000
BATCH = 500  # samples that are embedded at a time

Line = dict[str, Any]


class Pool:
    """A data set, each sample of which is public, or tested on, or a client's."""

    def __init__(self, splits: Splits) -> None:
        self.embedded = splits.embedded
        prepared = splits if self.embedded else splits.prepared()
        both = prepared.train, prepared.test
        inputs = (self.embedded.train, self.embedded.test) if self.embedded else [each.images for each in both]
        self.inputs = np.concatenate(inputs).astype(np.float32, copy=False)
        self.labels = np.concatenate([each.labels for each in both]).astype(np.int64)
        self.classes, count = splits.classes, len(self.labels)
        public = min(MOST_PUBLIC, count // 3)
        cuts = [public, public + min(MOST_TESTED, count // 6)]
        order = np.random.default_rng(0).permutation(count)
        self.public, self.tested, self.rest = np.split(order, cuts)  # rows

    def choose(self, words: tuple[str, ...]) -> Space:
        """Return the space that these words name; of vectors of a recipe, what it would make of the images."""
        if self.embedded:
            return Shortened(" ".join(words), self.inputs.shape[1])
        return choose(words, torch.from_numpy(self.inputs[:1]), 0)

    def draws(self, seed: int) -> list[Labels]:
        """Return the rows of clients in two random orders."""
        return [np.random.default_rng([seed, place]).permutation(self.rest) for place in range(DRAWS)]

    def divide(self, samples: int, members: int, seed: int = 0, clients: int = BESIDE) -> list[list[Labels]]:
        """Return the rows of each client, in two draws.

        Args:
            samples: The samples behind what is seen, before some are held out.
            members: The clients whose total is seen; 1: a client by itself.
            seed: The seed of the draws.
            clients: All clients, at least.
        """
        own, clients = samples // members, max(members, clients)
        if own < 1 or own * clients > len(self.rest):
            raise ConfigError(
                f"{clients} clients of {own} samples each need {max(own, 1) * clients:,}; there are {len(self.rest):,}"
            )
        return [[rows[i * own : (i + 1) * own] for i in range(clients)] for rows in self.draws(seed)]

    def capture(self, common: Agreement, *, members: int, releases: int, **drawn: int) -> list[Captured]:
        """Capture what clients release without noise, `releases` times, in two draws: see `divide`."""
        return [
            capture(common, self.inputs, self.labels, owners, self.classes, visible=members, releases=releases)
            for owners in self.divide(members=members, **drawn)
        ]

    def capture_sums(
        self, common: Agreement, policy: Policy, *, members: int, seed: int = 0, **drawn: int
    ) -> list[Noisy]:  # fmt: skip
        """Capture the noisy class sums of clients, in two draws: see `divide`."""
        given: dict[str, Any] = {"classes": self.classes, "policy": policy, "visible": members}
        return [
            capture_sums(common, self.inputs, self.labels, owners, **given, seed=DRAWS * seed + draw)
            for draw, owners in enumerate(self.divide(members=members, seed=seed, **drawn))
        ]


class Ground(NamedTuple):
    """A pool in a space."""

    common: Agreement
    public: Public
    strangers: Points

    @property
    def dimension(self) -> int:
        """The length of a vector in numbers."""
        return self.common.space.dimension


@lru_cache(1)
def lay_ground(pool: Pool, words: tuple[str, ...], loss: SpaceLoss = "squared") -> Ground:
    """The attacker's knowledge, and strangers, in the space that these words name."""
    common = Agreement(pool.choose(words), loss)

    def embed(rows: Labels) -> Points:
        pieces = [
            common.vectors(torch.from_numpy(pool.inputs[rows[i : i + BATCH]])) for i in range(0, len(rows), BATCH)
        ]
        return Points(np.concatenate(pieces).astype(np.float64), pool.labels[rows])

    return Ground(common, Public(embed(pool.public), pool.classes), embed(pool.tested))


def attack_releases(ground: Ground, captured: Sequence[Captured], releases: Sequence[int]) -> list[Line]:
    """Attack the first releases of two draws; return the AUC of the attacks that were best on the other draw.

    Args:
        ground: What the attacker knows.
        captured: What it sees, in each draw.
        releases: The numbers of releases; a line for each.
    """
    targets = [_Target(ground, each) for each in captured]
    return [_attack_all(ground, targets, number) for number in releases]


class _Target:
    """What is attacked in a draw, with the weights that candidates would have: the same for all attacks."""

    def __init__(self, ground: Ground, captured: Captured) -> None:
        self.ground, self.captured, self.count = ground, captured, len(captured.members.labels)
        self.candidates = join(captured.members, ground.strangers)
        self.weights = guess_weights(captured.seen, [ground.public.samples, self.candidates])
        self.rest = ground.public.rest(self.candidates)

    def attack(self, attack: Attack, releases: int) -> float:
        """Return an attack's AUC."""
        seen, public = self.captured.seen.until(releases), self.ground.public
        scores = score(attack, seen, public, self.candidates, weights=self.weights, rest=self.rest)
        return compare(scores, self.count)

    def attack_knowing_half(self, attack: Attack, releases: int) -> float:
        """Return the AUC of an attack that knows every other member, and need not be told."""
        known = np.arange(len(self.candidates.labels)) < self.count
        known[0::2] = False
        sets = self.candidates.part(~known), self.candidates.part(known)
        weights = [self.weights[0], self.weights[1][~known], self.weights[1][known]]
        seen = self.captured.seen.until(releases)
        scores = score(attack, seen, self.ground.public, *sets, weights, self.rest[~known])
        return compare(scores, self.count - len(sets[1].labels))


def _attack_all(ground: Ground, targets: Sequence[_Target], releases: int) -> Line:
    attacks = ATTACKS if releases > 1 else FIRST
    areas = [[each.attack(attack, releases) for attack in attacks] for each in targets]
    knowing = [[each.attack_knowing_half(attack, releases) for attack in KNOWING] for each in targets]
    chosen, halves = _choose(areas), _choose([[*more, *own] for more, own in zip(knowing, areas, strict=True)])
    linears = [each.captured.classifiers[releases - 1] for each in targets]
    return {
        "releases": releases,
        "behind": statistics.fmean(each.captured.seen.samples for each in targets),
        "d": ground.dimension,
        "auc": [round(area, 4) for _, area in chosen],
        "attack": [_name(attacks[place]) for place, _ in chosen],
        "half_known": [round(area, 4) for _, area in halves],
        "accuracy": [round(100 * _test(each, ground.strangers), 2) for each in linears],
    }


def _choose(areas: Sequence[Sequence[float]]) -> list[tuple[int, float]]:
    """Return the attack for each of two draws that was best on the other one, and what it comes to."""
    places = [int(np.argmax(each)) for each in reversed(areas)]
    return [(place, own[place]) for own, place in zip(areas, places, strict=True)]


def attack_told(told: Told, variance: float, public: Public, strangers: Points, *, drawn: bool = False) -> float:
    """Return the AUC of the attack on sums of vectors of one class each, with noise of this variance."""
    scores = score_means(told.sums, told.counts, variance, public, join(told.members, strangers), drawn=drawn)
    return compare(scores, len(told.members.labels))


def attack_sums(ground: Ground, captured: Sequence[Noisy]) -> Line:
    """Attack noisy class sums, in each draw."""
    areas = [attack_told(each.told, each.variance, ground.public, ground.strangers) for each in captured]
    shares = [
        [
            statistics.fmean(_test(one, ground.strangers) for one in linears)
            for linears in (each.classifiers, each.alone)
        ]
        for each in captured
    ]
    right, alone = ([round(100 * share, 2) for share in column] for column in zip(*shares, strict=True))
    behind = statistics.fmean(len(each.told.members.labels) for each in captured)
    line = tell(ground.dimension, behind, areas, "sums")
    return {**line, "accuracy": right, "alone": alone}


def tell(width: int, behind: float, areas: Sequence[float], attack: str) -> Line:
    """Return the line of an attack on one release."""
    rounded = [round(each, 4) for each in areas]
    told = {"releases": 1, "behind": behind, "d": width, "auc": rounded, "attack": [attack]}
    return {**told, "half_known": None, "accuracy": None}


def compare(scored: Array, members: int) -> float:
    """Return the AUC of scores, those of members first."""
    return area(scored[:members], scored[members:])


def join(one: Points, other: Points) -> Points:
    """Return the samples of both."""
    return Points(*(np.concatenate(pair) for pair in zip(one, other, strict=True)))


def _test(linear: Any, tested: Points) -> float:
    """Return the accuracy of a classifier, which takes arrays as well as tensors."""
    return float(np.mean(linear(tested.vectors.astype(np.float32)).argmax(1) == tested.labels))


def _name(attack: Attack) -> str:
    return f"{attack.kind} {attack.kept:g}" if attack.kind in ("joint", "span") else attack.kind
