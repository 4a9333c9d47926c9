"""A server that keeps weights, and steps from them by what clients share in a round."""

from typing import Any, ClassVar

import torch
from torch import Tensor

from repshare.board import Wants
from repshare.errors import ConfigError, Refused
from repshare.learning.models import Network
from repshare.learning.training import Learner
from repshare.methods.averaging import Average, Sum, Weights, as_arrays, copy_into
from repshare.sharing import wire
from repshare.sharing.task import Task

STATISTICS = "statistics "  # begins the names of tensors that are not trained: they are averaged


def name_tensors(model: torch.nn.Module) -> dict[str, Tensor]:
    """Return a model's tensors by name, which share memory with it."""
    trained = {name for name, _ in model.named_parameters(remove_duplicate=False)}
    return {name if name in trained else STATISTICS + name: tensor for name, tensor in model.state_dict().items()}


def without_statistics(weights: Weights) -> Weights:
    """Return those that are trained."""
    return {name: array for name, array in weights.items() if not name.startswith(STATISTICS)}


def share(learner: Learner, round: int) -> bytes:
    """Return the model."""
    weights = as_arrays(name_tensors(learner.network.model))
    return wire.encode_weights(weights, round=round, samples=len(learner.samples))


def absorb(learner: Learner, body: bytes) -> None:
    """Continue from the server's weights."""
    weights, _, _ = wire.decode_weights(body)
    copy_into(name_tensors(learner.network.model), weights)


class Stepping(Average):
    """Weights x, and the sum of the newest round. `step` makes the next x of both, and of nothing else.

    It becomes final when a newer round begins. So clients of a round may come in any order and in groups.
    """

    hidden: ClassVar[tuple[str, ...]] = ()  # begin the names of arrays that clients do not get

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        if start is None:
            raise ConfigError("the server steps from weights that all start with: leave independent_starts out")
        super().__init__(task)
        self.options = options
        self.state = self.begin(as_arrays(name_tensors(start.model)))

    def begin(self, start: Weights) -> Weights:
        """Return the first state."""
        return start

    def step(self, state: Weights, means: Weights, clients: int) -> Weights:
        """Return the state after a round, given the average of what was shared. `clients`: sum of its weights."""
        raise NotImplementedError

    def accept_sum(self, other: Sum, client: str = "a group") -> None:
        """Add the sum of several clients. The first of a new round ends the one before."""
        named = self._taught(self.state)
        if any(name not in other.like or other.like[name].shape != array.shape for name, array in named.items()):
            raise Refused(f"{client}'s weights are of another architecture: all need the same one")
        state = self._next() if other.round > self._sum.round else self.state
        super().accept_sum(other, client)
        self.state = state

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return the weights after the newest round so far."""
        if self._body is None:
            self._body = wire.encode_weights(
                self._taught(self._next()), round=self._sum.round, samples=self._sum.samples
            )
        return self._body

    def save(self) -> bytes:
        """Return all that is needed to continue to the same bits."""
        return wire.encode_items({"sum": super().save(), "state": wire.encode_weights(self.state, round=0, samples=0)})

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""
        items = wire.decode_items(saved)
        super().load(items["sum"])
        self.state = wire.decode_weights(items["state"])[0]

    def _next(self) -> Weights:
        return self.step(self.state, self.means(), self._sum.samples) if self._sum.like else self.state

    def _taught(self, state: Weights) -> Weights:
        return {name: array for name, array in state.items() if not name.startswith(self.hidden)}
