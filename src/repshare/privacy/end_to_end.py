"""The cost of DP-SGD and of the releases of its models together: privacy end to end.

Steps of DP-SGD, each on a Poisson sample of the data, are counted as they are made, and paid for with the next
release. They and the releases' sums compose under one adjacency, a sample replaced by another of its class, by the
privacy-loss accountant (PLD). The library's noise multipliers are then of a norm bound: it doubles by itself what a
replaced sample can change.
"""

import json
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from typing import Any, NamedTuple

import dp_accounting
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent

from repshare.config import Policy
from repshare.errors import BudgetExhausted, ConfigError
from repshare.privacy import accounting
from repshare.privacy.accounting import Charge
from repshare.privacy.guard import ROUNDING, Guard
from repshare.privacy.ledger import Entry
from repshare.sharing.representations import Integers, Release

LEAST_NOISE, SILENCE = 0.1, 2.0**20  # of a step, in gradient bounds
TOLERANCE = 1e-3  # of a step's noise, relative; always on the side of more
INTERVAL = 1e-3  # of privacy losses: the bound is true for any, and with this one as good to three digits


class Steps(NamedTuple):
    """Training, by as many steps of one kind."""

    rate: float  # the chance of a sample to be in a step
    number: int
    noise: float = 0.0  # standard deviation, in gradient bounds


