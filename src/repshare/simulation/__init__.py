"""Many clients on one machine."""

from repshare.simulation.plan import PAPER, make_plan, resolve
from repshare.simulation.rounds import simulate
from repshare.simulation.workers import Inline, Processes, Workers

__all__ = ["PAPER", "Inline", "Processes", "Workers", "make_plan", "resolve", "simulate"]
