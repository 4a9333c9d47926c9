"""The memory that an answer or a change will take, known before it is made."""

from typing import NamedTuple

from repshare.board import Board, Wants
from repshare.board.robust import READ_AT_ONCE, SAMPLED
from repshare.board.state import read_head, read_index
from repshare.sharing.task import Task
from repshare.stores import Transaction

ROW_BYTES = 512  # that a row takes besides its numbers while it is read or written
SHORTEST = 12  # bytes of a row in a body besides its numbers, which take at least one each


class Load(NamedTuple):
    """The load of a request while it is worked on."""

    bytes: int  # of memory
    rows: int = 0  # that are read or written, one by one


def most_of_teacher(task: Task, wants: Wants) -> Load:
    """Return the most that this question's answer can take, however many observations there are; not of named peers."""
    classes = task.classes if wants.classes is None else len(wants.classes)
    return _load(task, classes * (1 + wants.observations), _means(task))


def of_teacher(board: Board, wants: Wants) -> Load:
    """Return what this question's answer will take, by what the board holds now."""
    return board.store.read(lambda state: _of_teacher(board.task, state, wants))


def of_release(task: Task, body: bytes) -> Load:
    """Return the most that it can take to accept these bytes."""
    return _load(task, len(body) // (task.dimension + SHORTEST), _means(task))


def _of_teacher(task: Task, state: Transaction, wants: Wants) -> Load:
    if wants.peers is not None:  # all that they published is read
        indexes = [read_index(state, peer) for peer in wants.peers]
        return _load(task, sum(len(index.classes) + sum(map(len, index.slots.values())) for index in indexes))
    sizes = read_head(task, state).sizes[: task.classes].tolist()
    chosen = sizes if wants.classes is None else [sizes[label] for label in wants.classes]
    return _load(task, sum(1 + min(wants.observations, size) for size in chosen), _means(task))


def _load(task: Task, rows: int, more: int = 0) -> Load:
    return Load(_rows(task, rows) + more, rows)


def _rows(task: Task, rows: int) -> int:
    return rows * (4 * task.dimension + ROW_BYTES)


def _means(task: Task) -> int:
    """Return what the sums over clients take, or the means that a robust aggregate is made of."""
    sums = 8 * task.classes * (task.dimension + 3)
    if task.aggregation == "mean":
        return sums
    classes = min(task.classes, max(1, READ_AT_ONCE // (SAMPLED * task.dimension)))  # that are read at once
    return sums + 2 * _rows(task, SAMPLED * classes)  # as they are, and in order
