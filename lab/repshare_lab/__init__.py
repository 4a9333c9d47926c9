"""The laboratory of repshare: data sets, simulated clients, the methods of the field, studies, figures and attacks.

load        real data sets by name
compare     methods on the same splits and seeds, simulated: a table
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repshare_lab.data import load
    from repshare_lab.experiments.comparison import compare

__all__ = ["compare", "load"]

_HOMES = {"load": "repshare_lab.data", "compare": "repshare_lab.experiments.comparison"}


def __getattr__(name: str) -> Any:
    # Looked up when first used: PyTorch takes a second to import.
    if name in _HOMES:
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module 'repshare_lab' has no attribute {name!r}")
