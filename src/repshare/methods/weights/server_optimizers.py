"""FEDADAGRAD, FEDADAM, FEDYOGI: FedAvg, whose server takes the clients' mean change Δ for a negative gradient.

m ← β₁ m + (1 − β₁) Δ;  x ← x + η · m / (√v + τ);  v begins with τ², and
    FedAdagrad: v ← v + Δ²    FedAdam: v ← β₂ v + (1 − β₂) Δ²    FedYogi: v ← v − (1 − β₂) Δ² sign(v − Δ²)

Clients count by their samples in Δ, as in FedAvg, and train with the setting's optimizer; the paper's use SGD.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from repshare.fields import check_fits, check_positive
from repshare.methods import averaging, policies
from repshare.methods.method import Method
from repshare.methods.weights.stepping import Stepping, absorb, share, without_statistics

Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class AdaptiveOptions:
    """The server's optimizer."""

    server_rate: float = 0.01
    """η: learning rate of the server."""
    beta1: float = 0.9
    """β₁: how long changes are remembered."""
    beta2: float = 0.99
    """β₂: how long their squares are remembered. FedAdagrad forgets none."""
    tau: float = 1e-3
    """τ: the smallest size by which a change is divided."""

    def __post_init__(self) -> None:
        check_positive(self, "server_rate", "tau")
        check_fits(self, ["beta1", "beta2"], "at least 0 and below 1", lambda value: 0 <= value < 1)


class AdaptiveServer(Stepping):
    """A server with the moments m and v of the changes."""

    hidden = ("m ", "v ")

    def begin(self, start: averaging.Weights) -> averaging.Weights:
        """Return the weights, m = 0 and v = τ²."""
        trained = without_statistics(start)
        zeros = {f"m {name}": np.zeros(array.shape) for name, array in trained.items()}
        return {**start, **zeros, **{f"v {n}": np.full(a.shape, self.options.tau**2) for n, a in trained.items()}}

    def step(self, state: averaging.Weights, means: averaging.Weights, clients: int) -> averaging.Weights:
        """Return the state after one step."""
        options, after = self.options, dict(means)
        for name in without_statistics(means):
            change = means[name].astype(np.float64) - state[name]
            m = options.beta1 * state[f"m {name}"] + (1 - options.beta1) * change
            v = self.squares(state[f"v {name}"], change**2)
            x = state[name] + options.server_rate * m / (np.sqrt(v) + options.tau)
            after |= {name: x.astype(means[name].dtype), f"m {name}": m, f"v {name}": v}
        return after

    def squares(self, v: Doubles, square: Doubles) -> Doubles:
        """Return the next v: FedAdam's."""
        return self.options.beta2 * v + (1 - self.options.beta2) * square  # type: ignore[no-any-return]


class AdagradServer(AdaptiveServer):
    """A server that forgets no square."""

    def squares(self, v: Doubles, square: Doubles) -> Doubles:
        """Return the next v."""
        return v + square


class YogiServer(AdaptiveServer):
    """A server whose v grows as fast as Adam's, and shrinks more slowly."""

    def squares(self, v: Doubles, square: Doubles) -> Doubles:
        """Return the next v."""
        return v - (1 - self.options.beta2) * square * np.sign(v - square)  # type: ignore[no-any-return]


FEDADAGRAD = Method(
    "FEDADAGRAD", "FedAvg with Adagrad at the server", share, AdagradServer, absorb,
    options=AdaptiveOptions(beta1=0.0), adapt=partial(policies.refuse_privacy, "FEDADAGRAD"), models="one",
    source="Reddi et al., 2020: Adaptive federated optimization",
)  # fmt: skip
FEDADAM = Method(
    "FEDADAM", "FedAvg with Adam at the server", share, AdaptiveServer, absorb,
    options=AdaptiveOptions(), adapt=partial(policies.refuse_privacy, "FEDADAM"), models="one",
    source="Reddi et al., 2020: Adaptive federated optimization",
)  # fmt: skip
FEDYOGI = Method(
    "FEDYOGI", "FedAvg with Yogi at the server", share, YogiServer, absorb,
    options=AdaptiveOptions(), adapt=partial(policies.refuse_privacy, "FEDYOGI"), models="one",
    source="Reddi et al., 2020: Adaptive federated optimization",
)  # fmt: skip
