"""What decides whether two representations belong to one class: the model's own classifier (the paper), or another."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repshare.config import Policy
from repshare.learning.models import Network
from repshare.learning.objective import log_same_class


class Classifier(nn.Module):
    """The model's own classifier, by which ĥ(s, t) = ⟨softmax τ(s), softmax τ(t)⟩. It has no weights of its own."""

    def forward(
        self, head: nn.Module, features: Tensor, logits: Tensor, observed: Tensor, has_observation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """log ĥ and log(1 − ĥ), (n, C) each, of a batch and its observations of each class, (n or 1, C, d)."""
        return log_same_class(logits[:, None, :], head(observed))


class External(nn.Module):
    """A discriminator with weights of its own, as Tian et al. (2019) train one beside the classifier.

    ĥ(s, t) = σ(⟨g(s), g′(t)⟩ / T − log K), with two linear maps g and g′ onto the unit sphere.
    """

    TEMPERATURE = 0.1

    def __init__(self, dimension: int) -> None:
        super().__init__()
        self.student = nn.Linear(dimension, dimension)
        self.teacher = nn.Linear(dimension, dimension)

    def judge(self, student: Tensor, teacher: Tensor, negatives: int) -> tuple[Tensor, Tensor]:
        """log ĥ and log(1 − ĥ) of representations that broadcast to (…, d), with K negatives for each positive."""
        s, t = F.normalize(self.student(student), dim=-1), F.normalize(self.teacher(teacher), dim=-1)
        score = (s * t).sum(dim=-1) / self.TEMPERATURE - math.log(max(negatives, 1))
        return F.logsigmoid(score), F.logsigmoid(-score)

    def forward(
        self, head: nn.Module, features: Tensor, logits: Tensor, observed: Tensor, has_observation: Tensor
    ) -> tuple[Tensor, Tensor]:
        """log ĥ and log(1 − ĥ), (n, C) each, of a batch and its observations of each class, (n or 1, C, d)."""
        return self.judge(features[:, None, :], observed, negatives=int(has_observation.sum()) - 1)


def make_discriminator(policy: Policy, network: Network, seed: int) -> nn.Module:
    """The one that a policy names, for this network."""
    if policy.discriminator == "classifier":
        return Classifier()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return External(network.dimension).to(network.head.weight)
