"""CRONUS: soft labels of public samples, combined by a robust mean, and learned together with a client's own samples.

Of the clients' probabilities of one public sample, those far off along the direction v of largest variance λ are
removed until λ ≤ 9 σ²: |⟨v, y − mean⟩| ≥ Z · max |⟨v, y − mean⟩|, with Z of density 2z on [0, 1]; the rest is averaged.
Each client trains on its samples and the public ones with these labels, in turns of one batch each. Models may differ.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from repshare.fields import check_positive
from repshare.learning.measures import Averages, Losses
from repshare.learning.randomness import numpy_stream
from repshare.methods.gathering import Message
from repshare.methods.method import Method
from repshare.methods.policies import own_terms
from repshare.methods.public import soft_labels
from repshare.methods.public.robust_mean import robust_mean


@dataclass(frozen=True)
class RobustOptions(soft_labels.SoftLabelOptions):
    """The soft labels', and the filter's."""

    spread: float = 0.1
    """σ: standard deviation, in any direction, that honest clients' probabilities of one sample may have."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "spread")


class RobustLearner(soft_labels.PublicLearner):
    """A learner whose epochs are over its own samples and the public ones."""

    def train(self) -> Losses:
        """Train on both, in batches of one kind, in random order."""
        if (taught := self.taught()) is None:
            return super().train()
        (rows, targets), averages, public = taught, Averages(), list[float]()
        self.network.model.train()
        with self._own_noise():
            parts = [(True, part) for part in self.passes(self.policy.epochs, len(self.samples))]
            parts += [(False, part) for part in self.passes(self.options.public_epochs, len(rows))]
            for place in torch.randperm(len(parts), generator=self.batches).tolist():
                own, part = parts[place]
                if own:
                    inputs, labels = self.samples.batch(part)
                    averages.add(*self._step(inputs, labels), labels)
                else:
                    public.append(self.public_step(rows[part], targets[part]))
        return averages.result()._replace(kd=float(np.mean(public)))


class Filtered(soft_labels.SoftLabels):
    """The robust mean of soft labels."""

    seed = 0

    def equip(self, seed: int, public: object) -> None:
        """Draw from this seed."""
        self.seed = seed

    def combine(self, messages: Mapping[str, Message], samples: Mapping[str, int]) -> Message:
        """Return the robust mean for each public sample."""
        rng = numpy_stream(self.seed, "server", "filter", self.round)
        together = np.stack([each["labels"].astype(np.float64) for each in messages.values()], axis=1)  # (n, m, C)
        means = [robust_mean(each, self.options.spread, rng) for each in together]
        return {"labels": np.stack(means, dtype=np.float32)}


CRONUS = Method(
    "CRONUS", "robust mean of soft labels of public samples (Cronus)", soft_labels.share_probabilities, Filtered,
    soft_labels.absorb, options=RobustOptions(), learner=RobustLearner, adapt=partial(own_terms, "CRONUS"),
    source="Chang et al., 2019: Cronus: robust and heterogeneous collaborative learning",
)  # fmt: skip
