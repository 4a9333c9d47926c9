"""A loss of your own: representation sharing in which samples of one class attract each other, and others repel.

repshare compare --methods RS examples/own_loss.py:CONTRAST --method-options CONTRAST.weight=0.5
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from repshare.methods import RS
from repshare.network.learner import Batch, NetworkLearner


@dataclass(frozen=True)
class Options:
    """Set with --method-options CONTRAST.weight=0.5 CONTRAST.temperature=0.2."""

    weight: float = 0.1
    """The weight of the term."""
    temperature: float = 0.1
    """Smaller values look at the nearest samples only."""

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ValueError(f"temperature must be above 0, not {self.temperature}")


class ContrastLearner(NetworkLearner):
    """RS's learner, with a loss of its own. What is shared stays the same."""

    def own_loss(self, batch: Batch) -> Tensor:
        """Supervised contrastive loss (Khosla et al., 2020) of a batch's features."""
        features = F.normalize(batch.features, dim=1)  # (n, d')
        itself = torch.eye(len(features), dtype=torch.bool, device=features.device)
        alike = (features @ features.T / self.options.temperature).masked_fill(itself, -1e9)  # (n, n)
        same = (batch.labels[:, None] == batch.labels) & ~itself
        nearer: Tensor = -(alike.log_softmax(dim=1) * same).sum(dim=1) / same.sum(dim=1).clamp(min=1)
        return nearer.mean() * float(self.options.weight)


CONTRAST = RS._replace(
    name="CONTRAST", title="RS with a contrastive loss", learner=ContrastLearner.open, options=Options()
)
