"""The guard between a client's samples and its releases of class sums: noise, and a charge before anything leaves.

A sample is one vector of at most length 1 in one class's sum: nothing is clipped by looking at the data, and no other
sample's part depends on it. Noise is a discrete Gaussian. In a secure sum each member may add a share of it, so that
the total carries it once: see lab/notebook/privacy.md.
"""

import base64
import hashlib
import json
import math
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np

from repshare.config import Policy
from repshare.errors import BudgetExhausted, ConfigError
from repshare.exchange import Exchange
from repshare.privacy import accounting
from repshare.privacy.discrete import discrete_gaussian
from repshare.privacy.ledger import OWN_COINS, Entry, Ledger, Mark
from repshare.privacy.pending import Pending
from repshare.sharing import sums, wire
from repshare.sharing.representations import Floats, Integers, Release

ROUNDING = 1 + 1e-9  # an accountant's last digits are no overspending
STEPS = round(1 / sums.STEP)  # the largest length of a sample's vector, in steps


class Guard:
    """Makes a client's releases, each with noise, kept and charged to a ledger before it leaves."""

    mode = "all that leaves"  # that ε covers: the space is not trained on anyone's samples

    def __init__(
        self,
        policy: Policy,
        labels: Integers,
        *,
        classes: int,
        space: str,
        seeded: np.random.Generator | None = None,
    ) -> None:
        """`seeded` noise is for simulations. The operating system's, the default, cannot be foreseen."""
        if policy.epsilon is None:
            raise ConfigError("a guard needs a budget: set epsilon")
        self.policy, self.epsilon, self.delta = policy, policy.epsilon, policy.delta
        self.labels, self.classes, self.space, self.seeded = labels, classes, space, seeded
        self.random_bytes: Callable[[int], bytes] = os.urandom if seeded is None else seeded.bytes
        self.ledger, self.pending = Ledger(), Pending()

    def keep_in(self, path: Path) -> None:
        """Charge to this file from now on, and continue from what it says was spent.

        Next to it, with the ending .release, is what was charged and not acknowledged.
        """
        digest = hashlib.sha256(np.ascontiguousarray(self.labels, np.int64).tobytes()).hexdigest()[:16]
        about = {"adjacency": self.policy.adjacency, "samples": len(self.labels), "labels": digest}
        # A share of the noise hides nothing by itself: with others' new shares, the same bytes are another release.
        repeat = self.policy.noise_shares == 1
        self.ledger = Ledger(path, {**about, "space": self.space, "mode": self.mode})
        self.pending = Pending(path.with_suffix(".release"), repeat=repeat)
        self.pending.open(self.ledger)

    def release(self, vectors: Floats, labels: Integers, round: int) -> Release:
        """Release sums of these samples, charged for good, or raise BudgetExhausted."""
        wholes = np.rint(vectors.astype(np.float64) * STEPS).astype(np.int64)
        if (np.square(wholes).sum(axis=1) > STEPS**2).any():
            raise AssertionError("what stands for a sample is longer than 1")
        noise, entry = self._bill(round)
        noisy = np.zeros((self.classes, wholes.shape[1]), np.int64)
        np.add.at(noisy, labels, wholes)
        variance = math.ceil((noise * reach(self.policy, wholes.shape[1] - 1) * STEPS) ** 2 / self.policy.noise_shares)
        noisy += discrete_gaussian(variance, noisy.size, self.random_bytes).reshape(noisy.shape)
        if np.abs(noisy).max() * sums.STEP > sums.LARGEST:
            raise ConfigError("a private release can add up some 100,000 samples of a class, and there are more")
        declared, source = variance * sums.STEP**2, "os" if self.seeded is None else "seeded"
        exact = noisy.astype(np.float64) * sums.STEP
        release = sums.as_release(exact, round, self.space, variance=declared, noise=source)
        self.pending.charge(self.ledger, entry, wire.encode_release(release))
        return release

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
    def spent(self) -> float:
        """ε so far at today's δ. No sample decides it, so it may be told."""
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

    def _bill(self, round: int) -> tuple[float, Entry]:
        """The noise multiplier of a release, and its entry for the ledger. Raises BudgetExhausted."""
        noise = accounting.noise_for(self.epsilon, self.delta, self.policy.releases or 1)
        cost = self._cost(noise)
        if cost > self.epsilon * ROUNDING:
            raise BudgetExhausted(
                f"the privacy budget is spent: {len(self.ledger.entries)} releases cost ε = {self.spent:.3g}, one more "
                f"would make it {cost:.3g} of ε = {self.epsilon:g}"
            )
        return noise, {"round": round, "epsilon": cost, "delta": self.delta, "charge": [noise], **OWN_COINS}

    def _cost(self, *more: float) -> float:
        """ε of all charges so far, and of releases with these noise multipliers."""
        charges = [entry["charge"][0] for entry in self.ledger.entries]  # earlier versions wrote more beside it
        return accounting.epsilon(Counter([*charges, *more]), self.delta)


def reach(policy: Policy, dimension: int) -> float:
    """The largest distance by which one sample can move the sums.

    One that is replaced by a sample of another class moves them by √2 at most; by one of its own class, by twice the
    length of its vector, since the number that counts it stays.
    """
    if policy.adjacency == "add-remove":
        return 1.0
    counts = round(sums.scales(dimension)[1] * STEPS) / STEPS
    return max(math.sqrt(2), 2 * math.sqrt(1 - counts**2))


def check_shares(policy: Policy, members: int) -> str:
    """The conditions under which ε holds if members of a group share the noise. Raises ConfigError if it cannot."""
    if policy.noise_shares > members:
        raise ConfigError(
            f"noise_shares is {policy.noise_shares}, but a sum of the group may have {members} members, whose noise "
            "would not be enough"
        )
    return f"ε holds if at most {members - policy.noise_shares} of {members} members collude"
