"""The cost of DP-SGD and of the releases of its models together: privacy end to end.

Steps of DP-SGD, each on a Poisson sample of the data, are counted as they are made, and paid for with the next
release. They and the releases' sums compose under one adjacency, a sample replaced by another of its class, by the
privacy-loss accountant (PLD). The library's noise multipliers are then of a norm bound: it doubles by itself what a
replaced sample can change. Where the model itself is released, there are no sums, and a sample may also be one that is
added or removed.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache, partial
from typing import Any, ClassVar, NamedTuple

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
FREE = Charge(math.inf)  # a release that costs nothing but the training before it
RELATIONS = {"replace": NeighboringRelation.REPLACE_ONE, "add-remove": NeighboringRelation.ADD_OR_REMOVE_ONE}


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

    adjacencies: ClassVar[tuple[str, ...]] = ("replace",)
    sends_model: ClassVar[bool] = False

    def __init__(self, policy: Policy, labels: Integers, **options: Any) -> None:
        if policy.adjacency not in self.adjacencies:
            raise ConfigError("end_to_end hides the replacement of a sample: use adjacency replace")
        super().__init__(policy, labels, **options)
        steps = policy.release_every * policy.epochs * -(-len(labels) // policy.batch_size)
        self.charge = self._plan_release()  # of a release alone
        unplanned = Steps(min(1.0, policy.batch_size / len(labels)), steps)
        self.steps = plan_training(
            self.epsilon, self.delta, policy.planned_releases, unplanned, self.charge, policy.adjacency
        )
        self.unpaid = Counter[tuple[float, float]]()  # steps in the model since its last release, by rate and noise

    def count(self, rate: float, noise: float) -> None:
        """Count a step that is about to be made. One without noise can never be paid for."""
        self.unpaid[rate, noise] += 1

    @property
    def mode(self) -> str:
        """The kind of guarantee that ε gives."""
        return "end to end"

    def close(self) -> bool:
        """Return whether nothing of the model will ever leave again. This is recorded before it has any effect."""
        if not self.closed and not self._lasts():
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

    def _lasts(self) -> bool:
        """Return whether the budget can pay for another release.

        It would be after all the steps that are planned for one, and after a round's more than there are.
        """
        soon, kind = self.unpaid.copy(), (self.steps.rate, self.steps.noise)
        soon[kind] += max(self.steps.number // self.policy.release_every, self.steps.number - soon.total())
        return self._cost(self.charge, soon) <= self.epsilon * ROUNDING

    def _plan_release(self) -> Charge:
        """Return the charge of one of the planned releases, with the noise that its part of ε needs."""
        policy = self.policy
        charge = Charge(0.0, policy.m_up)  # observations pay as if of all samples: training adds to no theorem on some
        budget = self.epsilon * (1 - policy.training_share)
        return charge._replace(noise=accounting.noise_for(budget, self.delta, policy.planned_releases, charge))

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
                charges[Charge(*entry["charge"]) if "charge" in entry else FREE] += 1
                for rate, number, noise in _steps(entry):
                    steps[rate, noise] += number
        return total_epsilon(frozenset(_list(steps)), frozenset(charges.items()), self.delta, self.policy.adjacency)

    def _about(self) -> dict[str, Any]:
        return {**super()._about(), "mode": self.mode}


class WeightsGuard(EndToEndGuard):
    """Lets the weights themselves leave, each time charged with the steps since the last: all of ε is for training.

    Weights are computed from noisy gradients and others' weights alone, so that they need no noise of their own. Once
    the budget cannot pay for another round, there is no training any more: all that is in the model is paid for.
    """

    adjacencies: ClassVar[tuple[str, ...]] = tuple(RELATIONS)
    sends_model: ClassVar[bool] = True

    def __init__(self, policy: Policy, labels: Integers, **options: Any) -> None:
        if options.get("levels") is not None:
            raise ConfigError("samples have no levels of their own where weights are shared: DP-SGD charges all alike")
        super().__init__(policy, labels, **options)
        self.filter = None  # for the same reason

    def close(self) -> bool:
        """Return whether training must stop. A larger budget may continue."""
        return self.closed or not self._lasts()

    def release_weights(self, weights: bytes, round: int) -> bytes:
        """Return these weights, for good charged with the training in them, or raise BudgetExhausted."""
        cost = self._cost(FREE, self.unpaid)
        if self.closed or not self.unpaid or cost > self.epsilon * ROUNDING:
            raise BudgetExhausted(
                f"the privacy budget is spent: training cost ε = {self.spent:.3g} of {self.epsilon:g}; this client "
                "trains no more, and only receives the average"
            )
        entry = {"round": round, "epsilon": cost, "delta": self.delta, "noise": self.steps.noise}
        self.pending.charge(self.ledger, {**entry, "steps": _list(self.unpaid)}, weights)
        self.unpaid.clear()
        return weights

    def _plan_release(self) -> Charge:
        return FREE

    def _bill(self, smallest: int, round: int) -> tuple[float, Entry]:
        raise ConfigError(
            "a method whose model is the server's shares weights: averages of samples would have no noise"
        )


@lru_cache(64)
def plan_training(
    epsilon: float, delta: float, releases: int, steps: Steps, charge: Charge, adjacency: str = "replace"
) -> Steps:
    """Return the training steps with the least noise that, with this many releases, cost at most ε."""

    def planned(noise: float) -> tuple[frozenset[Steps], frozenset[tuple[Charge, int]]]:
        return frozenset({Steps(steps.rate, releases * steps.number, noise)}), frozenset({(charge, releases)})

    if (alone := total_epsilon(*planned(SILENCE), delta, adjacency)) > epsilon:
        raise ConfigError(f"releases alone cost ε = {alone:.3g}, which leaves nothing for training")
    low = SILENCE
    while low > LEAST_NOISE and total_epsilon(*planned(low), delta, adjacency) <= epsilon:
        low /= 2  # from above: losses with little noise take long to compose
    noise = dp_accounting.calibrate_dp_mechanism(
        partial(_accountant, adjacency),
        lambda noise: _event(*planned(noise)),
        epsilon,
        delta,
        dp_accounting.ExplicitBracketInterval(low, 2 * low),
        tol=TOLERANCE * low,
    )
    return steps._replace(noise=float(noise))


@lru_cache(1024)
def total_epsilon(
    training: frozenset[Steps], releases: frozenset[tuple[Charge, int]], delta: float, adjacency: str = "replace"
) -> float:
    """Return ε of all this training and these numbers of releases of each kind together."""
    return float(_accountant(adjacency).compose(_event(training, releases)).get_epsilon(delta))


def _accountant(adjacency: str) -> dp_accounting.pld.PLDAccountant:
    return dp_accounting.pld.PLDAccountant(RELATIONS[adjacency], value_discretization_interval=INTERVAL)


def _event(training: Iterable[Steps], releases: Iterable[tuple[Charge, int]]) -> dp_accounting.DpEvent:
    steps = [
        dp_accounting.SelfComposedDpEvent(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), number)
        for rate, number, noise in sorted(training)
    ]
    sums = [  # an accountant's noise is there in what a replaced sample can change, here in bounds
        dp_accounting.SelfComposedDpEvent(GaussianDpEvent(2 * charge.noise), number * (1 + charge.observations))
        for charge, number in sorted(releases)
        if charge.noise < math.inf
    ]
    return dp_accounting.ComposedDpEvent(steps + sums)


def _list(counted: Counter[tuple[float, float]]) -> list[Steps]:
    return [Steps(rate, number, noise) for (rate, noise), number in counted.items()]


def _steps(entry: Entry) -> list[Steps]:
    """Return the training that an entry paid for. Earlier versions wrote one kind of steps, and not in a list."""
    kept = entry["steps"]
    return [Steps(*kept)] if kept and isinstance(kept[0], float) else [Steps(*each) for each in kept]
