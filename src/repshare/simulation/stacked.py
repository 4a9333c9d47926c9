"""Clients of one architecture side by side: their first convolutions in one call, with a group for each half-batch.

The first layers of a small network have so few channels that most of a vector register is idle. A grouped convolution
fills it with other samples: a client's batch is laid out as two halves, and the halves of all clients are the groups.
What follows is each client's own, on tensors of its own: only additions inside a group can depend on how a kernel goes
about them, and a client alone has two groups, as any other. So a client's bits do not depend on whom it trains with.
"""

from collections.abc import Sequence
from itertools import islice, zip_longest
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repshare.learning.measures import Averages, Losses
from repshare.learning.models import Classifier, Halving
from repshare.learning.optimizers import OPTIMIZERS
from repshare.learning.training import Batch, Learner

HALVES = 2
FULL = 16  # channels: those of a vector register
ALGORITHM_2 = (
    "train",
    "begin_training",
    "_step",
    "_backward",
    "_descend",
    "_forward",
)  # who changes these is on its own


def describe(learner: Learner) -> tuple[Any, ...] | None:
    """Return what learners that train side by side have in common; None for one that cannot."""
    model, policy = learner.network.model, learner.policy
    own = any(getattr(type(learner), name) is not getattr(Learner, name) for name in ALGORITHM_2)
    if own or not isinstance(model, Classifier) or type(model).forward is not Classifier.forward:
        return None
    if learner.network.layer is not model.head or not count_stacked(model):
        return None
    if policy.compute != "fp32" or learner.samples.device.type != "cpu":
        return None
    return str(model), policy.optimizer, policy.learning_rate


def count_stacked(model: Classifier) -> int:
    """Return how many of the first layers are computed for all clients at once: those to or from few channels."""
    count = 0
    for layer in model.features:
        if isinstance(layer, nn.Conv2d):
            plain = layer.groups == 1 and layer.padding_mode == "zeros" and layer.bias is not None
            few = layer.out_channels <= FULL and min(layer.in_channels if count else FULL, layer.out_channels) < FULL
            if not (plain and few):
                break
        elif not (count and isinstance(layer, nn.MaxPool2d | Halving | nn.ReLU)):
            break
        count += 1
    return count


def train_together(learners: Sequence[Learner]) -> list[Losses]:
    """Train as each learner's `train` does, all at once. Who has no batch left, or a smaller one, steps apart."""
    averages = [Averages() for _ in learners]
    optimizer = _join_optimizers(learners)
    for batches in zip_longest(*(learner.begin_training() for learner in learners)):
        alike: dict[Any, list[int]] = {}
        for place, batch in enumerate(batches):
            if batch is not None:
                alike.setdefault(batch[0].shape, []).append(place)
        for places in alike.values():
            members = [learners[place] for place in places]
            _step(members, [batches[place] for place in places], optimizer, [averages[place] for place in places])
    for learner in learners:
        learner.optimizer.state.update({each: optimizer.state[each] for each in learner.trained})
    return [each.result() for each in averages]


def _join_optimizers(learners: Sequence[Learner]) -> torch.optim.Optimizer:
    """Return one optimizer of all learners' weights. It works on the states of theirs."""
    policy, trained = learners[0].policy, [each for learner in learners for each in learner.trained]
    joint = OPTIMIZERS[policy.optimizer](trained, lr=policy.learning_rate, fused=True)
    for learner in learners:
        joint.state.update(learner.optimizer.state)
    return joint


def _step(
    learners: Sequence[Learner],
    batches: Sequence[tuple[Tensor, Tensor]],
    optimizer: torch.optim.Optimizer,
    averages: Sequence[Averages],
) -> None:
    losses = []
    outputs = forward([learner.network.model for learner in learners], [inputs for inputs, _ in batches])
    for learner, (inputs, labels), (features, logits), average in zip(
        learners, batches, outputs, averages, strict=True
    ):
        terms, loss = learner.find_loss(Batch(inputs, labels, features, logits))
        average.add(terms, logits, labels)
        losses.append(loss)
    torch.autograd.backward(losses)
    for learner, loss in zip(learners, losses, strict=True):
        if not learner.count_step(loss):
            learner.optimizer.zero_grad()
    optimizer.step()
    optimizer.zero_grad()


def forward(models: Sequence[Any], inputs: Sequence[Tensor]) -> list[tuple[Tensor, Tensor]]:
    """Return each model's features (n, d') and logits (n, C) of its own batch. All batches have one shape."""
    count, stacked = count_stacked(models[0]), _lay_side_by_side(inputs)
    for place in range(count):
        layer = models[0].features[place]
        if isinstance(layer, nn.Conv2d):
            weight, bias = (_repeat([getattr(m.features[place], name) for m in models]) for name in ("weight", "bias"))
            groups = HALVES * len(models)
            stacked = F.conv2d(stacked, weight, bias, layer.stride, layer.padding, layer.dilation, groups)
        else:
            stacked = layer(stacked)
    outputs = []
    for model, features in zip(models, _take_apart(stacked, len(models), len(inputs[0])), strict=True):
        for layer in islice(model.features, count, None):
            features = layer(features)
        outputs.append((features, model.head(features)))
    return outputs


def _lay_side_by_side(inputs: Sequence[Tensor]) -> Tensor:
    """Return batches (n, c, h, w) as (n / 2, clients · halves · c, h, w), channels last; an odd n is filled up."""
    together = torch.stack(list(inputs))  # (clients, n, c, h, w)
    clients, count, channels, height, width = together.shape
    if count % HALVES:
        together = F.pad(together, (0, 0, 0, 0, 0, 0, 0, 1))
    halves = together.reshape(clients, HALVES, -1, channels, height, width).permute(2, 4, 5, 0, 1, 3)
    return halves.reshape(-1, height, width, clients * HALVES * channels).contiguous().permute(0, 3, 1, 2)


def _take_apart(stacked: Tensor, clients: int, count: int) -> list[Tensor]:
    """Return each client's (n, c, h, w), channels last, in memory of its own."""
    rows, channels, height, width = stacked.shape
    parts = stacked.permute(0, 2, 3, 1).reshape(rows, height, width, clients, HALVES, channels // clients // HALVES)
    halves = [each.clone(memory_format=torch.contiguous_format) for each in parts.permute(3, 4, 0, 1, 2, 5).unbind()]
    own = [each.flatten(0, 1) for each in halves]  # (n, h, w, c) each
    if len(own[0]) > count:
        own = [each[:count] for each in own]
    return [each.permute(0, 3, 1, 2) for each in own]


def _repeat(tensors: Sequence[Tensor]) -> Tensor:
    """Return weights or biases (clients · halves · c, …): each client's for both of its halves."""
    together = torch.stack(list(tensors))[:, None]  # (clients, 1, c, …)
    halves = together.expand(-1, HALVES, *together.shape[2:]).flatten(0, 2)
    return halves.contiguous(memory_format=torch.channels_last) if halves.ndim == 4 else halves
