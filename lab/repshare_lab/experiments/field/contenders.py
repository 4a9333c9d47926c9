"""The methods of the field, from the registry, and what each of them can take part in."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from repshare.methods import Method

MODEL = ("mlp",)
ROUNDS = 50  # of one local epoch each, for every method that trains networks
LENGTH = 10.0  # λ_length, where features are kept short
KINDS = ("lenet5", "convnet", "mlp")


class Division(NamedTuple):
    """One way to divide samples, and networks, among the clients."""

    label: str
    setting: Mapping[str, Any] = {}
    """The differences from the field's setting."""
    rates: str = "uniform"
    """The division on which rates were chosen."""
    penalised: bool = True
    """Run methods a second time, with short features."""


UNIFORM = Division("uniform")
SKEWED = Division("Dirichlet 0.1", {"partition": "dirichlet", "alpha": 0.1}, "Dirichlet 0.1")
LESS = Division("Dirichlet 0.5", {"partition": "dirichlet", "alpha": 0.5}, SKEWED.label)
HALF = Division("5 of 10 classes", {"partition": "shards", "classes_per_client": 5}, SKEWED.label)
MIXED = {"clients": 9, "samples": 1080, "model": KINDS, "dimension": 84}
NETWORKS = Division("three networks", MIXED, penalised=False)
BLOCKS = (UNIFORM, SKEWED), (LESS, HALF, NETWORKS)  # all seeds of the first come before the second
DIVISIONS = tuple(division for block in BLOCKS for division in block)


def fits(method: Method, division: Division) -> bool:
    """Return whether a method can be run there, and depends on it: CL has everyone's data, however they are divided."""
    if method.models == "pooled":
        return division is UNIFORM
    return division is not NETWORKS or not method.shares_weights
