"""Averages of weights: models as arrays, their sums in whole numbers, and a server that keeps the newest round's."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repshare.board import Server, Wants
from repshare.errors import Malformed, Refused
from repshare.network.models import Network
from repshare.sharing import fixed_point, wire
from repshare.sharing.task import Task

Weights = Mapping[str, NDArray[Any]]


def copy_into(own: Mapping[str, Tensor], weights: Weights) -> None:
    """Copy an average into tensors of the same names and shapes."""
    if {name: array.shape for name, array in weights.items()} != {name: tensor.shape for name, tensor in own.items()}:
        raise Malformed("the average is of another architecture than this client's model")
    if not all(np.isfinite(array).all() for array in weights.values()):
        raise Malformed("a number of the average is not finite")
    for name, tensor in own.items():
        tensor.copy_(torch.from_numpy(weights[name]))


def read_weights(model: nn.Module) -> Weights:
    """Return a model's tensors by name."""
    weights = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
    half = (torch.bfloat16, torch.float16)  # NumPy has no bfloat16
    return {name: (tensor.float() if tensor.dtype in half else tensor).numpy() for name, tensor in weights.items()}


class Sum(NamedTuple):
    """Weights times samples, added up in whole numbers: the same bits in whatever order and groups."""

    round: int
    samples: int
    totals: dict[str, NDArray[np.int64]]
    like: Weights  # any of the models, for shapes and types


NOTHING = Sum(0, 0, {}, {})


def add_up(bodies: Mapping[str, bytes]) -> Sum:
    """Return the sum of what these clients share in a round."""
    total = NOTHING
    for client, body in bodies.items():
        weights, round, samples = wire.decode_weights(body)
        if samples < 1:
            raise Refused(f"{client}'s weights were trained on no sample")
        for name, array in weights.items():
            if not fixed_point.fits(float(np.abs(array).max(initial=0)), samples):
                raise Refused(f"{client}'s weights {name} are not finite, or too large to average")
        one = Sum(round, samples, {name: fixed_point.weigh(array, samples) for name, array in weights.items()}, weights)
        total = _together(total, one, client)
    return total


def _together(a: Sum, b: Sum, client: str) -> Sum:
    if not a.like:
        return b
    if {name: array.shape for name, array in a.like.items()} != {name: array.shape for name, array in b.like.items()}:
        raise Refused(f"{client}'s weights are of another architecture: FedAvg needs the same one everywhere")
    totals = {name: total + b.totals[name] for name, total in a.totals.items()}
    if any(fixed_point.overflows(total) for total in totals.values()):
        raise Refused(f"{a.samples + b.samples} samples' weights are too large to average")
    return Sum(a.round, a.samples + b.samples, totals, a.like)


class Average(Server):
    """The average of the newest round's weights; it grows with the clients that have sent theirs."""

    add_up = staticmethod(add_up)

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        """Begin with the weights of this network, if any."""
        self._sum = NOTHING
        if start is not None:
            initial = read_weights(start.model)
            self._sum = Sum(0, 1, {name: fixed_point.weigh(array, 1) for name, array in initial.items()}, initial)
        self._body: bytes | None = None
        self._counted: set[tuple[str, int]] = set()  # client and round of each release: repeating one changes nothing

    def accept(self, client: str, body: bytes) -> None:
        """Add one client's weights. The first of a new round starts a new sum; an older round is refused."""
        one = self.add_up({client: body})
        if (client, one.round) not in self._counted:
            self.accept_sum(one, client)
            self._counted = {(name, round) for name, round in self._counted if round == one.round}
            self._counted.add((client, one.round))

    def accept_sum(self, other: Sum, client: str = "a group") -> None:
        """Add the sum of several clients' weights."""
        before, self._body = self._sum, None
        if before.round > other.round:
            raise Refused(f"{client} sent round {other.round}, but round {before.round} has begun")
        together = _together(before, other, client)
        self._sum = together if before.round == other.round else other

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return the average so far; no tensors before anyone has sent any."""
        if self._body is None:
            self._body = wire.encode_weights(self.means(), round=self._sum.round, samples=self._sum.samples)
        return self._body

    def means(self) -> Weights:
        """Return the average of the newest round so far."""
        kept = self._sum
        return {n: fixed_point.mean(t, kept.samples).astype(kept.like[n].dtype) for n, t in kept.totals.items()}

    def save(self) -> bytes:
        """Return all that is needed to continue to the same bits."""
        kept = self._sum
        arrays = {f"total {n}": t for n, t in kept.totals.items()} | {f"like {n}": a for n, a in kept.like.items()}
        return wire.encode_weights(arrays, round=kept.round, samples=kept.samples)

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""
        arrays, round, samples = wire.decode_weights(saved)
        totals, like = (
            {name.removeprefix(kind): array for name, array in arrays.items() if name.startswith(kind)}
            for kind in ("total ", "like ")
        )
        self._sum, self._body = Sum(round, samples, totals, like), None


class ArrayAverage(Average):
    """The same of arrays that are not a network's: it begins with nothing."""

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        super().__init__(task)
