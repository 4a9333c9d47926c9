"""The ways to learn together, by the letters of the paper's table."""

from repshare.errors import ConfigError
from repshare.methods.centralized import CL
from repshare.methods.distillation import FD
from repshare.methods.fedavg import FL
from repshare.methods.independent import IL
from repshare.methods.method import Method
from repshare.methods.sharing import RS

METHODS: dict[str, Method] = {method.name: method for method in (CL, IL, FL, FD, RS)}

__all__ = ["CL", "FD", "FL", "IL", "METHODS", "RS", "Method", "find_method"]


def find_method(name: str) -> Method:
    """The method of these letters."""
    if name.upper() not in METHODS:
        raise ConfigError(f"unknown method {name!r}: choose {', '.join(METHODS)}")
    return METHODS[name.upper()]
