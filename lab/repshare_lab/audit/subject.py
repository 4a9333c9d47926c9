"""The target of attacks: the guard that ships, and a model trained on real samples."""

from typing import NamedTuple

import numpy as np
import torch

from repshare.config import Policy
from repshare.network.learner import NetworkLearner
from repshare.network.models import build
from repshare.privacy import accounting
from repshare.privacy.accounting import Charge
from repshare.privacy.guard import Guard
from repshare.privacy.ledger import Entry
from repshare.samples import Samples
from repshare.sharing.representations import Floats, Integers, Release, Representations, class_means, observe
from repshare_lab.audit.membership import Releasing
from repshare_lab.data.datasets import Dataset

SEED = 0


class Released(NamedTuple):
    """A released class, and what its release is said to cost."""

    release: Releasing
    deviation: float  # of the noise on a sum
    accounted: float  # ε; infinite without noise


class Audited(Guard):
    """The guard that ships, but its price is worked out once, and some of its noise can be left out on purpose."""

    def __init__(self, policy: Policy, labels: Integers, *, dimension: int, share: float) -> None:
        super().__init__(policy, labels, dimension=dimension, classes=[0], seeded=np.random.default_rng(SEED))
        self.share, self.charge = share, Charge(0.0)

    def _bill(self, smallest: int, round: int) -> tuple[float, Entry]:
        if not self.charge.noise:
            _, entry = super()._bill(smallest, round)
            self.charge = Charge(*entry["charge"])
        return self.charge.noise * self.share, {}

    def _charge(self, entry: Entry, release: Release) -> Release:
        return release


def guarded(policy: Policy, size: int, dimension: int, *, share: float = 1.0) -> Released:
    """Release a class of `size` samples with the policy's noise, or with a share of it."""
    labels = np.zeros(size, np.int64)
    guard = Audited(policy, labels, dimension=dimension, share=share)

    def release(vectors: Floats) -> tuple[Representations, Representations]:
        made = guard.release(vectors, labels, np.arange(size), 1)
        return made.means, made.observations

    release(np.zeros((size, dimension), np.float32))
    accounted = accounting.epsilon({guard.charge: policy.planned_releases}, policy.delta)
    return Released(release, guard.charge.noise * 2 * guard.bound, accounted)


def unguarded(policy: Policy, size: int) -> Released:
    """Release the same without noise, as the paper does."""
    labels, rng = np.zeros(size, np.int64), np.random.default_rng(SEED)

    def release(vectors: Floats) -> tuple[Representations, Representations]:
        return class_means(vectors, labels), observe(vectors, labels, policy.n_avg, policy.m_up, rng)

    return Released(release, 0.0, float("inf"))


class Trained(NamedTuple):
    """Representations of the samples that a model was trained on, the same number of each class."""

    vectors: Floats  # (n, d)
    labels: Integers  # (n,)


def train(data: Dataset, classes: int, size: int, epochs: int) -> Trained:
    """Train one client's LeNet5 alone on the first `size` samples of each class."""
    rows = np.sort(np.concatenate([np.flatnonzero(data.labels == label)[:size] for label in range(classes)]))
    torch.set_num_threads(1)
    network = build("lenet5", channels=data.images.shape[1], classes=classes, dimension=None, seed=SEED)
    samples = Samples((torch.from_numpy(data.images[rows]), torch.from_numpy(data.labels[rows])))
    learner = NetworkLearner(network, samples, Policy(epochs=epochs), name="audited", seed=SEED)
    learner.train()
    return Trained(*learner.represent())
