"""SCAFFOLD: control variates c_i and c, the clients' and the server's mean gradient, correct each local step.

y ← y − η_l (g_i(y) − c_i + c);  after K steps (option II) c_i⁺ = c_i − c + (x − y) / (K η_l);
x ← x + η_g · mean of (y − x);  c ← mean of all c_i.

All clients count the same, as published, and train with SGD (see the option). c is the mean over the clients that have
taken part so far: the paper's, over all, once everyone has. It counts nothing that a straggler sends too late.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from repshare.fields import check_positive
from repshare.learning.training import Batch
from repshare.methods import averaging, policies
from repshare.methods.method import Method
from repshare.methods.weights.plain_sgd import PlainSGD
from repshare.methods.weights.stepping import Stepping, name_tensors, without_statistics
from repshare.sharing import wire


@dataclass(frozen=True)
class ScaffoldOptions:
    """Both learning rates."""

    learning_rate: float | None = None
    """η_l: learning rate of its SGD. Default: --learning-rate if --optimizer is sgd, else 0.2."""
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


class ScaffoldServer(Stepping):
    """A server with x, and the sum of all c_i."""

    hidden = ("total ", "all clients")

    def begin(self, start: averaging.Weights) -> averaging.Weights:
        """Return the weights and c = 0."""
        state = {**start, "all clients": np.zeros(1)}
        for name, array in without_statistics(start).items():
            state |= {f"c {name}": np.zeros_like(array), f"total {name}": np.zeros(array.shape)}
        return state

    def step(self, state: averaging.Weights, means: averaging.Weights, clients: int) -> averaging.Weights:
        """Return x and c after a round."""
        after: dict[str, Any] = {name: means[name] for name in means if name in state}
        after["all clients"] = state["all clients"] + np.rint(clients * means["is new"].astype(np.float64))
        for total in (name for name in state if name.startswith("total ")):
            name = total.removeprefix("total ")
            x, dtype = state[name].astype(np.float64), state[name].dtype
            after[name] = (x + self.options.server_rate * (means[name] - x)).astype(dtype)
            after[total] = state[total] + clients * means[f"c {name}"].astype(np.float64)
            after[f"c {name}"] = (after[total] / after["all clients"]).astype(dtype)
        return after


SCAFFOLD = Method(
    "SCAFFOLD", "FedAvg with control variates (SCAFFOLD)", share, ScaffoldServer, absorb, loss,
    ScaffoldOptions(), learner=PlainSGD, adapt=partial(policies.refuse_privacy, "SCAFFOLD"), models="one",
    source="Karimireddy et al., 2020: SCAFFOLD: stochastic controlled averaging for federated learning",
)  # fmt: skip
