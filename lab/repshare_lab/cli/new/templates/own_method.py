"""A method of your own: FedAvg whose clients keep their weights short.

repshare compare --methods FL own_method.py:SHORT --method-options SHORT.mu=0.1
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from repshare.learning.training import Batch, Learner
from repshare_lab.methods import FL


@dataclass(frozen=True)
class Options:
    """Set with --method-options SHORT.mu=0.1."""

    mu: float = 0.001
    """How strongly weights are pulled to zero."""


def loss(learner: Learner, batch: Batch) -> Tensor:
    """Return μ/2 · ‖w‖², which is added to the loss of each batch."""
    mu: float = learner.options.mu
    return mu / 2 * torch.stack([weight.square().sum() for weight in learner.network.model.parameters()]).sum()


SHORT = FL._replace(name="SHORT", title="FedAvg with short weights", loss=loss, options=Options())
