"""FEDNOVA: clients share their mean change per step, so that those with more steps do not pull harder.

d_i = (x − y_i) / τ_i after τ_i steps of local SGD;  x ← x − τ_eff · Σ_i p_i d_i,  τ_eff = Σ_i p_i τ_i,  p_i = n_i / n.

This is the paper's for SGD without momentum or proximal term, so clients train with that (see the option).
"""

from functools import partial
from typing import Any

import numpy as np
import torch

from repshare.methods import averaging, policies
from repshare.methods.method import Method
from repshare.methods.weights import stepping
from repshare.methods.weights.plain_sgd import PlainSGD, SGDOptions
from repshare.methods.weights.stepping import Stepping, name_tensors, without_statistics
from repshare.sharing import wire


def absorb(learner: Any, body: bytes) -> None:
    """Continue from the server's weights, and remember them."""
    stepping.absorb(learner, body)
    learner.remembered = {name: tensor.detach().clone() for name, tensor in learner.network.model.named_parameters()}


def share(learner: Any, round: int) -> bytes:
    """Return the change per step, and the number of steps."""
    shared = name_tensors(learner.network.model)
    for name, start in learner.remembered.items():
        shared[name] = (start - shared[name]) / max(1, learner.steps)
    shared["number of steps"] = torch.tensor([float(learner.steps)])
    return wire.encode_weights(averaging.as_arrays(shared), round=round, samples=len(learner.samples))


class NovaServer(Stepping):
    """A server that makes as many steps as the clients did on average."""

    def step(self, state: averaging.Weights, means: averaging.Weights, clients: int) -> averaging.Weights:
        """Return x − τ_eff · Σ_i p_i d_i, and the averages of what is not trained."""
        steps, after = means["number of steps"].astype(np.float64), dict(means)
        del after["number of steps"]
        for name in without_statistics(after):
            after[name] = (state[name] - steps * means[name]).astype(state[name].dtype)
        return after


FEDNOVA = Method(
    "FEDNOVA", "FedAvg of changes per step (FedNova)", share, NovaServer, absorb,
    options=SGDOptions(), learner=PlainSGD, adapt=partial(policies.refuse_privacy, "FEDNOVA"), models="one",
    source="Wang et al., 2020: Tackling the objective inconsistency problem in heterogeneous federated optimization",
)  # fmt: skip
