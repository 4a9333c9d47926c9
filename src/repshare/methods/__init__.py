"""The ways to learn together, and alone, by their letters."""

from repshare.errors import ConfigError
from repshare.methods.centralized import CL
from repshare.methods.codes import FC
from repshare.methods.common import CA, CS
from repshare.methods.distillation import FD
from repshare.methods.fedavg import FL
from repshare.methods.independent import IL
from repshare.methods.method import Method
from repshare.methods.sharing import RS
from repshare.methods.split import SL

METHODS: dict[str, Method] = {method.name: method for method in (CL, IL, FL, FD, RS, CA, CS, SL, FC)}

__all__ = ["CA", "CL", "CS", "FC", "FD", "FL", "IL", "METHODS", "RS", "SL", "Method", "find_method"]


def find_method(name: str) -> Method:
    """Return the method with these letters.

    Args:
        name: Such as "RS", in upper or lower case.
    """
    if name.upper() not in METHODS:
        raise ConfigError(f"unknown method {name!r}: choose {', '.join(METHODS)}")
    return METHODS[name.upper()]
