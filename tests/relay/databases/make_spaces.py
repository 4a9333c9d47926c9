"""Writes relay.db with two tasks in common spaces, and what they teach, with the repshare that is on PYTHONPATH.

How format-3 was made, before a task said its format:

git archive 8faeaca | tar x -C /tmp/old
cd tests/relay/databases/format-3 && PYTHONPATH=/tmp/old/src python ../make_spaces.py
"""

from pathlib import Path

import numpy as np

from repshare.board import Wants
from repshare.relay.tasks import Tasks
from repshare.sharing import parts, sums
from repshare.sharing.task import make_space_task
from repshare.sharing.wire import encode_release
from repshare.stores import open_database

CLASSES, DIMENSION = 3, 4
SPACES = {"parts": "here-squared-v2", "sums": "here-discriminant"}


def make_releases(space, seed):
    rng = np.random.default_rng(seed)
    vectors, labels = rng.uniform(-1, 1, (12, DIMENSION)).astype(np.float32), np.arange(12) % CLASSES
    hits = np.ones((12, len(parts.SHRINKAGES)), bool)
    weights = rng.uniform(-1, 1, (12, CLASSES))
    if "discriminant" in space:
        return encode_release(sums.as_release(sums.add_up(sums.lift(vectors), labels, CLASSES), 1, space))
    return encode_release(parts.as_release(parts.make_part(vectors, weights, labels, hits), 1, space), "fp16")


def main():
    database = open_database("relay.db")
    for name, space in SPACES.items():
        Tasks(database).create(name, make_space_task(CLASSES, DIMENSION, space))
        board = Tasks(database).get(name).board
        for seed, client in enumerate(("alice", "bob")):
            board.accept(client, make_releases(space, seed))
        Path(f"{name}.bin").write_bytes(board.teach("alice", Wants(0, 0)))
    database.close()


if __name__ == "__main__":
    main()
