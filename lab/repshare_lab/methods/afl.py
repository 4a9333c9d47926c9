"""AFL: analytic federated learning. Each client solves its own ridge regression; the solutions add up exactly.

Client k:  Ĉ_k = Σᵢ ψᵢ ψᵢᵀ + γ I,  Ŵ_k = Ĉ_k⁻¹ Σᵢ ψᵢ yᵢᵀ;  γ is the regularisation intermediary.
Absolute aggregation law, for two:  Ŵ = 𝒲_u Ŵ_u + 𝒲_v Ŵ_v  with  𝒲_u = I − Ĉ_u⁻¹ Ĉ_v (I − (Ĉ_u + Ĉ_v)⁻¹ Ĉ_v),
which is (Ĉ_u + Ĉ_v)⁻¹ Ĉ_u. So for all K clients, in any order:  Ŵ = Ĉ⁻¹ Σ_k Ĉ_k Ŵ_k,  Ĉ = Σ_k Ĉ_k.
Last, γ is taken out again:  W = (Ĉ − K γ I + λ I)⁻¹ Ĉ Ŵ.

That is the ridge regression of the pooled samples in the common space, whatever γ is. The published λ is 0, which needs
more samples than dimensions. All travels in fp64: products of Ĉ_k and Ŵ_k lose digits.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repshare.board import Wants
from repshare.config import Policy
from repshare.errors import ConfigError, Malformed, Refused
from repshare.fields import check_positive, check_within
from repshare.methods.method import Method
from repshare.network.models import Network
from repshare.sharing import wire
from repshare.sharing.representations import Floats, Integers, Release
from repshare.sharing.task import Task
from repshare.space.learner import SpaceLearner
from repshare.space.model import Hits, Linear
from repshare_lab.methods import averaging, policies
from repshare_lab.threads import one_thread

MOST_DIMENSIONS = 8192  # second moments of more would be over 260 MB a client, and minutes of solving
ONCE = 1  # the round of all that is shared: it counts for good, whenever it comes


@dataclass(frozen=True)
class AnalyticOptions:
    """Its regularisation."""

    ridge: float = 30.0
    """λ, of all clients together. Published: 0."""
    intermediary: float = 1.0
    """γ, of each client; it is taken out in the end."""

    def __post_init__(self) -> None:
        check_within(self, 0, 1e9, "ridge")
        check_positive(self, "intermediary")


class Solved(NamedTuple):
    """A classifier that the server has made, and the samples behind it."""

    linear: Linear
    samples: int


class ServedModel:
    """One client's samples in the space, and the classifier that the server has made for all clients."""

    enough = 2  # share, and collect what the server has made

    def __init__(self, vectors: Floats, labels: Integers, classes: int) -> None:
        self.vectors, self.labels = vectors, labels
        self.targets = np.eye(classes)[labels]  # (n, C)
        self.total: Solved | None = None
        zeros = np.zeros((classes, vectors.shape[1]), np.float32)
        self._nothing = Linear(zeros, zeros[0], self.targets.mean(axis=0).astype(np.float32))

    def absorb(self, total: Solved | None) -> None:
        """Use this classifier from now on."""
        self.total = total

    def improve(self) -> None:
        """Do nothing: what a client shares does not depend on others."""

    def release(self, round: int, space: str) -> Release:
        """Raise ConfigError: a solution is no release of rows."""
        raise ConfigError("solutions are shared by the method's own learner")

    def acknowledge(self) -> None:
        """Do nothing: no classifier depends on what this client has shared before."""

    def start_over(self) -> None:
        """Nothing begins anew: moments are shared once, and nobody votes on them."""

    def linear(self) -> Linear:
        """Everybody's classifier; before there is one, the client's shares of the classes."""
        return self._nothing if self.total is None else self.total.linear

    def alone(self) -> Linear:
        """The client's shares of the classes."""
        return self._nothing

    def leave_one_out(self) -> tuple[Hits, Hits]:
        """Raise ConfigError: what the server has made cannot be undone for a sample."""
        raise ConfigError("this method needs held-out samples for prefer_own: raise held_out")

    def own_scores(self, linear: Linear) -> Floats:
        """A classifier's scores of this client's samples (n, C)."""
        return linear(self.vectors)

    def state(self) -> dict[str, Any]:
        """All that a model of the same samples needs to continue to the same bits."""
        return {"total": None if self.total is None else [*self.total.linear, self.total.samples]}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        kept = state["total"]
        self.total = None if kept is None else Solved(Linear(*map(np.asarray, kept[:3])), kept[3])


