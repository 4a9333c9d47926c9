"""Whether a board's totals, buffers and members are exactly what its kept releases give."""

import json
from collections import Counter

import numpy as np

from repshare.board import Board
from repshare.board.state import Slots
from repshare.relay.tasks import Tasks
from repshare.stores import open_database


def audit(place, name="digits"):
    """Each client's kept release, after everything else that is kept was made anew from these and compared."""
    database = open_database(str(place))
    try:
        there = Tasks(database).get(name)
        items = dict(there.board.store.items())
    finally:
        database.close()
    task = there.entry.task
    kept = {key.removeprefix("release/"): body for key, body in items.items() if key.startswith("release/")}
    anew = Board(task)
    for client, body in kept.items():
        anew.accept(client, body)
    assert describe(items, task) == describe(anew.store.items(), task)
    check_places(items, kept)
    return kept


def describe(items, task):
    """What a board keeps, apart from the order and the time at which it came."""
    size = 2 + 2 * task.classes  # a stamp may follow
    head = np.frombuffer(items["head"], np.int64, size) if "head" in items else np.zeros(size, np.int64)
    rows = Counter()
    for key, value in items.items():
        if key.startswith("row/"):
            buffer = int(key.split("/")[1])
            owner, _, row = value.partition(b"\n")
            rows[buffer, owner, timeless(row) if buffer == 2 * task.classes else row] += 1
    sizes = head[1:].tolist()
    assert [sum(n for (buffer, *_), n in rows.items() if buffer == b) for b in range(len(sizes))] == sizes
    return items.get("totals", bytes(8 * task.totals_size)), rows, sizes


def timeless(row):
    round, _, size, samples = json.loads(row)
    return json.dumps([round, size, samples])


def check_places(items, kept):
    """Every row is in exactly one client's place, and that client is its owner."""
    owned = Counter()
    for key, value in items.items():
        if key.startswith("place/"):
            client = key.removeprefix("place/")
            assert client in kept
            for buffer, slots in Slots.decode(value).owned.items():
                for slot in slots:
                    assert items[f"row/{buffer}/{slot}"].startswith(client.encode() + b"\n")
                    owned[f"row/{buffer}/{slot}"] += 1
    assert owned == Counter(key for key in items if key.startswith("row/"))
