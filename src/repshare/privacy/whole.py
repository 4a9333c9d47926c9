"""End to end: what DP-SGD and the releases of its models cost together.

Before each release there are so many steps of DP-SGD, each on a Poisson sample of the data; then the release's sums.
All compose under one adjacency, a sample replaced by another of its class, by the privacy-loss accountant (PLD). The
library's noise multipliers are then of a norm bound: it doubles by itself what a replaced sample can change.
"""

from collections import Counter
from functools import lru_cache
from typing import Any, NamedTuple

import dp_accounting
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent

from repshare.config import Policy
from repshare.errors import BudgetExhausted, ConfigError
from repshare.privacy import accounting
from repshare.privacy.accounting import Charge
from repshare.privacy.guard import ROUNDING, Guard
from repshare.representations import Integers, Shape

LEAST_NOISE, SILENCE = 0.1, 2.0**20  # of a step, in gradient bounds
TOLERANCE = 1e-3  # of a step's noise, relative; always on the side of more
INTERVAL = 1e-3  # of privacy losses: the bound is true for any, and with this one as good to three digits


class Steps(NamedTuple):
    """The training before a release."""

    rate: float  # the chance of a sample to be in a step
    number: int
    noise: float = 0.0  # standard deviation, in gradient bounds


class WholeGuard(Guard):
    """Makes releases of a model that was trained with DP-SGD, and charges each with the training before it.

    A round that is done again after a crash is charged again with all its steps: what was seen of the first stays seen.
    Once the budget cannot pay for another release, training needs no noise any more, and nothing may leave for good.
    """

    def __init__(self, policy: Policy, labels: Integers, **options: Any) -> None:
        if policy.adjacency != "replace":
            raise ConfigError("end to end, what others must not notice is a sample replaced: adjacency replace")
        super().__init__(policy, labels, **options)
        steps = policy.release_every * policy.epochs * -(-len(labels) // policy.batch_size)
        self.charge = self._price(policy.m_up)
        unplanned = Steps(min(1.0, policy.batch_size / len(labels)), steps)
        self.steps = plan_training(self.epsilon, self.delta, policy.planned_releases, unplanned, self.charge)

    @property
    def mode(self) -> str:
        """What ε is about."""
        return "end to end"

    def _price(self, repeats: int) -> Charge:
        """Of a release alone. Observations pay as if they were of all samples: training adds to no theorem on some."""
        charge = Charge(0.0, repeats)
        budget = self.epsilon * (1 - self.policy.training_share)
        noise = accounting.noise_for(budget, self.delta, self.policy.planned_releases, charge)
        return charge._replace(noise=noise)

    def close(self) -> bool:
        """Whether nothing of the model will ever leave again. It is written down before anyone acts on it."""
        entries = self.ledger.entries
        if entries and not self._closed and self._cost(self.charge) > self.epsilon * ROUNDING:
            self.ledger.add({**entries[-1], "closed": True})
        return self._closed

    @property
    def _closed(self) -> bool:
        return bool(self.ledger.entries) and self.ledger.entries[-1].get("closed", False)

    def _pay(self, smallest: int, shape: Shape) -> float:
        charge = self._price(shape.repeats)
        cost = self._cost(charge)
        if self._closed or cost > self.epsilon * ROUNDING:
            raise BudgetExhausted(
                f"the privacy budget is spent: releases and the training before each cost ε = {self.spent:.3g} of "
                f"{self.epsilon:g}; training goes on without noise, so that nothing of this model may leave any more"
            )
        self.ledger.add({"round": shape.round, "epsilon": cost, "charge": charge, "steps": self.steps})
        return charge.noise

    def _cost(self, charge: Charge) -> float:
        """ε with one more release."""
        paid = [entry for entry in self.ledger.entries if not entry.get("closed")]
        charges = Counter((Steps(*entry["steps"]), Charge(*entry["charge"])) for entry in paid)
        charges[self.steps, charge] += 1
        return whole_epsilon(frozenset(charges.items()), self.delta)

    def _about(self) -> dict[str, Any]:
        return {**super()._about(), "mode": self.mode}


@lru_cache(64)
def plan_training(epsilon: float, delta: float, releases: int, steps: Steps, charge: Charge) -> Steps:
    """The steps with the least noise with which they and so many releases together cost at most ε."""
    if (alone := _cost(steps._replace(noise=SILENCE), charge, releases, delta)) > epsilon:
        raise ConfigError(f"releases alone cost ε = {alone:.3g}, which leaves nothing for training")
    low = SILENCE
    while low > LEAST_NOISE and _cost(steps._replace(noise=low), charge, releases, delta) <= epsilon:
        low /= 2  # from above: losses with little noise take long to compose
    noise = dp_accounting.calibrate_dp_mechanism(
        _accountant,
        lambda noise: _event(steps._replace(noise=noise), charge, releases),
        epsilon,
        delta,
        dp_accounting.ExplicitBracketInterval(low, 2 * low),
        tol=TOLERANCE * low,
    )
    return steps._replace(noise=float(noise))


@lru_cache(1024)
def whole_epsilon(charges: frozenset[tuple[tuple[Steps, Charge], int]], delta: float) -> float:
    """ε of so many releases of each kind, with the training before each."""
    accountant = _accountant()
    for (steps, charge), releases in charges:
        accountant.compose(_event(steps, charge, releases))
    return float(accountant.get_epsilon(delta))


def _cost(steps: Steps, charge: Charge, releases: int, delta: float) -> float:
    return whole_epsilon(frozenset({((steps, charge), releases)}), delta)


def _accountant() -> dp_accounting.pld.PLDAccountant:
    return dp_accounting.pld.PLDAccountant(NeighboringRelation.REPLACE_ONE, value_discretization_interval=INTERVAL)


def _event(steps: Steps, charge: Charge, releases: int) -> dp_accounting.DpEvent:
    training = PoissonSampledDpEvent(steps.rate, GaussianDpEvent(steps.noise))
    sums = GaussianDpEvent(2 * charge.noise)  # there in what a replaced sample can change, here in bounds
    return dp_accounting.ComposedDpEvent([
        dp_accounting.SelfComposedDpEvent(training, releases * steps.number),
        dp_accounting.SelfComposedDpEvent(sums, releases * (1 + charge.observations)),
    ])  # fmt: skip
