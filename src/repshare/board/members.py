"""A board's knowledge of its clients: a row for each, next to what it shared."""

import json
from collections.abc import Iterable
from typing import NamedTuple

from repshare.board import buffers
from repshare.board.state import members_buffer, read_head, read_index
from repshare.sharing.task import Task
from repshare.stores import Transaction, decoding

MOST_COUNTS = 200_000  # of samples by class that are read at once, of all members together


class BoardMember(NamedTuple):
    """A board's knowledge of a client."""

    name: str
    round: int
    published: float  # seconds since 1970
    bytes: int
    samples: dict[int, int]  # by class, behind its means


def read_members(task: Task, state: Transaction, limit: int) -> list[BoardMember]:
    """Return up to `limit` clients; fewer, where the number of classes makes that too much."""
    shown = min(read_head(task, state).members, limit, max(1, MOST_COUNTS // task.classes))
    return _read_members(task, state, range(shown))


def find_member(task: Task, state: Transaction, client: str) -> BoardMember | None:
    """Return this client, if it has published anything."""
    slots = read_index(state, client).slots.get(members_buffer(task), ())
    return next(iter(_read_members(task, state, slots)), None)


def _read_members(task: Task, state: Transaction, numbers: Iterable[int]) -> list[BoardMember]:
    slots = [(members_buffer(task), number) for number in numbers]
    found = zip(buffers.row_keys(slots), buffers.read(state, slots), strict=True)
    return [decode_member(key, name, row) for key, (name, row) in found]


def decode_member(key: str, name: bytes, row: bytes) -> BoardMember:
    """Return what a board knows of a client, from the client's row."""
    with decoding(key):
        round, published, size, samples = json.loads(row)
        return BoardMember(name.decode(), int(round), float(published), int(size), dict(samples))
