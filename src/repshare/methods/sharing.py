"""RS: the paper's method. Class means and observations of features go out, global means and others' come back.

Its measure: IL, every client alone with its own data.
"""

from typing import Any

from repshare.board import Board
from repshare.methods.method import Method
from repshare.sharing.task import Task


def serve(task: Task, start: Any = None, options: Any = None) -> Board:
    """Make a board in memory."""
    return Board(task)


RS = Method(
    "RS",
    "representation sharing (the paper)",
    serve=serve,
    source="Berdoz et al., 2022: Scalable collaborative learning via representation sharing",
)
IL = Method("IL", "independent learning")
