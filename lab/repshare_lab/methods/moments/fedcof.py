"""FEDCOF: covariances for free. Clients share class means; how these spread tells the covariance of a class.

The mean μ_kc of n_kc samples has the covariance Σ_c / n_kc. So with K_c means of class c around their mean μ_c:

Σ̂_c = Σ_k n_kc (μ_kc − μ_c)(μ_kc − μ_c)ᵀ / (K_c − 1) + γ I,    G = Σ_c (N_c − 1) Σ̂_c + N μ μᵀ,
W = G⁻¹ B  with  B_c = N_c μ_c,  each column then brought to length 1.

G is the second moments without the scatter between classes. It is γ I and few means, so that it is never made: the
solution is by Woodbury's identity. A class of which there is one mean has γ I for its covariance.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from repshare.fields import check_positive, check_whole
from repshare.methods.method import Method
from repshare_lab.methods.averaging import Weights
from repshare_lab.methods.moments.closed_form import MomentLearner, adapt
from repshare_lab.methods.moments.solvers import Collector


@dataclass(frozen=True)
class CovarianceOptions:
    """Its regularisation, and the number of means."""

    ridge: float = 0.1
    """γ, added to the diagonal of each class's covariance. Published: 1, or 0.1 for a ViT."""
    means: int = 1
    """Means of a class that a client shares, each of other samples. More tell more about the covariance."""

    def __post_init__(self) -> None:
        check_positive(self, "ridge")
        check_whole(self, 1, "means")


class MeansLearner(MomentLearner):
    """A client that shares means of its classes."""

    def moments(self) -> tuple[Weights, int]:
        """Means of this client's classes, and of how many samples each is."""
        own, many, kept = self.model, self.options.means, list[tuple[Any, int, int]]()
        for label in np.unique(own.labels).tolist():
            members = own.vectors[own.labels == label].astype(np.float64)
            parts = (members[start::many] for start in range(many))
            kept += [(part.mean(axis=0), label, len(part)) for part in parts if len(part) >= max(self.policy.fewest, 1)]
        if not kept:
            return {}, 0
        means, labels, counts = (np.array(each) for each in zip(*kept, strict=True))
        return {"means": means.astype(np.float32), "labels": labels, "counts": counts}, int(counts.sum())


class CovarianceSolver(Collector):
    """Everybody's class means."""

    def solve(self, *, means: Tensor, labels: Tensor, counts: Tensor) -> Tensor:  # type: ignore[override]
        """Return W (C, d) of means (m, d) of these classes (m,), each of so many samples (m,)."""
        means, counts = means.double(), counts.double()
        belongs = torch.nn.functional.one_hot(labels, self.classes).double()  # (m, C)
        sums, sizes, many = (belongs.T * counts) @ means, belongs.T @ counts, belongs.sum(dim=0)  # B, N_c and K_c
        spread = ((sizes - 1) / (many - 1).clamp_min(1)).clamp_min(0)  # (C,)
        around = means - (sums / sizes.clamp_min(1)[:, None])[labels]
        common = sums.sum(dim=0) / math.sqrt(float(counts.sum()))  # √N μ
        factor = torch.cat([around * (counts * spread[labels]).sqrt()[:, None], common[None]])  # F: G = s I + Fᵀ F
        scale = self.options.ridge * max(float((sizes - 1).clamp_min(0).sum()), 1.0)  # s
        inner = factor @ factor.T
        inner.diagonal().add_(scale)
        weights = (sums - torch.cholesky_solve(factor @ sums.T, torch.linalg.cholesky(inner)).T @ factor) / scale
        return torch.nn.functional.normalize(weights)


FEDCOF = Method(
    "FEDCOF", "covariances from the spread of class means (FedCOF)", MeansLearner.open, CovarianceSolver,
    CovarianceOptions(), adapt, models="part", in_space=True,
    source="Goswami et al., 2025: Covariances for free: exploiting mean distributions for training-free federated "
    "learning",
)  # fmt: skip
