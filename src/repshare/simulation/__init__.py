"""Many clients on one machine, or on several."""

from repshare.simulation.checkpoint import Checkpoint
from repshare.simulation.plan import PAPER, make_plan, resolve
from repshare.simulation.pools import Inline, Processes, Workers
from repshare.simulation.rounds import following, simulate

__all__ = ["PAPER", "Checkpoint", "Inline", "Processes", "Workers", "following", "make_plan", "resolve", "simulate"]
