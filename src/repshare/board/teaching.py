"""One client's teacher, made from a state of the board."""

import hashlib
import random
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from repshare.board.state import BoardState, Place, decode_rows, read_releases, row_key
from repshare.sharing.fixed_point import Totals
from repshare.sharing.representations import Teacher, Wants, stack
from repshare.stores import decoded


def draw(board: BoardState, client: str, wants: Wants, key: bytes) -> list[Place]:
    """The observations that a client will see: their classes, and their slots in the classes' buffers."""
    shared = np.flatnonzero(board.numbers[1 : 1 + board.task.rows]).tolist()
    if not shared:  # in a common space, nobody shares observations
        return []
    rng, drawn = make_random(board, client, wants, key), list[Place]()
    for label in shared:
        drawn += zip([label] * wants.observations, board.draw(client, label, wants.observations, rng), strict=False)
    return drawn


def make_teacher(board: BoardState, client: str, wants: Wants, drawn: Sequence[Place] = ()) -> Teacher:
    """The teacher of a client that learns from everyone, and sees these observations."""
    board.state.get(["totals", *map(row_key, *zip(*drawn, strict=True))] if drawn else ["totals"])  # at once
    others: NDArray[np.int64] = board.totals.numbers[:, -1].copy()  # (C,)  other clients that share a class
    others[board.slots[client].classes] -= 1
    contents, labels = list[bytes](), list[int]()
    for (label, _), (_, row) in zip(drawn, board.rows(drawn), strict=True):
        contents.append(row)
        labels.append(label)
    rows = decoded("row", decode_rows, contents, labels, board.task.columns)
    return Teacher(board.totals.means(np.flatnonzero(others > 0).tolist()), rows)


def make_teacher_of_peers(board: BoardState, client: str, wants: Wants, key: bytes) -> Teacher:
    """The teacher of a client that named those that it learns from."""
    task, rng = board.task, make_random(board, client, wants, key)
    releases = read_releases(board.state, sorted(set(wants.peers or ()) - {client}))
    totals = Totals.zeros(task.rows, task.columns)
    for release in releases:
        totals.add(release.means, +1, weighted=task.weighted)
    taught, drawn = np.flatnonzero(totals.clients).tolist(), []
    for label in range(task.rows):
        rows = [row for r in releases for row in zip(*r.observations.of(label), strict=True)]
        drawn += rng.sample(rows, min(wants.observations, len(rows)))
    return Teacher(totals.means(taught), stack(drawn, task.columns))


def make_random(board: BoardState, client: str, wants: Wants, key: bytes) -> random.Random:
    """Randomness for one question about one version: always the same, and unpredictable without the key."""
    if not key:
        return random.Random(wants.seed)
    asked = f"{board.version}\n{client}\n{wants.seed}".encode()
    return random.Random(hashlib.blake2b(asked, key=key, digest_size=32).digest())
