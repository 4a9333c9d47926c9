"""A client whose every step is also on a batch of public samples, towards what came back."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from repshare.learning.measures import Losses
from repshare.learning.training import Batch, Learner
from repshare.methods.public.soft_labels import PublicLearner


class PeerLearner(PublicLearner):
    """A learner whose every step is also on a batch of public samples."""

    def train(self) -> Losses:
        """Train on own samples; `loss` adds the others."""
        return Learner.train(self)


def loss(learner: Any, batch: Batch) -> Tensor:
    """Return w times the cross-entropy with the others' mean prediction of as many public samples."""
    if (taught := learner.taught()) is None or int(learner.remembered["round"]) < learner.options.burn_in:
        return batch.logits.new_zeros(())
    rows, targets = taught
    part = torch.randint(len(rows), (len(batch.labels),), generator=learner.pairing)
    _, logits = learner._forward(learner.public.batch(rows[part])[0])
    return float(learner.options.weight) * F.cross_entropy(logits, targets[part])
