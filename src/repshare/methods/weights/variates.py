"""SCAFFOLD's server: weights x, and the control variate c, the mean of the clients' c_i."""

from typing import Any

import numpy as np

from repshare.methods.averaging import Weights
from repshare.methods.weights.stepping import Stepping, without_statistics


class ScaffoldServer(Stepping):
    """A server with x, and the sum of all c_i."""

    hidden = ("total ", "all clients")

    def begin(self, start: Weights) -> Weights:
        """Return the weights and c = 0."""
        state = {**start, "all clients": np.zeros(1)}
        for name, array in without_statistics(start).items():
            state |= {f"c {name}": np.zeros_like(array), f"total {name}": np.zeros(array.shape)}
        return state

    def step(self, state: Weights, means: Weights, clients: int) -> Weights:
        """Return x and c after a round."""
        after: dict[str, Any] = {name: means[name] for name in means if name in state}
        after["all clients"] = state["all clients"] + np.rint(clients * means["is new"].astype(np.float64))
        for total in (name for name in state if name.startswith("total ")):
            name = total.removeprefix("total ")
            x, dtype = state[name].astype(np.float64), state[name].dtype
            after[name] = (x + self.options.server_rate * (means[name] - x)).astype(dtype)
            after[total] = state[total] + clients * means[f"c {name}"].astype(np.float64)
            after[f"c {name}"] = (after[total] / after["all clients"]).astype(dtype)
        return after
