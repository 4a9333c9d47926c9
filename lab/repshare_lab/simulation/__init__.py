"""Many clients on one machine."""

from repshare_lab.simulation.checkpoint import Checkpoint
from repshare_lab.simulation.plan import PAPER, make_plan, resolve
from repshare_lab.simulation.pools import Inline, Processes, Workers
from repshare_lab.simulation.rounds import following, simulate

__all__ = ["PAPER", "Checkpoint", "Inline", "Processes", "Workers", "following", "make_plan", "resolve", "simulate"]
