"""FEDMD: clients agree on class scores of public samples, digest them, and revisit their own samples.

f̃(x) = 1/m · Σ_k f_k(x) for each public x of a round; then each client trains to bring f_k(x) close to f̃(x) (mean
absolute error of the logits, as in the authors' code) and, last, on its own samples. Models may differ.

The paper begins with training on the public labels. That is an option here, and off: no public label is used then.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from repshare.errors import ConfigError
from repshare.fields import check_whole
from repshare.learning.measures import Losses
from repshare.learning.samples import shuffle
from repshare.methods.method import Method
from repshare.methods.policies import own_terms
from repshare.methods.public import soft_labels


@dataclass(frozen=True)
class ConsensusOptions(soft_labels.SoftLabelOptions):
    """The soft labels', and the paper's first step."""

    pretrain_epochs: int = 0
    """Passes over all public samples with their labels before the first round (public data of the data set's rest)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_whole(self, 0, "pretrain_epochs")


class ConsensusLearner(soft_labels.PublicLearner):
    """A learner that may have learned the public labels first."""

    def __init__(self, *arguments: Any, **given: Any) -> None:
        super().__init__(*arguments, **given)
        if self.options.pretrain_epochs and (self.public.labels < 0).any():
            raise ConfigError("the classes of these public samples are not the task's: leave pretrain_epochs out")

    def towards(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the mean absolute difference of class scores."""
        return F.l1_loss(logits, targets)

    def train(self) -> Losses:
        """Learn the public labels, if asked, before the first round; then as all do."""
        if self.options.pretrain_epochs and "pretrained" not in self.remembered:
            self._pretrain()
            self.remembered["pretrained"] = torch.tensor(True)
        return super().train()

    def _pretrain(self) -> None:
        self.network.model.train()
        with self._own_noise():
            for _ in range(self.options.pretrain_epochs):
                for part in shuffle(len(self.public), self.policy.batch_size, self.batches):
                    self._step(*self.public.batch(part))


FEDMD = Method(
    "FEDMD", "consensus on class scores of public samples (FedMD)", soft_labels.share_logits, soft_labels.SoftLabels,
    soft_labels.absorb, options=ConsensusOptions(), learner=ConsensusLearner, adapt=partial(own_terms, "FEDMD"),
    source="Li and Wang, 2019: FedMD: heterogenous federated learning via model distillation",
)  # fmt: skip
