"""The memory that an answer or a change will take, known before it is made."""

from typing import NamedTuple

from repshare.board import Board, Wants
from repshare.board.robust import READ_AT_ONCE, SAMPLED
from repshare.board.state import BoardState, read_slots
from repshare.sharing import wire
from repshare.sharing.task import Task
from repshare.stores import Transaction

ROW_BYTES = 512  # that a row takes besides its numbers while it is read or written


class Load(NamedTuple):
    """The load of a request while it is worked on."""

    bytes: int  # of memory
    rows: int = 0  # that are read or written, one by one


def most_of_teacher(task: Task, wants: Wants) -> Load:
    """Return the most that this question's answer can take, however many observations there are; not of named peers."""
    classes = task.rows if wants.classes is None else len(wants.classes)
    return _load(task, classes * (1 + wants.observations))


def of_teacher(board: Board, wants: Wants) -> Load:
    """Return what this question's answer will take, by what the board holds now."""
    return board.store.read(lambda state: _of_teacher(board.task, state, wants))


def of_release(task: Task, body: bytes) -> Load:
    """Return the most that it can take to accept these bytes."""
    return _load(task, wire.most_rows(len(body), task.columns))


def _of_teacher(task: Task, state: Transaction, wants: Wants) -> Load:
    if wants.peers is not None:  # all that they published is read
        found = [read_slots(state, peer) for peer in wants.peers]
        return _load(
            task, sum(len(slots.classes) + sum(map(len, slots.owned.values())) for slots in found), totals=False
        )
    sizes = BoardState(task, state).sizes[: task.rows].tolist()
    chosen = sizes if wants.classes is None else [sizes[label] for label in wants.classes]
    return _load(task, sum(1 + min(wants.observations, size) for size in chosen))


def _load(task: Task, rows: int, *, totals: bool = True) -> Load:
    """Return the load of these rows, and of the sums over clients, or the means that a robust aggregate is made of."""
    row = 4 * task.columns + ROW_BYTES
    size = rows * row
    if totals:
        size += 8 * task.totals_size
    if totals and task.aggregation != "mean":
        classes = min(task.rows, max(1, READ_AT_ONCE // (SAMPLED * task.columns)))  # that are read at once
        size += 2 * SAMPLED * classes * row  # as they are, and in order
    return Load(size, rows)
