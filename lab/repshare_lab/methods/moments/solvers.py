"""Classifiers in closed form in a common space: the servers. They compute with one thread, in fp64."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from repshare.board import Server, Wants
from repshare.errors import ConfigError, Malformed
from repshare.network.models import Network
from repshare.network.threads import one_thread
from repshare.sharing import wire
from repshare.sharing.task import Task
from repshare_lab.methods import averaging
from repshare_lab.methods.moments.closed_form import ONCE


class Solver(averaging.ArrayAverage):
    """Everybody's moments, and the classifier that `solve` makes of them. A client counts once."""

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        super().__init__(task)
        self.classes, self.dimension, self.options = task.classes, task.dimension, options

    @staticmethod
    def add_up(bodies: Mapping[str, bytes]) -> averaging.Sum:
        """Return the sum of what these clients share."""
        return averaging.add_up({name: body for name, body in bodies.items() if wire.decode_weights(body)[0]})

    def solve(self) -> Tensor:
        """Return the classifier's weights (C, d)."""
        raise NotImplementedError

    def accept_sum(self, other: averaging.Sum, client: str = "a group") -> None:
        """Add what several clients share, if it is anything."""
        if other.like:
            super().accept_sum(other, client)

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return the classifier so far; no tensors before anyone has shared anything."""
        if self._body is None:
            self._body = _encode(self.solve if self._sum.like else None, self._sum.samples)
        return self._body


class Collector(Server):
    """All that clients have shared, one after the other by name, and the classifier that `solve` makes of it."""

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        self.classes, self.options = task.classes, options
        self._shared: dict[str, bytes] = {}
        self._body: bytes | None = None

    def solve(self, **shared: Tensor) -> Tensor:
        """Return the classifier's weights (C, d), given everybody's arrays, joined."""
        raise NotImplementedError

    def accept(self, client: str, body: bytes) -> None:
        """Take what a client shares, if it is anything."""
        if wire.decode_weights(body)[0]:
            self._shared[client], self._body = body, None

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return the classifier so far; no tensors before anyone has shared anything."""
        if self._body is None:
            parts = [wire.decode_weights(body) for _, body in sorted(self._shared.items())]
            names = parts[0][0] if parts else ()
            joined = {name: torch.from_numpy(np.concatenate([part[0][name] for part in parts])) for name in names}
            self._body = _encode(partial(self.solve, **joined) if parts else None, sum(part[2] for part in parts))
        return self._body

    def save(self) -> bytes:
        """Return all that is needed to continue to the same bits."""
        return wire.encode_items(self._shared)

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""
        self._shared, self._body = wire.decode_items(saved), None


def _encode(solve: Callable[[], Tensor] | None, samples: int) -> bytes:
    made = {}
    if solve is not None:
        with one_thread():
            made = {"weights": solve().float().contiguous().numpy()}
    return wire.encode_weights(made, round=ONCE, samples=samples)


def pack(matrix: Tensor) -> "np.ndarray[Any, Any]":
    """Return the upper triangle of a symmetric matrix (d, d), row by row."""
    rows, columns = torch.triu_indices(*matrix.shape)
    return matrix[rows, columns].cpu().numpy()


def unpack(packed: "np.ndarray[Any, Any]", dimension: int) -> Tensor:
    """Return the symmetric matrix (d, d) in fp64."""
    if packed.size != dimension * (dimension + 1) // 2:
        raise Malformed(f"{packed.size} numbers are no second moments of {dimension} features")
    rows, columns = torch.triu_indices(dimension, dimension)
    matrix = torch.zeros(dimension, dimension, dtype=torch.float64)
    matrix[rows, columns] = matrix[columns, rows] = torch.from_numpy(packed).double()
    return matrix


def solve_ridge(moments: Tensor, sums: Tensor, ridge: float) -> Tensor:
    """Return Bᵀ (A + λI)⁻¹ (C, d), given A (d, d), which is overwritten, and B (d, C)."""
    moments.diagonal().add_(ridge)
    try:
        return torch.cholesky_solve(sums, torch.linalg.cholesky(moments)).T
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise ConfigError(
            f"the samples do not fill the {len(moments):,} dimensions of the space: give a larger ridge"
        ) from error
