"""Mutual distillation between a client's own network, the mentor, and a smaller one that all share, the mentee."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repshare.errors import ConfigError
from repshare.learning.models import Network, build, split
from repshare.learning.objective import cross_entropy
from repshare.learning.optimizers import OPTIMIZERS
from repshare.learning.randomness import derive
from repshare.learning.samples import Samples
from repshare.learning.training import Batch
from repshare.methods.distillation import LogitLearner


class MentoringLearner(LogitLearner):
    """A learner with a mentee of the same first weights as everyone's, and a map W of its features."""

    def __init__(self, *arguments: Any, seed: int, **given: Any) -> None:
        super().__init__(*arguments, seed=seed, **given)
        example, _ = self.samples.batch(torch.arange(1))
        (name, sizes), start = choose_mentee(self.options.mentee, example), derive(seed, "mentee")
        model = build(name, classes=self.network.classes, dimension=None, seed=start, **sizes)
        self.mentee = split(model.to(self.samples.device), example)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(start)
            self.map = nn.Linear(self.mentee.dimension, self.network.dimension, bias=False).to(self.samples.device)
        self.trained += [*model.parameters(), *self.map.parameters()]
        self.optimizer = OPTIMIZERS[self.policy.optimizer](self.trained, lr=self.policy.learning_rate, fused=True)
        everyones = {f"base {name}": tensor.detach().clone() for name, tensor in floats(self.mentee).items()}
        self.remembered = {"round": torch.tensor(0), **everyones}

    def scores(self, samples: Samples) -> Tensor:
        """Return the scores of the one that decides (n, C)."""
        if self.options.decide == "mentor":
            return super().scores(samples)
        own, self.network = self.network, self.mentee
        try:
            return super().scores(samples)
        finally:
            self.network = own

    def state(self) -> dict[str, Any]:
        """Return all that another learner of the same kind needs to continue to the same bits."""
        return {**super().state(), "mentee": self.mentee.model.state_dict(), "map": self.map.state_dict()}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        self.mentee.model.load_state_dict(state["mentee"])
        self.map.load_state_dict(state["map"])
        super().load_state(state)


def floats(network: Network) -> dict[str, Tensor]:
    """Return a network's tensors of real numbers by name, which share memory with it."""
    return {name: tensor for name, tensor in network.model.state_dict().items() if tensor.is_floating_point()}


def choose_mentee(wanted: str | None, example: Any) -> tuple[str, dict[str, int]]:
    """Return the name of the mentee's model, and the sizes of the data that it is built for."""
    if isinstance(example, Mapping) or example.ndim not in (2, 4) or not example.is_floating_point():
        raise ConfigError("a mentee is built for images or tables: these inputs are neither, leave FEDKD out")
    if example.ndim == 4:
        return wanted or "convnet", {"channels": example.shape[1]}
    return wanted or "mlp", {"features": example.shape[1]}


def loss(learner: Any, batch: Batch) -> Tensor:
    """Return the mentee's task loss and all that mentor and mentee learn from each other.

    The mentor's own task loss is there already. Each probability that is learned from is a constant for the other side,
    and so are the task losses that divide.
    """
    learner.mentee.model.train()
    features, logits = learner.mentee(batch.inputs)
    mentor, mentee = cross_entropy(batch.logits, batch.labels), cross_entropy(logits, batch.labels)
    to_mentor, to_mentee = diverge(logits, batch.logits), diverge(batch.logits, logits)
    hidden = F.mse_loss(learner.map(features), batch.features)
    return mentee + (to_mentor + to_mentee + hidden) / (mentor + mentee).detach()


def diverge(teacher: Tensor, student: Tensor) -> Tensor:
    """Return KL(softmax(teacher), softmax(student)), averaged over the batch, for the student to learn from."""
    return F.kl_div(student.log_softmax(dim=1), teacher.detach().softmax(dim=1), reduction="batchmean")