class AnalyticLearner(SpaceLearner):
    """A client that solves its own ridge regression, once, and uses the server's classifier."""

    model: ServedModel

    def make_model(self, vectors: Floats, labels: Integers, *, alone: bool) -> ServedModel:
        """Keep the samples to solve for."""
        return ServedModel(vectors, labels, self.classes)

    def release(self, round: int) -> bytes:
        """Ŵ_k and Ĉ_k as bytes; nothing where there are fewer samples than the policy asks for."""
        if self.dimension > MOST_DIMENSIONS:
            raise ConfigError(
                f"second moments of {self.dimension:,} features are "
                f"{4 * self.dimension * (self.dimension + 1) / 1e6:,.0f} MB a client: "
                f"choose a --space of at most {MOST_DIMENSIONS:,}"
            )
        if len(self.model.labels) < self.policy.fewest:
            return wire.encode_weights({}, round=ONCE, samples=0)
        vectors = torch.from_numpy(self.model.vectors).double()
        moments = vectors.T @ vectors  # (d, d)
        sums = vectors.T @ torch.from_numpy(self.model.targets)
        weights = solve_ridge(moments, sums, self.options.intermediary)  # makes Ĉ_k of the moments
        arrays = {"moments": pack(moments), "weights": weights.cpu().numpy()}
        return wire.encode_weights(arrays, round=ONCE, samples=1)

    def absorb(self, body: bytes) -> None:
        """Use the server's classifier from now on, if there is any."""
        arrays, _, samples = wire.decode_weights(body)
        if arrays:
            weights = torch.zeros(self.classes, self.dimension)
            averaging.copy_into({"weights": weights}, arrays)
            centre, offset = np.zeros(self.dimension, np.float32), np.zeros(self.classes, np.float32)
            self.model.absorb(Solved(Linear(weights.numpy(), centre, offset), samples))


class AnalyticServer(averaging.Average):
    """Sums of Ĉ_k and Ĉ_k Ŵ_k, the number of clients, each of which counts once, and their classifier."""

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        super().__init__(task)
        self.classes, self.dimension, self.options = task.classes, task.dimension, options

    @staticmethod
    def add_up(bodies: Mapping[str, bytes]) -> averaging.Sum:
        """Add up what these clients share; some may share nothing."""
        summands = {}
        for client, body in bodies.items():
            if arrays := wire.decode_weights(body)[0]:
                weights = torch.from_numpy(arrays["weights"])  # (C, d)
                if weights.ndim != 2:
                    raise Refused(f"{client} shared weights of shape {tuple(weights.shape)}")
                with one_thread():
                    arrays["weights"] = (weights @ unpack(arrays["moments"], weights.shape[1])).numpy()
                summands[client] = wire.encode_weights(arrays, round=ONCE, samples=1)
        return averaging.add_up(summands)

    def accept_sum(self, other: averaging.Sum, client: str = "a group") -> None:
        """Add what several clients share, if it is anything."""
        if other.like:
            super().accept_sum(other, client)

    def teach(self, client: str, wants: Wants) -> bytes:
        """Encode the classifier so far (C, d); no tensors before anyone has shared anything."""
        if self._body is None:
            made = {}
            if self._sum.like:
                with one_thread():
                    made = {"weights": self._solve().float().contiguous().numpy()}
            self._body = wire.encode_weights(made, round=ONCE, samples=self._sum.samples)
        return self._body

    def _solve(self) -> Tensor:
        means, clients = self.means(), self._sum.samples
        moments, sums = unpack(means["moments"], self.dimension) * clients, torch.from_numpy(means["weights"]) * clients
        return solve_ridge(moments, sums.T, self.options.ridge - clients * self.options.intermediary)


def pack(matrix: Tensor) -> NDArray[Any]:
    """Take the upper triangle of a symmetric matrix (d, d), row by row."""
    rows, columns = torch.triu_indices(*matrix.shape)
    return matrix[rows, columns].cpu().numpy()


def unpack(packed: NDArray[Any], dimension: int) -> Tensor:
    """Restore the symmetric matrix (d, d) in fp64."""
    if packed.size != dimension * (dimension + 1) // 2:
        raise Malformed(f"{packed.size} numbers are no second moments of {dimension} features")
    rows, columns = torch.triu_indices(dimension, dimension)
    matrix = torch.zeros(dimension, dimension, dtype=torch.float64)
    matrix[rows, columns] = matrix[columns, rows] = torch.from_numpy(packed).double()
    return matrix


def solve_ridge(moments: Tensor, sums: Tensor, ridge: float) -> Tensor:
    """Solve for Bᵀ (A + λI)⁻¹ (C, d), given A (d, d), which is overwritten, and B (d, C)."""
    moments.diagonal().add_(ridge)
    try:
        return torch.cholesky_solve(sums, torch.linalg.cholesky(moments)).T
    except torch.linalg.LinAlgError as error:  # type: ignore[attr-defined]
        raise ConfigError(
            f"the samples do not fill the {len(moments):,} dimensions of the space: give a larger ridge"
        ) from error


def adapt(policy: Policy) -> Policy:
    """Share once, all samples; no network, no distillation, and no privacy budget: no noise is made for moments."""
    policy = policies.own_terms("AFL", policy)
    if policy.peers is not None:
        raise ConfigError("a classifier in closed form is made by all clients: leave peers out")
    return replace(policy, lambda_length=0.0, held_out=0.0, releases=1)


AFL = Method(
    "AFL", "ridge regressions that add up (analytic federated learning)", AnalyticLearner.open, AnalyticServer,
    AnalyticOptions(), adapt, models="part", in_space=True, add_up=AnalyticServer.add_up,
    source="He et al., 2025: AFL: a single-round analytic approach for federated learning with pre-trained models",
)  # fmt: skip
