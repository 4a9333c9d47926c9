"""CCVR's server: the average of FedAvg, whose head it trains again on features drawn from a Gaussian of each class."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor

from repshare.board import Wants
from repshare.errors import ConfigError
from repshare.learning.models import Network
from repshare.learning.threads import one_thread
from repshare.methods import averaging
from repshare.methods.moments.solvers import unpack
from repshare.sharing import wire
from repshare.sharing.task import Task
from repshare.spaces import numbers

COUNTS, SUMS, MOMENTS = "class counts", "class sums", "class moments"  # (C,), (C, d'), (C, d' (d' + 1) / 2)


class Calibrated(averaging.Average):
    """The average of weights; once there are moments of its features, with a head that is made of these."""

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        if start is None:
            raise ConfigError("CCVR calibrates a network that all start with: leave independent_starts out")
        super().__init__(task, start)
        self.network, self.options = deepcopy(start), options
        self._average: averaging.Weights | None = None  # the last one, once there are moments

    def accept_sum(self, other: averaging.Sum, client: str = "a group") -> None:
        """Add the sum of several clients' weights, or of their moments, of which the first end averaging."""
        if COUNTS in other.like and self._average is None:
            self._average, self._sum = self.means(), averaging.NOTHING._replace(round=self._sum.round)
        super().accept_sum(other, client)

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return the average so far, calibrated if there are moments."""
        if self._average is None:
            return super().teach(client, wants)
        if self._body is None:
            averaging.copy_into(self.network.model.state_dict(), self._average)
            means, clients = self.means(), self._sum.samples
            counts, sums, moments = (torch.from_numpy(means[n]).double() * clients for n in (COUNTS, SUMS, MOMENTS))
            with one_thread():
                features, labels = draw(counts, sums, moments, self.options.virtual)
                calibrate(self.network, features, labels, self.options.steps)
            weights = averaging.read_weights(self.network.model)
            self._body = wire.encode_weights(weights, round=self._sum.round, samples=int(counts.sum().round()))
        return self._body

    def save(self) -> bytes:
        """Return all that is needed to continue to the same bits."""
        return wire.encode_items(
            {"sum": super().save(), "average": wire.encode_weights(self._average or {}, round=0, samples=0)}
        )

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""
        items = wire.decode_items(saved)
        super().load(items["sum"])
        self._average = wire.decode_weights(items["average"])[0] or None


def draw(counts: Tensor, sums: Tensor, moments: Tensor, virtual: int) -> tuple[Tensor, Tensor]:
    """Return virtual features (C M, d') in fp32 and their labels, of classes of which there are samples."""
    features, labels = [], []
    for label, (count, total) in enumerate(zip(counts.tolist(), sums, strict=True)):
        if round(count):
            mean = total / count
            covariance = (unpack(moments[label].numpy(), len(mean)) - count * torch.outer(mean, mean)) / max(
                count - 1, 1
            )
            values, directions = torch.linalg.eigh(covariance)
            spread = directions * values.clamp_min(0).sqrt()
            normal = torch.from_numpy(numbers.normal((virtual, len(mean)), "virtual features", label)).double()
            features.append(mean + normal @ spread @ directions.T)  # free of the eigenvectors' signs
            labels += [label] * virtual
    return torch.cat(features).float(), torch.tensor(labels)


def calibrate(network: Network, features: Tensor, labels: Tensor, steps: int) -> None:
    """Train the head on these features, by cross-entropy."""
    head = network.head
    optimizer = torch.optim.LBFGS(head.parameters(), max_iter=steps, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(head(features), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(closure)  # type: ignore[no-untyped-call]
