"""Algorithm 1's server half: accept releases, add them up, draw observations. NumPy only."""

from repshare.board.board import Board
from repshare.board.server import Server
from repshare.sharing.representations import Wants

__all__ = ["Board", "Server", "Wants"]
