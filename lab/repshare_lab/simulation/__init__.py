"""Many clients on one machine, or on several."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from repshare_lab.simulation.checkpoint import Checkpoint
    from repshare_lab.simulation.plan import PAPER, make_plan, resolve
    from repshare_lab.simulation.pools import Inline, Processes, Workers
    from repshare_lab.simulation.rounds import following, simulate

__all__ = ["PAPER", "Checkpoint", "Inline", "Processes", "Workers", "following", "make_plan", "resolve", "simulate"]

_HOMES = {
    "checkpoint": ("Checkpoint",),
    "plan": ("PAPER", "make_plan", "resolve"),
    "pools": ("Inline", "Processes", "Workers"),
    "rounds": ("following", "simulate"),
}


def __getattr__(name: str) -> Any:
    # Looked up when first used: they need PyTorch, and workers start before it is imported.
    for home, names in _HOMES.items():
        if name in names:
            return getattr(import_module(f"repshare_lab.simulation.{home}"), name)
    raise AttributeError(f"module 'repshare_lab.simulation' has no attribute {name!r}")
