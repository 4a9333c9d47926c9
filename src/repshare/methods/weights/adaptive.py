"""A server that takes the clients' mean change for a negative gradient, and steps by its moments."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repshare.fields import check_fits, check_positive
from repshare.methods.averaging import Weights
from repshare.methods.weights.stepping import Stepping, without_statistics

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

    def begin(self, start: Weights) -> Weights:
        """Return the weights, m = 0 and v = τ²."""
        trained = without_statistics(start)
        zeros = {f"m {name}": np.zeros(array.shape) for name, array in trained.items()}
        return {**start, **zeros, **{f"v {n}": np.full(a.shape, self.options.tau**2) for n, a in trained.items()}}

    def step(self, state: Weights, means: Weights, clients: int) -> Weights:
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
        """Return the next v, given Δ²."""
        raise NotImplementedError
