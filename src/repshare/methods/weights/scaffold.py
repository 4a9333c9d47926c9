"""SCAFFOLD: control variates c_i and c, the clients' and the server's mean gradient, correct each local step.

y ← y − η_l (g_i(y) − c_i + c);  after K steps (option II) c_i⁺ = c_i − c + (x − y) / (K η_l);
x ← x + η_g · mean of (y − x);  c ← mean of all c_i.

All clients count the same, as published, and train with SGD (see the option). c is the mean over the clients that have
taken part so far: the paper's, over all, once everyone has. It counts nothing that a straggler sends too late.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from repshare.fields import check_positive
from repshare.learning.training import Batch
from repshare.methods import averaging, policies
from repshare.methods.method import Method
from repshare.methods.weights.plain_sgd import PlainSGD
from repshare.methods.weights.stepping import name_tensors
from repshare.methods.weights.variates import ScaffoldServer
from repshare.sharing import wire


@dataclass(frozen=True)
class ScaffoldOptions:
    """Both learning rates."""

    learning_rate: float | None = None
    """η_l: learning rate of its SGD. Default: the policy's if its optimizer is sgd, else 0.2."""
    server_rate: float = 1.0
    """η_g: the part of the way to the clients' mean that the server goes."""

    def __post_init__(self) -> None:
        check_positive(self, "learning_rate", "server_rate")


def absorb(learner: Any, body: bytes) -> None:
    """Continue from x, and remember it with c."""
    kept, model = learner.remembered, learner.network.model
    controls = {f"c {name}": torch.zeros_like(tensor) for name, tensor in model.named_parameters()}
    averaging.copy_into(name_tensors(model) | controls, wire.decode_weights(body)[0])
    kept |= controls | {f"x {name}": tensor.detach().clone() for name, tensor in model.named_parameters()}


def loss(learner: Any, batch: Batch) -> Tensor:
    """Return ⟨c − c_i, y⟩, whose gradient is the correction."""
    kept, named = learner.remembered, learner.network.model.named_parameters()
    return torch.stack([((kept[f"c {name}"] - kept.get(f"own {name}", 0)) * y).sum() for name, y in named]).sum()


def share(learner: Any, round: int) -> bytes:
    """Return y and the change of c_i, which is made here."""
    kept, shared = learner.remembered, name_tensors(learner.network.model)
    shared["is new"] = torch.tensor([0.0 if any(name.startswith("own ") for name in kept) else 1.0])
    for name, y in learner.network.model.named_parameters():
        descended = (kept[f"x {name}"] - y.detach()) / (max(1, learner.steps) * learner.policy.learning_rate)
        shared[f"c {name}"] = descended - kept[f"c {name}"]
        kept[f"own {name}"] = kept.get(f"own {name}", 0) + shared[f"c {name}"]
    return wire.encode_weights(averaging.as_arrays(shared), round=round, samples=1)


SCAFFOLD = Method(
    "SCAFFOLD", "FedAvg with control variates (SCAFFOLD)", share, ScaffoldServer, absorb, loss,
    ScaffoldOptions(), learner=PlainSGD, adapt=partial(policies.refuse_privacy, "SCAFFOLD"), models="one",
    source="Karimireddy et al., 2020: SCAFFOLD: stochastic controlled averaging for federated learning",
)  # fmt: skip
