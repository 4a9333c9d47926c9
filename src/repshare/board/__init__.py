"""Algorithm 1's server half: accept releases, add them up, draw observations. NumPy only."""

from repshare.board.board import Board
from repshare.board.teaching import Wants

__all__ = ["Board", "Wants"]
