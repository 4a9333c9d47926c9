"""DSFL: DS-FL, distillation with sharpened mean soft labels of public samples (entropy reduction aggregation).

t̂(x) = softmax(1/K · Σ_k t_k(x) / T) with t_k(x) the probabilities of client k, and T < 1 to sharpen their mean; then
each client minimises the cross-entropy between t̂(x) and its prediction. Models may differ. In the paper a round is
local training, exchange, distillation: so a client is tested after that distillation, which a test makes on a copy.
The paper's model at the server, trained by the same distillation alone, is left out. Models in files are those before.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from torch import Tensor

from repshare.fields import check_positive
from repshare.learning.samples import Samples
from repshare.learning.states import copy_state
from repshare.methods.gathering import Message
from repshare.methods.method import Method
from repshare.methods.policies import own_terms
from repshare.methods.public import soft_labels


@dataclass(frozen=True)
class SharpenedOptions(soft_labels.SoftLabelOptions):
    """The soft labels', and their aggregation."""

    temperature: float = 0.1
    """T: smaller values make the mean soft labels sharper."""
    sharpen: bool = True
    """Sharpen the mean of soft labels (the paper's ERA). Without it, their mean is used (its SA)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "temperature")


class DistilledLearner(soft_labels.PublicLearner):
    """A learner that is tested after it has digested what came back, and takes that back afterwards."""

    def scores(self, samples: Samples) -> Tensor:
        """Return the scores of the distilled network (n, C)."""
        before, left_out = copy_state(self.state()), self.left_out.copy()
        self.digest()
        scores = super().scores(samples)
        self.left_out = left_out
        self.load_state(before)
        return scores


class Sharpened(soft_labels.SoftLabels):
    """The sharpened mean of soft labels."""

    def combine(self, messages: Mapping[str, Message], samples: Mapping[str, int]) -> Message:
        """Return softmax(mean / T)."""
        mean = super().combine(messages, samples)["labels"]
        if not self.options.sharpen:
            return {"labels": mean}
        raised = np.exp((mean - mean.max(axis=1, keepdims=True)).astype(np.float64) / self.options.temperature)
        return {"labels": (raised / raised.sum(axis=1, keepdims=True)).astype(np.float32)}


DSFL = Method(
    "DSFL", "sharpened soft labels of public samples (DS-FL)", soft_labels.share_probabilities, Sharpened,
    soft_labels.absorb, options=SharpenedOptions(), learner=DistilledLearner,
    adapt=partial(own_terms, "DSFL"), models="part",
    source="Itahara et al., 2020: Distillation-based semi-supervised federated learning",
)  # fmt: skip
