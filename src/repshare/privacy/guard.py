"""The guard between a client's features and its releases: noise, and a charge before anything leaves."""

import base64
import hashlib
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repshare.config import Policy
from repshare.errors import BudgetExhausted, ConfigError
from repshare.exchange import Exchange
from repshare.privacy import accounting, mechanism
from repshare.privacy.accounting import Charge
from repshare.privacy.ledger import Entry, Ledger, Mark
from repshare.privacy.mechanism import Randomness
from repshare.privacy.pending import Pending
from repshare.sharing import wire
from repshare.sharing.representations import Floats, Integers, Release, stack

ROUNDING = 1 + 1e-9  # an accountant's last digits are no overspending

Row = tuple[NDArray[np.float64], int, int]


class Guard:
    """Makes a client's releases of averages, each with noise, kept and charged to a ledger before it leaves.

    A sample may be replaced by another of its class: counts are public. See lab/notebook/privacy.md.
    """

    adjacencies: tuple[str, ...] = ("replace",)

    def __init__(
        self, policy: Policy, labels: Integers, *, dimension: int, seeded: np.random.Generator | None = None
    ) -> None:
        if policy.epsilon is None:
            raise ConfigError("a guard needs a budget: set epsilon")
        if policy.adjacency not in self.adjacencies:
            raise ConfigError(
                f"adjacency {policy.adjacency} needs a common space with the loss discriminant: 15ddcbb is the last "
                "commit that has it for averages of features. Take adjacency replace, or share in a space"
            )
        self.policy, self.epsilon, self.delta = policy, policy.epsilon, policy.delta
        self.bound = policy.clip or math.sqrt(dimension)
        self.labels, self.seeded = labels, seeded
        self.source = Randomness(seeded)
        self.ledger, self.pending = Ledger(), Pending()

    def keep_in(self, path: Path) -> None:
        """Charge to this file from now on, and continue from what it says was spent.

        Next to it, with the ending .release, is what was charged and not acknowledged.
        """
        # A share of the noise hides nothing by itself: with others' new shares, the same bytes are another release.
        repeat = self.policy.noise_shares == 1
        self.ledger, self.pending = Ledger(path, self._about()), Pending(path.with_suffix(".release"), repeat=repeat)
        self.pending.open(self.ledger)

    def release(self, vectors: Floats, labels: Integers, round: int) -> Release:
        """Release averages of these samples, charged for good, or raise BudgetExhausted."""
        clipped = mechanism.clip(vectors, self.bound)
        n_avg, repeats, minimum = self.policy.n_avg, self.policy.m_up, self.policy.fewest
        members = {int(label): np.flatnonzero(labels == label) for label in np.unique(labels)}
        members = {label: own for label, own in members.items() if len(own) >= minimum}
        if not members:
            return self._release([], [], clipped.shape[1], round)
        smallest = min(map(len, members.values()))
        charge = Charge(noise_multiplier(self.policy, smallest), repeats, n_avg, smallest)
        noise, entry = self._bill(charge, round)
        deviation = noise * 2 * self.bound

        def average(chosen: Integers, label: int) -> Row:
            total = mechanism.noisy_sum(clipped[chosen], self.bound, deviation, self.source)
            return mechanism.shorten(total / len(chosen), self.bound), label, len(chosen)

        means = [average(own, label) for label, own in members.items()]
        observed = [
            average(self.source.choose(own, min(n_avg, len(own))), label)
            for label, own in members.items()
            for _ in range(repeats if min(n_avg, len(own)) >= minimum else 0)
        ]
        return self._charge(
            entry, self._release(means, observed, clipped.shape[1], round), self.policy.precision or "fp32"
        )

    def check_exchange(self, exchange: Exchange) -> None:
        """Raise ConfigError where a share of the noise would leave by itself: it hides nothing."""
        if self._shares_noise and not exchange.hides_single_releases:
            raise ConfigError("a share of the noise hides nothing by itself: noise_shares needs a masked group")

    def note_failure(self, exchange: Exchange) -> None:
        """Give up a release that may have left with a share of the noise: sent with others' new shares, it is new."""
        if self._shares_noise and self.pending.body is not None and exchange.may_have_left():
            self.pending.drop()

    @property
    def _shares_noise(self) -> bool:
        return self.policy.noise_shares > 1 and not self.policy.seeded_noise

    @property
    def mode(self) -> str:
        """The kind of guarantee: ε protects samples given the model, which was trained on them without noise."""
        return "releases only"

    @property
    def spent(self) -> float:
        """ε so far at today's δ. No features decide it, so it may be told."""
        if not self.ledger.entries:
            return 0.0
        last = self.ledger.entries[-1]
        return float(last["epsilon"]) if last.get("delta") == self.delta else self._cost()

    def state(self) -> dict[str, str]:
        """The state that a simulation keeps: ledger, unsent release, generator; of a ledger on disk, its end."""
        generator = None if self.seeded is None else self.seeded.bit_generator.state
        if self.ledger.path is not None:
            return {"mark": json.dumps(self.ledger.mark), "generator": json.dumps(generator)}
        unsent = base64.b64encode(self.pending.body or b"").decode()
        return {"ledger": json.dumps(self.ledger.entries), "unsent": unsent, "generator": json.dumps(generator)}

    def load_state(self, state: dict[str, str]) -> None:
        """Continue from what `state` returned."""
        if self.seeded is not None:
            self.seeded.bit_generator.state = json.loads(state["generator"])
        if self.ledger.path is None and "ledger" in state:
            self.ledger.entries = json.loads(state["ledger"])
            self.pending.body = base64.b64decode(state.get("unsent", "")) or None
        if self.ledger.path is not None and "mark" in state:
            self.ledger.check(Mark(*json.loads(state["mark"])), "the client's state")

    def _charge(self, entry: Entry, release: Release, precision: str = "fp32") -> Release:
        """Keep the release as the bytes that will leave, and charge it; then it may."""
        self.pending.charge(self.ledger, entry, wire.encode_release(release, precision))
        return release

    def _bill(self, charge: Charge, round: int) -> tuple[float, Entry]:
        """The noise multiplier of a release, and its line in the ledger. Raises BudgetExhausted."""
        cost = self._cost(charge)
        if cost > self.epsilon * ROUNDING:
            raise BudgetExhausted(
                f"the privacy budget is spent: {len(self.ledger.entries)} releases cost ε = {self.spent:.3g}, one more "
                f"would make it {cost:.3g} of ε = {self.epsilon:g}"
            )
        return charge.noise, {"round": round, "epsilon": cost, "delta": self.delta, "charge": charge}

    def _cost(self, *more: Charge) -> float:
        """ε of all charges so far, and of these."""
        charges = [Charge(*entry["charge"]) for entry in self.ledger.entries]
        return accounting.epsilon(Counter([*charges, *more]), self.delta)

    def _release(self, means: list[Row], observed: list[Row], dimension: int, round: int) -> Release:
        return Release(round, stack(means, dimension), stack(observed, dimension), self.source.name)

    def _about(self) -> dict[str, Any]:
        digest = hashlib.sha256(np.ascontiguousarray(self.labels, np.int64).tobytes()).hexdigest()[:16]
        return {"adjacency": self.policy.adjacency, "samples": len(self.labels), "labels": digest}


def noise_multiplier(policy: Policy, smallest: int) -> float:
    """The least noise with which the planned releases of classes that are no smaller keep to the budget."""
    charge = Charge(0.0, policy.m_up, policy.n_avg, smallest)
    return accounting.noise_for(policy.epsilon or 0.0, policy.delta, policy.planned_releases, charge)
