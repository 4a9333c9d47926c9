"""SCAFFOLD: control variates c_i and c, the clients' and the server's mean gradient, correct each local step.

y ← y − η_l (g_i(y) − c_i + c);  after K steps (option II) c_i⁺ = c_i − c + (x − y) / (K η_l);
x ← x + η_g · mean of (y − x);  c ← mean of all c_i.

All clients count the same, as published, and train with SGD (see the option). c is the mean over the clients that have
taken part so far: the paper's, over all, once everyone has.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from repshare.board import Wants
from repshare.config import Policy
from repshare.errors import ConfigError, Refused
from repshare.fields import check_positive
from repshare.methods.method import Method
from repshare.network.learner import Batch, NetworkLearner
from repshare.network.models import Network
from repshare.samples import Samples
from repshare.sharing import wire
from repshare.sharing.task import Task
from repshare_lab.methods import averaging, policies
from repshare_lab.methods.averaging import Weights

USUAL_RATE = 0.2
STATISTICS = "statistics "  # begins the names of tensors that are not trained: they are averaged
HIDDEN = ("total ", "all clients")  # begin the names of arrays that clients do not get


@dataclass(frozen=True)
class ScaffoldOptions:
    """Both learning rates."""

    learning_rate: float | None = None
    """η_l: learning rate of its SGD. Default: the policy's if its optimizer is sgd, else 0.2."""
    server_rate: float = 1.0
    """η_g: the part of the way to the clients' mean that the server goes."""

    def __post_init__(self) -> None:
        check_positive(self, "learning_rate", "server_rate")


def name_tensors(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return a model's tensors by name, which share memory with it."""
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {name if name in trained else STATISTICS + name: tensor for name, tensor in model.state_dict().items()}


class PlainSGD(NetworkLearner):
    """A learner that trains by SGD without momentum, which the update rules are written for."""

    def __init__(self, model: nn.Module, samples: Samples, policy: Policy, *, options: Any, **given: Any) -> None:
        usual = policy.learning_rate if policy.optimizer == "sgd" else USUAL_RATE
        rate = usual if options.learning_rate is None else options.learning_rate
        policy = replace(policy, optimizer="sgd", learning_rate=rate)
        super().__init__(model, samples, policy, options=options, **given)

    def absorb(self, body: bytes) -> None:
        """Continue from x, and remember it with c."""
        kept, model = self.remembered, self.network.model
        controls = {f"c {name}": torch.zeros_like(tensor) for name, tensor in model.named_parameters()}
        averaging.copy_into(name_tensors(model) | controls, wire.decode_weights(body)[0])
        kept |= controls | {f"x {name}": tensor.detach().clone() for name, tensor in model.named_parameters()}

    def own_loss(self, batch: Batch) -> Tensor:
        """⟨c − c_i, y⟩, whose gradient is the correction."""
        kept, named = self.remembered, self.network.model.named_parameters()
        return torch.stack([((kept[f"c {name}"] - kept.get(f"own {name}", 0)) * y).sum() for name, y in named]).sum()

    def release(self, round: int) -> bytes:
        """y and the change of c_i, which is made here."""
        kept, shared = self.remembered, name_tensors(self.network.model)
        shared["is new"] = torch.tensor([0.0 if any(name.startswith("own ") for name in kept) else 1.0])
        for name, y in self.network.model.named_parameters():
            descended = (kept[f"x {name}"] - y.detach()) / (max(1, self.steps) * self.policy.learning_rate)
            shared[f"c {name}"] = descended - kept[f"c {name}"]
            kept[f"own {name}"] = kept.get(f"own {name}", 0) + shared[f"c {name}"]
        return wire.encode_weights(averaging.as_arrays(shared), round=round, samples=1)


class ScaffoldServer(averaging.Average):
    """Weights x, the sum of all c_i, and the sum of the newest round, which becomes final when a newer one begins.

    So clients of a round may come in any order and in groups.
    """

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        if start is None:
            raise ConfigError("the server steps from weights that all start with: leave independent_starts out")
        super().__init__(task)
        self.options = options
        self.state: dict[str, Any] = {**averaging.as_arrays(name_tensors(start.model)), "all clients": np.zeros(1)}
        for name, array in [*self.state.items()][:-1]:
            if not name.startswith(STATISTICS):
                self.state |= {f"c {name}": np.zeros_like(array), f"total {name}": np.zeros(array.shape)}

    def accept_sum(self, other: averaging.Sum, client: str = "a group") -> None:
        """Add the sum of several clients. The first of a new round ends the one before."""
        named = _taught(self.state)
        if any(name not in other.like or other.like[name].shape != array.shape for name, array in named.items()):
            raise Refused(f"{client}'s weights are of another architecture: all need the same one")
        state = self._next() if other.round > self._sum.round else self.state
        super().accept_sum(other, client)
        self.state = state

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return x and c after the newest round so far."""
        if self._body is None:
            self._body = wire.encode_weights(_taught(self._next()), round=self._sum.round, samples=self._sum.samples)
        return self._body

    def save(self) -> bytes:
        """Return all that is needed to continue to the same bits."""
        return wire.encode_items({"sum": super().save(), "state": wire.encode_weights(self.state, round=0, samples=0)})

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""
        items = wire.decode_items(saved)
        super().load(items["sum"])
        self.state = dict(wire.decode_weights(items["state"])[0])

    def _next(self) -> dict[str, Any]:
        """Return the state after the newest round, all of whose clients count the same."""
        if not self._sum.like:
            return self.state
        state, means, clients = self.state, self.means(), self._sum.samples
        after: dict[str, Any] = {name: means[name] for name in means if name in state}
        after["all clients"] = state["all clients"] + np.rint(clients * means["is new"].astype(np.float64))
        for total in (name for name in state if name.startswith("total ")):
            name = total.removeprefix("total ")
            x, dtype = state[name].astype(np.float64), state[name].dtype
            after[name] = (x + self.options.server_rate * (means[name] - x)).astype(dtype)
            after[total] = state[total] + clients * means[f"c {name}"].astype(np.float64)
            after[f"c {name}"] = (after[total] / after["all clients"]).astype(dtype)
        return after


def _taught(state: Weights) -> Weights:
    return {name: array for name, array in state.items() if not name.startswith(HIDDEN)}


SCAFFOLD = Method(
    "SCAFFOLD", "FedAvg with control variates (SCAFFOLD)", PlainSGD.open, ScaffoldServer,
    ScaffoldOptions(), adapt=partial(policies.refuse_privacy, "SCAFFOLD"), models="one", shares_weights=True,
    add_up=ScaffoldServer.add_up,
    source="Karimireddy et al., 2020: SCAFFOLD: stochastic controlled averaging for federated learning",
)  # fmt: skip
