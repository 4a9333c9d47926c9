"""GOSSIP: no server; after each round of local training, clients mix their weights with their neighbours'.

x_i ← Σ_j W_ij x_j with W_ij = 1 / (1 + max(d_i, d_j)) for neighbours of degrees d, and W_ii the rest (Metropolis), so
that rows and columns of W add up to one. It is not exactly D-PSGD: that mixes at every step, whose gradient is of the
weights before mixing; here clients mix once a round, and then train.

--topology says who is whose neighbour (default: a ring). Of each neighbour, the newest weights count; of one that has
sent none, nothing does. All start from the same weights.
"""

from functools import partial
from typing import Any

import numpy as np

from repshare.board import Wants
from repshare.errors import ConfigError, Malformed
from repshare.learning.models import Network
from repshare.learning.training import Learner
from repshare.methods import averaging, fedavg, policies
from repshare.methods.method import Method
from repshare.methods.neighbours import Neighbours
from repshare.sharing import wire
from repshare.sharing.task import Task


def share(learner: Learner, round: int) -> bytes:
    """Return the model, and remember it: the next weights are a mixture of it."""
    learner.remembered = {n: tensor.detach().clone() for n, tensor in learner.network.model.state_dict().items()}
    return fedavg.share(learner, round)


def absorb(learner: Learner, body: bytes) -> None:
    """Mix what was sent last with what neighbours sent. To absorb the same again changes nothing."""
    received = {key: wire.decode_weights(each)[0] for key, each in sorted(wire.decode_items(body).items())}
    own = averaging.as_arrays(learner.remembered)
    shapes = {name: tensor.shape for name, tensor in learner.network.model.state_dict().items()}
    if any({name: array.shape for name, array in each.items()} != shapes for each in received.values()):
        raise Malformed("a neighbour's weights are of another architecture than this client's model")
    shares = {key: float(key.partition(" ")[0]) for key in received}
    mixed = {
        name: (1 - sum(shares.values())) * own.get(name, 0) + sum(shares[key] * received[key][name] for key in received)
        for name in shapes
    }
    averaging.copy_into(learner.network.model.state_dict(), {name: np.asarray(array) for name, array in mixed.items()})


class Neighbourhood(Neighbours):
    """The newest weights of each client."""

    one_architecture = True

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        if start is None:
            raise ConfigError("clients that mix their weights must start from the same: give the network")
        self.start = wire.encode_weights(averaging.read_weights(start.model), round=0, samples=1)
        self.sent, self.graph = {}, {}

    def accept(self, client: str, body: bytes) -> None:
        """Keep a client's weights, unless newer ones are there."""
        sum_of_one = averaging.add_up({client: body})
        if sum_of_one.round >= wire.decode_weights(self.sent.get(client, self.start))[1]:
            self.sent[client] = body

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return the neighbours' weights, each with its share of the mixture; before the first round, the start's."""
        if client not in self.sent:
            return wire.encode_items({"1 start": self.start})
        graph, near = self.graph or {}, self.near(client)
        shares = {other: 1 / (1 + max(len(graph[client]), len(graph[other]))) for other in near}
        return wire.encode_items({f"{shares[other]} {other}": body for other, body in near.items()})


GOSSIP = Method(
    "GOSSIP", "weights averaged among neighbours (D-PSGD, once a round)", share, Neighbourhood, absorb,
    adapt=partial(policies.refuse_privacy, "GOSSIP"), models="part",
    source="Lian et al., 2017: Can decentralized algorithms outperform centralized algorithms?",
)  # fmt: skip
