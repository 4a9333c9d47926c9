"""FEDPROTO: clients share the mean feature vector of each class, and pull theirs towards everyone's.

C̄_j = Σ_i n_ij/n_j · C_ij, the mean of clients' prototypes of class j. (The paper's formula divides it by the number of
clients, too, which would only shrink it: that is left out.) Loss of a batch: CE + λ · Σ_j ‖φ̄_j − C̄_j‖² / d', with φ̄_j
the mean feature of its samples of class j. The class of a sample is that of the nearest C̄_j. Models may differ.
"""

from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from repshare.errors import Malformed
from repshare.fields import check_not_negative, check_one_of
from repshare.measures import Doubles
from repshare.methods.method import Method
from repshare.network.learner import Batch, NetworkLearner
from repshare.samples import Samples
from repshare.sharing import wire
from repshare.sharing.representations import Floats, make_release
from repshare_lab.methods import averaging, policies


@dataclass(frozen=True)
class PrototypeOptions:
    """Its weight, and what decides."""

    weight: float = 1.0
    """λ: how strongly class means of features are pulled to everyone's."""
    decide: Literal["prototypes", "head"] = "prototypes"
    """What chooses a class: the nearest prototype, or the client's own head."""

    def __post_init__(self) -> None:
        check_not_negative(self, "weight")
        check_one_of(self, "decide")


class PrototypeLearner(NetworkLearner):
    """A learner that chooses the class of the nearest prototype, once it has any."""

    def scores(self, samples: Samples) -> Doubles | Floats:
        """Minus the squared distance to each prototype (n, C)."""
        if not self.remembered or self.options.decide == "head":
            return super().scores(samples)
        prototypes, known = self.remembered["prototypes"], self.remembered["known"]
        distances = [torch.cdist(features, prototypes).square() for (features, _), _ in self._outputs(samples)]
        return -torch.cat(distances).masked_fill(~known, torch.inf).cpu().numpy()

    def release(self, round: int) -> bytes:
        """Sums of features and counts by class, of the samples that the policy lets take part."""
        vectors, labels = self.represent()
        means = make_release(vectors, labels, self.averaging, self.policy, round).means
        sums = np.zeros((self.classes, self.dimension), np.float32)
        counts = np.zeros(self.classes, np.float32)
        sums[means.labels], counts[means.labels] = means.vectors * means.counts[:, None], means.counts
        return wire.encode_weights({"sums": sums, "counts": counts}, round=round, samples=1)

    def absorb(self, body: bytes) -> None:
        """Remember everyone's prototypes, if there are any."""
        total, like = wire.decode_weights(body)[0], self.network.head.weight
        if not total:
            return
        kept = {"sums": torch.zeros(self.classes, self.dimension), "counts": torch.zeros(len(like))}
        averaging.copy_into(kept, total)
        known = kept["counts"] > 0
        if not known.any():
            raise Malformed("there is no prototype of any class")
        prototypes = kept["sums"] / torch.where(known, kept["counts"], 1)[:, None]
        self.remembered = {"prototypes": prototypes.to(like), "known": known.to(like.device)}

    def own_loss(self, batch: Batch) -> Tensor | None:
        """λ · Σ_j ‖φ̄_j − C̄_j‖² / d' over the classes of a batch that have a prototype."""
        if not self.remembered:
            return None
        belongs = F.one_hot(batch.labels, self.classes).to(batch.features)  # (n, C)
        means = belongs.T @ batch.features / belongs.sum(0).clamp(min=1)[:, None]  # (C, d')
        there = self.remembered["known"] & (belongs.sum(0) > 0)
        away = (means - self.remembered["prototypes"])[there]
        return away.square().mean(1).sum() * float(self.options.weight)


FEDPROTO = Method(
    "FEDPROTO", "class prototypes, averaged (FedProto)", PrototypeLearner.open, averaging.ArrayAverage,
    PrototypeOptions(), partial(policies.own_terms, "FEDPROTO"), models="part", add_up=averaging.ArrayAverage.add_up,
    source="Tan et al., 2021: FedProto: federated prototype learning across heterogeneous clients",
)  # fmt: skip
