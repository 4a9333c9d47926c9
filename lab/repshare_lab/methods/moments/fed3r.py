"""FED3R: ridge regression in the common space from summed second moments.

Client k:  A_k = Σᵢ ψᵢ ψᵢᵀ  (d × d),  B_k = Σᵢ ψᵢ yᵢᵀ  (d × C),  yᵢ one-hot.
Server:    W = (Σ_k A_k + λ I)⁻¹ Σ_k B_k,  each column then brought to length 1 (rare classes have short ones).

The sums are those of the pooled samples, so that the split does not matter. Here they travel as means over a client's
samples, A_k as its upper triangle, in fp32.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from repshare.fields import check_positive
from repshare.methods.method import Method
from repshare_lab.methods.averaging import Weights
from repshare_lab.methods.moments.closed_form import MomentLearner, adapt, check_dimension
from repshare_lab.methods.moments.solvers import Solver, pack, solve_ridge, unpack


@dataclass(frozen=True)
class RidgeOptions:
    """Its regularisation."""

    ridge: float = 30.0
    """λ, added to the diagonal of second moments, which is about the number of samples. Published: 0.01."""
    normalise: bool = True
    """Bring the weights of each class to length 1, as published."""

    def __post_init__(self) -> None:
        check_positive(self, "ridge")


class RidgeLearner(MomentLearner):
    """A client that shares its second moments."""

    def moments(self) -> tuple[Weights, int]:
        """The means of ψψᵀ and ψyᵀ over this client's samples."""
        check_dimension(self.dimension)
        vectors, count = torch.from_numpy(self.model.vectors).double(), len(self.model.labels)
        moments, sums = vectors.T @ vectors / count, vectors.T @ torch.from_numpy(self.model.targets) / count
        return {"moments": pack(moments.float()), "sums": sums.float().cpu().numpy()}, count


class RidgeSolver(Solver):
    """Everybody's second moments."""

    def solve(self) -> Tensor:
        """Return the weights (C, d)."""
        means, samples = self.means(), self._sum.samples
        moments = unpack(means["moments"], self.dimension).mul_(samples)
        weights = solve_ridge(moments, torch.from_numpy(means["sums"]).double() * samples, self.options.ridge)
        return torch.nn.functional.normalize(weights) if self.options.normalise else weights


FED3R = Method(
    "FED3R", "ridge regression from summed second moments (Fed3R)", RidgeLearner.open, RidgeSolver,
    RidgeOptions(), adapt, models="part", in_space=True, add_up=RidgeSolver.add_up,
    source="Fanì et al., 2024: Accelerating heterogeneous federated learning with closed-form classifiers",
)  # fmt: skip
