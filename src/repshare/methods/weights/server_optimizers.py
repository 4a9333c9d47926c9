"""FEDADAGRAD, FEDADAM, FEDYOGI: FedAvg, whose server takes the clients' mean change Δ for a negative gradient.

m ← β₁ m + (1 − β₁) Δ;  x ← x + η · m / (√v + τ);  v begins with τ², and
    FedAdagrad: v ← v + Δ²    FedAdam: v ← β₂ v + (1 − β₂) Δ²    FedYogi: v ← v − (1 − β₂) Δ² sign(v − Δ²)

Clients count by their samples in Δ, as in FedAvg, and train with the setting's optimizer; the paper's use SGD.
"""

from functools import partial

import numpy as np

from repshare.methods.method import Method
from repshare.methods.policies import refuse_privacy
from repshare.methods.weights.adaptive import AdaptiveOptions, AdaptiveServer, Doubles
from repshare.methods.weights.stepping import absorb, share


class AdagradServer(AdaptiveServer):
    """A server that forgets no square."""

    def squares(self, v: Doubles, square: Doubles) -> Doubles:
        """Return the next v."""
        return v + square


class AdamServer(AdaptiveServer):
    """A server that forgets squares at one rate."""

    def squares(self, v: Doubles, square: Doubles) -> Doubles:
        """Return the next v."""
        return self.options.beta2 * v + (1 - self.options.beta2) * square  # type: ignore[no-any-return]


class YogiServer(AdaptiveServer):
    """A server whose v grows as fast as Adam's, and shrinks more slowly."""

    def squares(self, v: Doubles, square: Doubles) -> Doubles:
        """Return the next v."""
        return v - (1 - self.options.beta2) * square * np.sign(v - square)  # type: ignore[no-any-return]


FEDADAGRAD = Method(
    "FEDADAGRAD", "FedAvg with Adagrad at the server", share, AdagradServer, absorb,
    options=AdaptiveOptions(beta1=0.0), adapt=partial(refuse_privacy, "FEDADAGRAD"), models="one",
    source="Reddi et al., 2020: Adaptive federated optimization",
)  # fmt: skip
FEDADAM = Method(
    "FEDADAM", "FedAvg with Adam at the server", share, AdamServer, absorb,
    options=AdaptiveOptions(), adapt=partial(refuse_privacy, "FEDADAM"), models="one",
    source="Reddi et al., 2020: Adaptive federated optimization",
)  # fmt: skip
FEDYOGI = Method(
    "FEDYOGI", "FedAvg with Yogi at the server", share, YogiServer, absorb,
    options=AdaptiveOptions(), adapt=partial(refuse_privacy, "FEDYOGI"), models="one",
    source="Reddi et al., 2020: Adaptive federated optimization",
)  # fmt: skip
