"""One client's teacher, made from a state of the board. Its observations are drawn first, to be read at once."""

import hashlib
import random
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from repshare.board import buffers
from repshare.board.aggregation import aggregate
from repshare.board.buffers import Slots
from repshare.board.state import BoardState, decode_rows, read_releases
from repshare.board.totals import read_totals
from repshare.sharing.representations import Teacher, stack


class Wants(NamedTuple):
    """A client's request to a board. The seed makes the draw repeatable, wherever the board is."""

    observations: int
    """M↓: number of observations of each class."""
    seed: int
    """The seed of the draw."""
    peers: tuple[str, ...] | None = None
    """Names of the clients to learn from. Default: all."""
    classes: tuple[int, ...] | None = None
    """Classes to learn. Default: all."""
    precision: str = "fp32"
    """Number format of the answer."""


def draw(there: BoardState, own: Slots, wants: Wants, rng: random.Random) -> list[tuple[int, int]]:
    """Return the observations that a client will see: their classes, and their slots in the classes' buffers."""
    sizes = there.sizes[: there.task.rows].tolist()
    if not any(sizes):  # in a common space, nobody shares observations
        return []
    return [
        (label, slot)
        for label in _chosen(range(there.task.rows), wants)
        for slot in buffers.draw(own, label, sizes[label], wants.observations, rng)
    ]


def taught_classes(own: Slots, wants: Wants, clients: Sequence[int]) -> list[int]:
    """Return the classes that a client asks for and that others have shared, by how many clients share each class."""
    mine = set(own.classes)
    return _chosen((label for label, number in enumerate(clients) if number > (label in mine)), wants)


def make_teacher(there: BoardState, own: Slots, wants: Wants, drawn: Sequence[tuple[int, int]] = ()) -> Teacher:
    """Return the teacher of a client that learns from everyone, and sees these observations."""
    there.state.get(["totals", *buffers.row_keys(drawn)])  # at once
    taught = taught_classes(own, wants, there.totals.clients.tolist())
    contents = [row for _, row in buffers.read(there.state, drawn)]
    rows = decode_rows(contents, [label for label, _ in drawn], there.task.columns)
    return Teacher(there.totals.means(taught), rows)


def make_teacher_of_peers(there: BoardState, client: str, wants: Wants, rng: random.Random) -> Teacher:
    """Return the teacher of a client that named those that it learns from."""
    task = there.task
    releases = read_releases(there.state, sorted(set(wants.peers or ()) - {client}))
    totals, least = read_totals(None, task), max(1, task.named_peers)
    for release in releases:
        totals.add(release.means, +1, weighted=task.counts_samples)
    taught, drawn = _chosen(np.flatnonzero(totals.clients >= least).tolist(), wants), []
    for label in _chosen(range(task.rows), wants):
        observed = [list(zip(*r.observations.of(label), strict=True)) for r in releases]
        rows = [row for each in observed for row in each]
        if sum(map(bool, observed)) >= least:
            drawn += rng.sample(rows, min(wants.observations, len(rows)))
    means = totals.means(taught)
    if task.aggregation != "mean":
        each = [np.concatenate([r.means.of(label).vectors for r in releases]) for label in taught]
        centres = [aggregate(vectors, task.aggregation) for vectors in each]
        means = stack(list(zip(centres, taught, means.counts.tolist(), strict=True)), task.columns)
    return Teacher(means, stack(drawn, task.columns))


def make_random(there: BoardState, client: str, wants: Wants, key: bytes) -> random.Random:
    """Return randomness for one question about one version: always the same, and unpredictable without the key."""
    if not key:
        return random.Random(wants.seed)
    asked = f"{there.version}\n{client}\n{wants.seed}".encode()
    return random.Random(hashlib.blake2b(asked, key=key, digest_size=32).digest())


def _chosen(classes: Iterable[int], wants: Wants) -> list[int]:
    if wants.classes is None:
        return list(classes)
    wanted = set(wants.classes)
    return [label for label in classes if label in wanted]
