"""The guard between a client's features and its releases: it chooses the samples that take part, and the noise."""

import base64
import hashlib
import json
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repshare.config import Level, Policy
from repshare.errors import BudgetExhausted, ConfigError
from repshare.exchange import Exchange
from repshare.privacy import accounting, mechanism
from repshare.privacy.accounting import Charge
from repshare.privacy.budgets import Costs, Filter, budgets
from repshare.privacy.ledger import Entry, Ledger, Mark
from repshare.privacy.mechanism import Source, Wholes
from repshare.privacy.pending import Pending
from repshare.sharing import wire
from repshare.sharing.representations import Floats, Integers, Release, stack

COUNT_NOISE = 4.0  # times that of a sum of unit vectors: a count matters less, so it may cost less
SHORTEST_COUNT = 2.0  # deviations: a noisy count below this counts as empty
ROUNDING = 1 + 1e-9  # an accountant's last digits are no overspending

Row = tuple[NDArray[np.float64], int, int]


class Guard:
    """Makes a client's releases, each with noise, kept and charged to a ledger before it leaves.

    A sample replaced by another of its class (counts public), or one added or removed (counts noised, and every
    sample on a budget of its own): see lab/notebook/privacy.md.
    """

    def __init__(
        self,
        policy: Policy,
        labels: Integers,
        *,
        dimension: int,
        classes: Sequence[int],
        levels: Sequence[Level] | None = None,
        seeded: np.random.Generator | None = None,
    ) -> None:
        """`classes` are those that may be shared, whether there are samples of them or not."""
        if policy.epsilon is None:
            raise ConfigError("a guard needs a budget: set epsilon")
        individual = policy.adjacency == "add-remove"
        if levels is not None and not individual:
            raise ConfigError("samples' own levels need adjacency add-remove: who still takes part must not be counted")
        self.policy, self.epsilon, self.delta = policy, policy.epsilon, policy.delta
        self.bound = policy.clip or math.sqrt(dimension)
        self.classes, self.labels, self.seeded = classes, labels, seeded
        self.source = Source(seeded)
        self.filter = Filter(budgets(levels, len(labels), self.epsilon, self.delta)) if individual else None
        self.ledger, self.pending = Ledger(), Pending()

    def keep_in(self, path: Path) -> None:
        """Charge to this file from now on, and continue from what it says was spent.

        Next to it, with the ending .release, is what was charged and not acknowledged.
        """
        # A share of the noise hides nothing by itself: with others' new shares, the same bytes are another release.
        repeat = self.policy.noise_shares == 1
        self.ledger, self.pending = Ledger(path, self._about()), Pending(path.with_suffix(".release"), repeat=repeat)
        self.pending.open(self.ledger)
        self._count_again()

    def release(self, vectors: Floats, labels: Integers, rows: Integers, round: int) -> Release:
        """Release these of the client's samples (`rows`), charged for good, or raise BudgetExhausted."""
        clipped = mechanism.clip(vectors, self.bound)
        if self.filter is None:
            return self._counted(clipped, labels, round)
        return self._filtered(self.filter, clipped, labels, rows, round)

    def check_exchange(self, exchange: Exchange) -> None:
        """Raise ConfigError where a share of the noise would leave by itself: it hides nothing."""
        if self._shares_noise and not exchange.hides_single_releases:
            raise ConfigError("a share of the noise hides nothing by itself: noise_shares needs a group (--group)")

    def rehearse(self, exchange: Exchange) -> None:
        """Rehearse a sum that shares the noise: a member that spoils sums costs nobody's budget then."""
        if self._shares_noise:
            exchange.rehearse()

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
        """ε so far at today's δ, of the sample that may have spent most: no features decide it, so it may be told."""
        if not self.ledger.entries:
            return 0.0
        last = self.ledger.entries[-1]
        return float(last["epsilon"]) if last.get("delta") == self.delta else self._epsilon_again()

    @property
    def told(self) -> float:
        """The same as others may know it: what levels samples have does not decide it, either."""
        if self.filter is None:
            return self.spent
        return accounting.epsilon_of(sum(entry["rho"] for entry in self.ledger.entries), self.delta)

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
            self._count_again()
        if self.ledger.path is not None and "mark" in state:
            self.ledger.check(Mark(*json.loads(state["mark"])), "the client's state")

    def _counted(self, clipped: Wholes, labels: Integers, round: int) -> Release:
        """Release under `replace`: counts are public, and all samples pay the same."""
        n_avg, repeats, minimum = self.policy.n_avg, self.policy.m_up, self.policy.fewest
        members = {int(label): np.flatnonzero(labels == label) for label in np.unique(labels)}
        members = {label: own for label, own in members.items() if len(own) >= minimum}
        if not members:
            return self._release([], [], clipped.shape[1], round)
        noise, entry = self._bill(min(map(len, members.values())), round)
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
        return self._charge(entry, self._release(means, observed, clipped.shape[1], round))

    def _charge(self, entry: Entry, release: Release) -> Release:
        """Keep the release as the bytes that will leave, and charge it; then it may."""
        self.pending.charge(self.ledger, entry, wire.encode_release(release, self.policy.precision or "fp32"))
        return release

    def _bill(self, smallest: int, round: int) -> tuple[float, Entry]:
        """Return the noise multiplier of a release with a smallest class of this size, and its line in the ledger."""
        policy = self.policy
        return self._bill_charge(Charge(common_noise(policy, smallest), policy.m_up, policy.n_avg, smallest), round)

    def _bill_charge(self, charge: Charge, round: int) -> tuple[float, Entry]:
        charges = [Charge(*entry["charge"]) for entry in self.ledger.entries]
        cost = accounting.epsilon(Counter([*charges, charge]), self.delta)
        if cost > self.epsilon * ROUNDING:
            raise BudgetExhausted(
                f"the privacy budget is spent: {len(self.ledger.entries)} releases cost ε = {self.spent:.3g}, one more "
                f"would make it {cost:.3g} of ε = {self.epsilon:g}"
            )
        return charge.noise, {"round": round, "epsilon": cost, "delta": self.delta, "charge": charge}

    def _filtered(self, own: Filter, clipped: Wholes, labels: Integers, rows: Integers, round: int) -> Release:
        """Release under `add-remove`: counts are noised, and each sample pays by the length of its features."""
        if self.ledger.entries and not self.ledger.entries[-1]["classes"]:
            raise BudgetExhausted("the privacy budget is spent: by their noisy counts, all classes may be empty")
        policy, noise, lengths = self.policy, individual_noise(self.policy), np.zeros(len(self.labels))
        lengths[rows] = mechanism.measure(clipped)
        squares = lengths**2 / (2 * noise**2)
        active = own.admits(squares + _count_cost(noise)) & np.isin(np.arange(len(lengths)), rows)
        costs = np.where(active, squares + _count_cost(noise), 0.0)
        means, observed = [], []
        for label in self.classes:
            members = active[rows] & (labels == label)
            count = mechanism.noisy_count(int(members.sum()), noise * COUNT_NOISE, self.source)
            total = mechanism.noisy_sum(clipped[members], self.bound, noise * self.bound, self.source)
            if count < max(policy.fewest, SHORTEST_COUNT * noise * COUNT_NOISE):
                continue
            means.append((mechanism.shorten(total / count, self.bound), label, count))
            size = min(policy.n_avg, count)
            for _ in range(policy.m_up if size >= policy.fewest else 0):
                # Everyone tosses a coin of its own, and those who win pay: as if the coins were published.
                drawn = members & (self.source.uniform(len(rows)) <= size / count)
                drawn &= own.admits(costs + squares)[rows]
                costs[rows[drawn]] += squares[rows[drawn]]
                total = mechanism.noisy_sum(clipped[drawn], self.bound, noise * self.bound, self.source)
                observed.append((mechanism.shorten(total / size, self.bound), label, size))
        rho = _full_cost(self.policy) / noise**2  # of a sample as long as the bound that is in everything
        entry = self._bill_each(own, costs, noise, rho, len(means), round)
        release = self._charge(entry, self._release(means, observed, clipped.shape[1], round))
        own.charge(costs)
        return release

    def _bill_each(self, own: Filter, costs: Costs, noise: float, rho: float, classes: int, round: int) -> Entry:
        """Return the line in the ledger: no sample pays more than `rho`."""
        largest = float(own.budgets[np.isfinite(own.budgets)].max(initial=0.0))
        most = min(rho + sum(entry["rho"] for entry in self.ledger.entries), max(largest, self._most()))
        return {
            "round": round,
            "epsilon": accounting.epsilon_of(most, self.delta),
            "delta": self.delta,
            "noise": noise,
            "rho": rho,
            "most": most,
            "classes": classes,
            "costs": base64.b64encode(costs.tobytes()).decode(),
        }

    def _most(self) -> float:
        """Return the ρ that no sample with a budget has exceeded. Budgets may have been larger once than now."""
        entries = self.ledger.entries
        return float(entries[-1].get("most", sum(entry["rho"] for entry in entries))) if entries else 0.0

    def _epsilon_again(self) -> float:
        """Return the ε of what the ledger says, at today's δ."""
        if self.filter is not None:
            return accounting.epsilon_of(self._most(), self.delta)
        return accounting.epsilon(Counter(Charge(*entry["charge"]) for entry in self.ledger.entries), self.delta)

    def _release(self, means: list[Row], observed: list[Row], dimension: int, round: int) -> Release:
        return Release(round, stack(means, dimension), stack(observed, dimension), self.source.name)

    def _count_again(self) -> None:
        """Set the filter to what the ledger says."""
        if self.filter is not None:
            self.filter = Filter(self.filter.budgets)
            for entry in self.ledger.entries:
                self.filter.spent = self.filter.spent + np.frombuffer(base64.b64decode(entry["costs"]), np.float64)

    def _about(self) -> dict[str, Any]:
        digest = hashlib.sha256(np.ascontiguousarray(self.labels, np.int64).tobytes()).hexdigest()[:16]
        return {"adjacency": self.policy.adjacency, "samples": len(self.labels), "labels": digest}


def common_noise(policy: Policy, smallest: int) -> float:
    """Return the noise multiplier with which the planned releases of classes that are no smaller keep to the budget."""
    charge = Charge(0.0, policy.m_up, policy.n_avg, smallest)
    return accounting.noise_for(policy.epsilon or 0.0, policy.delta, policy.planned_releases, charge)


def individual_noise(policy: Policy) -> float:
    """Return the one with which a sample as long as the bound, and in everything, lasts for the planned releases."""
    budget = accounting.rho_for(policy.epsilon or 0.0, policy.delta)
    return math.sqrt(policy.planned_releases * _full_cost(policy) / budget)


def _full_cost(policy: Policy) -> float:
    """Return the ρ of a release for a sample as long as the bound that is in all of it, at a noise multiplier of 1."""
    return (1 + policy.m_up) / 2 + _count_cost(1.0)


def _count_cost(noise: float) -> float:
    return 1 / (2 * (noise * COUNT_NOISE) ** 2)
