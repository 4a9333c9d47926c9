"""Clients of a common classifier whose samples are noise, by what their own parts say of them.

Distances say nothing in a common space: a part is what the total still needs, so that honest parts differ most.
"""

from statistics import median

from repshare.sharing.parts import BESIDE, own_error
from repshare.sharing.representations import Representations
from repshare.sharing.task import Task

FEWEST = 3  # clients below which nobody is compared
USUAL_ERROR = 0.1  # the least that counts as usual


def noisiness(task: Task, parts: list[Representations]) -> list[float | None]:
    """Return for each client how many times more often than usual it is wrong about samples of its own."""
    errors = [own_error(rows, task.classes - 1, task.dimension - BESIDE) for rows in parts]
    known = [error for error in errors if error is not None]
    if len(known) < FEWEST:
        return [None for _ in parts]
    usual = max(median(known), USUAL_ERROR)
    return [None if error is None else error / usual for error in errors]
