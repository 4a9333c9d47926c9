"""Boards as versions up to commit c528c6c kept them: with a clock of their own, and a queue of releases that expire.

time            seconds that relays ran
head            version, the queue's two ends, sizes; perhaps a stamp
place/CLIENT    a time of that clock, then what it has now; perhaps also the buffer −1, with a number in the queue
queue/NUMBER    a client, and when it joined the queue
"""

import struct

from repshare.sharing.task import Task
from repshare.stores import Store, Transaction

IN_QUEUE = -1
STAMP_BYTES = 16


def upgrade(task: Task, store: Store) -> None:
    """Rewrite an earlier version's board. What is damaged stays as it is, for a check to name."""
    if store.read(lambda state: _is_old(task, state)):
        store.transact(lambda state: _upgrade(task, state))


def _is_old(task: Task, state: Transaction) -> bool:
    (head,) = state.get(["head"])
    return len(head or b"") in (_head_size(task), _head_size(task) + STAMP_BYTES)


def _upgrade(task: Task, state: Transaction) -> None:
    if not _is_old(task, state):  # another process was first
        return
    head = state.get(["head"])[0] or b""
    changed = {key: _without_queue(kept) for key, kept in state.scan("place/")}
    queue = [key for key, _ in state.scan("queue/")]
    state.set({**changed, "head": head[:8] + head[24 : _head_size(task)]})
    state.delete(["time", *queue])


def _head_size(task: Task) -> int:
    return 8 * (4 + 2 * task.rows)


def _without_queue(place: bytes) -> bytes:
    """Return a client's slots, with their length in place of the time. The place in the queue was written last."""
    if len(place) % 8 == 0 and place[-24:-8] == struct.pack("<2q", IN_QUEUE, 1):
        place = place[:-24]
    return struct.pack("<q", len(place) // 8 - 1) + place[8:]
