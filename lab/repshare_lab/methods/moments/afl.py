"""AFL: analytic federated learning. Each client solves its own ridge regression; the solutions add up exactly.

Client k:  Ĉ_k = Σᵢ ψᵢ ψᵢᵀ + γ I,  Ŵ_k = Ĉ_k⁻¹ Σᵢ ψᵢ yᵢᵀ;  γ is the regularisation intermediary.
Absolute aggregation law, for two:  Ŵ = 𝒲_u Ŵ_u + 𝒲_v Ŵ_v  with  𝒲_u = I − Ĉ_u⁻¹ Ĉ_v (I − (Ĉ_u + Ĉ_v)⁻¹ Ĉ_v),
which is (Ĉ_u + Ĉ_v)⁻¹ Ĉ_u. So for all K clients, in any order:  Ŵ = Ĉ⁻¹ Σ_k Ĉ_k Ŵ_k,  Ĉ = Σ_k Ĉ_k.
Last, γ is taken out again:  W = (Ĉ − K γ I + λ I)⁻¹ Ĉ Ŵ.

That is the ridge regression of the pooled samples, whatever γ is. The published λ is 0, which needs more samples than
dimensions. All travels in fp64: products of Ĉ_k and Ŵ_k lose digits.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from repshare.errors import Refused
from repshare.fields import check_positive, check_within
from repshare.methods.method import Method
from repshare.network.threads import one_thread
from repshare.sharing import wire
from repshare_lab.methods import averaging
from repshare_lab.methods.moments.closed_form import ONCE, MomentLearner, adapt, check_dimension
from repshare_lab.methods.moments.solvers import Solver, pack, solve_ridge, unpack


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


class AnalyticLearner(MomentLearner):
    """A client that solves its own ridge regression."""

    def moments(self) -> tuple[averaging.Weights, int]:
        """Ŵ_k and Ĉ_k."""
        check_dimension(self.dimension)
        vectors, gamma = torch.from_numpy(self.model.vectors).double(), self.options.intermediary
        moments = vectors.T @ vectors  # (d, d)
        weights = solve_ridge(moments, vectors.T @ torch.from_numpy(self.model.targets), gamma)  # makes Ĉ_k of them
        return {"moments": pack(moments), "weights": weights.cpu().numpy()}, 1


class AnalyticSolver(Solver):
    """Sums of Ĉ_k and Ĉ_k Ŵ_k, and the number of clients."""

    @staticmethod
    def add_up(bodies: Mapping[str, bytes]) -> averaging.Sum:
        """Return the sum of what these clients share."""
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

    def solve(self) -> Tensor:
        """Return the weights (C, d)."""
        means, clients = self.means(), self._sum.samples
        moments, sums = unpack(means["moments"], self.dimension) * clients, torch.from_numpy(means["weights"]) * clients
        return solve_ridge(moments, sums.T, self.options.ridge - clients * self.options.intermediary)


AFL = Method(
    "AFL", "ridge regressions that add up (analytic federated learning)", AnalyticLearner.open, AnalyticSolver,
    AnalyticOptions(), adapt, models="part", in_space=True, add_up=AnalyticSolver.add_up,
    source="He et al., 2025: AFL: a single-round analytic approach for federated learning with pre-trained models",
)  # fmt: skip