class EndToEndGuard(Guard):
    """Makes releases of a model that was trained with DP-SGD, and charges each with all training not yet paid for.

    Steps that are not yet paid for are saved with the model that they made. A round that is repeated after a crash
    makes new steps, which the next release pays for; what was released of the first ones stays charged. Once the
    budget cannot pay for another release, training needs no noise any more, and nothing of the model may ever leave.
    """

    def __init__(self, policy: Policy, labels: Integers, **options: Any) -> None:
        if policy.adjacency != "replace":
            raise ConfigError("end_to_end hides the replacement of a sample: use adjacency replace")
        super().__init__(policy, labels, **options)
        steps = policy.release_every * policy.epochs * -(-len(labels) // policy.batch_size)
        releases = policy.planned_releases
        charge = Charge(0.0, policy.m_up)  # observations pay as if of all samples: training adds to no theorem on some
        noise = accounting.noise_for(self.epsilon * (1 - policy.training_share), self.delta, releases, charge)
        self.charge = charge._replace(noise=noise)  # of a release alone
        unplanned = Steps(min(1.0, policy.batch_size / len(labels)), steps)
        self.steps = plan_training(self.epsilon, self.delta, releases, unplanned, self.charge)
        self.unpaid = Counter[tuple[float, float]]()  # steps in the model since its last release, by rate and noise

    def count(self, rate: float, noise: float) -> None:
        """Count a step that is about to be made. One without noise can never be paid for."""
        self.unpaid[rate, noise] += 1

    @property
    def mode(self) -> str:
        """The kind of guarantee that ε gives."""
        return "end to end"

    def close(self) -> bool:
        """Return whether nothing of the model will ever leave again. This is recorded before it has any effect.

        Another release would be after all the steps that are planned for one, and after a round's more than there are.
        """
        if not self.closed:
            soon, kind = self.unpaid.copy(), (self.steps.rate, self.steps.noise)
            soon[kind] += max(self.steps.number // self.policy.release_every, self.steps.number - soon.total())
            if self._cost(self.charge, soon) > self.epsilon * ROUNDING:
                self.ledger.add({"epsilon": self.spent, "delta": self.delta, "closed": True})
        return self.closed

    @property
    def closed(self) -> bool:
        """Return whether nothing of the model may leave any more."""
        return bool(self.ledger.entries) and self.ledger.entries[-1].get("closed", False)

    @property
    def covers_model(self) -> bool:
        """Return whether all training in the model is paid for."""
        return not self.unpaid

    def state(self) -> dict[str, str]:
        """Return what is kept with the model."""
        return {**super().state(), "unpaid": json.dumps(_list(self.unpaid))}

    def load_state(self, state: dict[str, str]) -> None:
        """Continue from what `state` returned."""
        super().load_state(state)
        self.unpaid = Counter({(rate, noise): number for rate, number, noise in json.loads(state["unpaid"])})

    def _bill(self, smallest: int, round: int) -> tuple[float, Entry]:
        if self.closed or (cost := self._cost(self.charge, self.unpaid)) > self.epsilon * ROUNDING:
            raise BudgetExhausted(
                f"the privacy budget is spent: releases and the training before each cost ε = {self.spent:.3g} of "
                f"{self.epsilon:g}; training continues without noise, so that nothing of this model may leave any more"
            )
        entry = {"round": round, "epsilon": cost, "delta": self.delta, "charge": self.charge}
        return self.charge.noise, {**entry, "steps": _list(self.unpaid)}

    def _charge(self, entry: Entry, release: Release) -> Release:
        charged = super()._charge(entry, release)
        self.unpaid.clear()
        return charged

    def _epsilon_again(self) -> float:
        return self._cost(None, Counter())

    def _cost(self, charge: Charge | None, unpaid: Counter[tuple[float, float]]) -> float:
        """Return ε with one more release, if any, after these steps."""
        steps, charges = unpaid.copy(), Counter([] if charge is None else [charge])
        for entry in self.ledger.entries:
            if not entry.get("closed"):
                charges[Charge(*entry["charge"])] += 1
                for rate, number, noise in _steps(entry):
                    steps[rate, noise] += number
        return total_epsilon(frozenset(_list(steps)), frozenset(charges.items()), self.delta)

    def _about(self) -> dict[str, Any]:
        return {**super()._about(), "mode": self.mode}


@lru_cache(64)
def plan_training(epsilon: float, delta: float, releases: int, steps: Steps, charge: Charge) -> Steps:
    """Return the training steps with the least noise that, with this many releases, cost at most ε."""

    def planned(noise: float) -> tuple[frozenset[Steps], frozenset[tuple[Charge, int]]]:
        return frozenset({Steps(steps.rate, releases * steps.number, noise)}), frozenset({(charge, releases)})

    if (alone := total_epsilon(*planned(SILENCE), delta)) > epsilon:
        raise ConfigError(f"releases alone cost ε = {alone:.3g}, which leaves nothing for training")
    low = SILENCE
    while low > LEAST_NOISE and total_epsilon(*planned(low), delta) <= epsilon:
        low /= 2  # from above: losses with little noise take long to compose
    noise = dp_accounting.calibrate_dp_mechanism(
        _accountant,
        lambda noise: _event(*planned(noise)),
        epsilon,
        delta,
        dp_accounting.ExplicitBracketInterval(low, 2 * low),
        tol=TOLERANCE * low,
    )
    return steps._replace(noise=float(noise))


@lru_cache(1024)
def total_epsilon(training: frozenset[Steps], releases: frozenset[tuple[Charge, int]], delta: float) -> float:
    """Return ε of all this training and these numbers of releases of each kind together."""
    return float(_accountant().compose(_event(training, releases)).get_epsilon(delta))


def _accountant() -> dp_accounting.pld.PLDAccountant:
    return dp_accounting.pld.PLDAccountant(NeighboringRelation.REPLACE_ONE, value_discretization_interval=INTERVAL)


def _event(training: Iterable[Steps], releases: Iterable[tuple[Charge, int]]) -> dp_accounting.DpEvent:
    steps = [
        dp_accounting.SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), number)
        for rate, number, noise in sorted(training)
    ]
    sums = [  # an accountant's noise is there in what a replaced sample can change, here in bounds
        dp_accounting.SelfComposedDpEvent(GaussianDpEvent(2 * charge.noise), number * (1 + charge.observations))
        for charge, number in sorted(releases)
    ]
    return dp_accounting.ComposedDpEvent(steps + sums)


def _list(counted: Counter[tuple[float, float]]) -> list[Steps]:
    return [Steps(rate, number, noise) for (rate, noise), number in counted.items()]


def _steps(entry: Entry) -> list[Steps]:
    """Return the training that an entry paid for. Earlier versions wrote one kind of steps, and not in a list."""
    kept = entry["steps"]
    return [Steps(*kept)] if kept and isinstance(kept[0], float) else [Steps(*each) for each in kept]
