"""VRLSGD: VRL-SGD, local SGD in which each client corrects its gradient by how it differed from the others'.

x ← x − γ (g_i(x) − Δ_i) for k local steps;  x̂ = mean of x_i;  Δ_i ← Δ_i + (x̂ − x_i) / (k γ).

All clients count the same, as published, and train with SGD (see the option). The paper's Δ_i add up to zero, since
there everyone takes part in each round with the same number of steps: otherwise they need not.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor

from repshare.learning.training import Batch
from repshare.methods import averaging, fedavg, policies
from repshare.methods.method import Method
from repshare.methods.weights.plain_sgd import PlainSGD, SGDOptions
from repshare.sharing import wire


def absorb(learner: Any, body: bytes) -> None:
    """Continue from x̂, and make the next Δ_i of what was sent. To absorb the same again changes nothing."""
    fedavg.absorb(learner, body)
    kept = learner.remembered
    for name, average in learner.network.model.named_parameters():
        if f"sent {name}" in kept:
            way = (average.detach() - kept[f"sent {name}"]) / (kept["steps"] * learner.policy.learning_rate)
            kept[f"next {name}"] = kept.get(f"delta {name}", 0) + way


def loss(learner: Any, batch: Batch) -> Tensor:
    """Return −⟨Δ_i, x⟩, whose gradient is the correction."""
    kept, named = learner.remembered, learner.network.model.named_parameters()
    terms = [(kept[f"next {name}"] * tensor).sum() for name, tensor in named if f"next {name}" in kept]
    return -torch.stack(terms).sum() if terms else batch.logits.new_zeros(())


def share(learner: Any, round: int) -> bytes:
    """Return the model, and remember it with the Δ_i that it was trained with."""
    kept, model = learner.remembered, learner.network.model
    kept["steps"] = torch.tensor(float(max(1, learner.steps)))
    for name, tensor in model.named_parameters():
        kept[f"sent {name}"] = tensor.detach().clone()
        if f"next {name}" in kept:
            kept[f"delta {name}"] = kept[f"next {name}"]
    return wire.encode_weights(averaging.read_weights(model), round=round, samples=1)


VRLSGD = Method(
    "VRLSGD", "local SGD with reduced variance (VRL-SGD)", share, averaging.Average, absorb, loss,
    SGDOptions(), learner=PlainSGD, adapt=partial(policies.refuse_privacy, "VRLSGD"), models="one",
    source="Liang et al., 2019: Variance reduced local SGD with lower communication complexity",
)  # fmt: skip
