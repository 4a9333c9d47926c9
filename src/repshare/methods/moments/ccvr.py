"""CCVR: FedAvg, and in its last round the classifier is trained again on virtual features.

Client k, with the averaged network's features z of its samples:  n_kc, the mean μ_kc and the covariance Σ_kc by class.
Server:  μ_c = Σ_k n_kc μ_kc / N_c,
         Σ_c = Σ_k ((n_kc − 1) Σ_kc + n_kc μ_kc μ_kcᵀ) / (N_c − 1) − N_c / (N_c − 1) μ_c μ_cᵀ;
M features of each class are drawn from N(μ_c, Σ_c), and the averaged network's head is trained on them.

Here clients share n_kc, n_kc μ_kc and Σᵢ z zᵀ, the upper triangle of it: as many numbers, which add up to the same.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from repshare.errors import ConfigError
from repshare.fields import check_whole
from repshare.methods import fedavg, policies
from repshare.methods.method import Method
from repshare.methods.moments.calibration import COUNTS, MOMENTS, SUMS, Calibrated
from repshare.methods.moments.solvers import pack
from repshare.sharing import wire
from repshare.sharing.representations import may_share


@dataclass(frozen=True)
class CalibrationOptions:
    """The length of the run, and of the calibration."""

    rounds: int | None = None
    """Rounds in all. In the last one, clients share moments of features instead of weights."""
    virtual: int = 1000
    """M: features that are drawn for each class. Published: 100 to 2,000."""
    steps: int = 100
    """Iterations of L-BFGS on the head."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "rounds", "virtual", "steps")


def absorb(learner: Any, body: bytes) -> None:
    """Continue from the average, and remember it."""
    fedavg.absorb(learner, body)
    learner.remembered = {"average": torch.frombuffer(bytearray(body), dtype=torch.uint8)}


def share(learner: Any, round: int) -> bytes:
    """Return the weights; in the last round, moments of the averaged network's features."""
    if learner.options.rounds is None:
        raise ConfigError("CCVR must know its last round: give its options rounds")
    if round < learner.options.rounds:
        return fedavg.share(learner, round)
    fedavg.absorb(learner, learner.remembered["average"].numpy().tobytes())
    vectors, labels = learner.represent()
    classes, dimension = learner.network.classes, learner.dimension
    counts, sums = np.zeros(classes), np.zeros((classes, dimension))
    moments = np.zeros((classes, dimension * (dimension + 1) // 2))
    for label in np.unique(labels):
        members = torch.from_numpy(vectors[may_share(labels, learner.policy) & (labels == label)]).double()
        if len(members) >= learner.policy.fewest:
            counts[label], sums[label], moments[label] = len(members), members.sum(dim=0), pack(members.T @ members)
    arrays = {COUNTS: counts, SUMS: sums, MOMENTS: moments}
    return wire.encode_weights({n: a.astype(np.float32) for n, a in arrays.items()}, round=round, samples=1)


CCVR = Method(
    "CCVR", "FedAvg, its classifier calibrated with virtual features (CCVR)", share, Calibrated, absorb,
    options=CalibrationOptions(), adapt=partial(policies.refuse_privacy, "CCVR"), models="one",
    source="Luo et al., 2021: No fear of heterogeneity: classifier calibration for federated learning with non-IID "
    "data",
)  # fmt: skip
