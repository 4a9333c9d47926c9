"""FL: FedAvg (McMahan et al., 2016): all weights go out, their average by number of samples comes back."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from repshare import sums, wire
from repshare.board import Task, Wants
from repshare.errors import Refused
from repshare.methods.method import Method, Weights
from repshare.training import Learner


def share(learner: Learner, round: int) -> bytes:
    """The model itself, batch statistics included."""
    return wire.encode_weights(read_weights(learner.network.model), round=round, samples=len(learner.samples))


def absorb(learner: Learner, body: bytes) -> None:
    """Go on from the average."""
    weights, _, _ = wire.decode_weights(body)
    if weights:
        learner.network.model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()})


def read_weights(model: torch.nn.Module) -> Weights:
    """A model's tensors by name."""
    return {name: tensor.detach().cpu().contiguous().numpy() for name, tensor in model.state_dict().items()}


class Average:
    """The average of the newest round's weights; it grows with the clients that have sent theirs."""

    def __init__(self, initial: Weights | None) -> None:
        self._like: Weights = initial or {}
        self._totals = {name: sums.weigh(array, 1) for name, array in self._like.items()}
        self._round, self._samples = 0, 1
        self._body: bytes | None = None

    def accept(self, client: str, body: bytes) -> None:
        """Add one client's weights. The first of a new round starts the sum anew."""
        weights, round, samples = wire.decode_weights(body)
        shapes = {name: array.shape for name, array in weights.items()}
        if self._like and shapes != {name: array.shape for name, array in self._like.items()}:
            raise Refused(f"{client}'s weights are of another architecture: FedAvg needs the same one everywhere")
        for name, array in weights.items():
            if not sums.fits(float(np.abs(array).max(initial=0)), samples):
                raise Refused(f"{client}'s weights {name} are not finite, or too large to average")
        if round > self._round:
            self._like, self._round, self._samples, self._totals = weights, round, 0, {}
        self._samples += samples
        for name, array in weights.items():
            self._totals[name] = self._totals.get(name, 0) + sums.weigh(array, samples)
        self._body = None

    def teach(self, client: str, wants: Wants) -> bytes:
        """The average so far; no tensors before anyone has sent any."""
        if self._body is None:
            self._body = wire.encode_weights(self._average(), round=self._round, samples=self._samples)
        return self._body

    def _average(self) -> dict[str, NDArray[Any]]:
        return {
            name: sums.mean(total, self._samples).astype(self._like[name].dtype) for name, total in self._totals.items()
        }


def serve(_: Task, initial: Weights | None) -> Average:
    """An average that starts from these weights, if any."""
    return Average(initial)


FL = Method("FL", "federated averaging", share, serve, absorb, one_model=True)
