"""A method of your own: FedAvg whose clients keep their weights short.

repshare compare --methods FL own_method.py:SHORT --method-options SHORT.mu=0.1
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from repshare.network.learner import Batch
from repshare_lab.methods import FL
from repshare_lab.methods.fedavg import WeightsLearner


@dataclass(frozen=True)
class Options:
    """Set with --method-options SHORT.mu=0.1."""

    mu: float = 0.001
    """How strongly weights are pulled to zero."""


class ShortLearner(WeightsLearner):
    """FedAvg's learner, with a loss of its own."""

    def own_loss(self, batch: Batch) -> Tensor:
        """μ/2 · ‖w‖², which is added to the loss of each batch."""
        mu: float = self.options.mu
        return mu / 2 * torch.stack([weight.square().sum() for weight in self.network.model.parameters()]).sum()


SHORT = FL._replace(name="SHORT", title="FedAvg with short weights", learner=ShortLearner.open, options=Options())
