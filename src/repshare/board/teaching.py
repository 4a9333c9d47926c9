"""One client's teacher, made from a state of the board. Its observations are drawn first, to be read at once."""

import hashlib
import random
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from repshare.board import buffers
from repshare.board.aggregation import aggregate
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


def draw(view: BoardState, wants: Wants, key: bytes) -> list[tuple[int, int]]:
    """Return the observations that a client will see: their classes, and their slots in the classes' buffers."""
    sizes = view.head.sizes[: view.task.classes].tolist()
    if wants.peers is not None or not any(sizes):  # in a common space, nobody shares observations
        return []
    rng = _random(view, wants, key)
    return [
        (label, slot)
        for label in _chosen(range(view.task.classes), wants)
        for slot in buffers.draw(view.index, label, sizes[label], wants.observations, rng)
    ]


def taught_classes(view: BoardState, wants: Wants) -> list[int]:
    """Return the classes that a client asks for and that others have shared."""
    others = view.totals.clients.tolist()
    for label in view.index.classes:
        others[label] -= 1
    return _chosen((label for label, clients in enumerate(others) if clients), wants)


def make_teacher(view: BoardState, slots: list[tuple[int, int]], wants: Wants, key: bytes) -> Teacher:
    """Return the teacher of a client that will see these observations. Its means are over everyone, or its peers."""
    if wants.peers is not None:
        return _from_peers(view, wants, key)
    drawn = [row for _, row in buffers.read(view.state, slots)]
    means = view.totals.means(taught_classes(view, wants))  # a board replaces them where its task wants robust ones
    return Teacher(means, decode_rows(drawn, [label for label, _ in slots], view.task.dimension))


def _from_peers(view: BoardState, wants: Wants, key: bytes) -> Teacher:
    rng, task = _random(view, wants, key), view.task
    releases = read_releases(view.state, sorted(set(wants.peers or ()) - {view.client}))
    totals, least = read_totals(None, task), max(1, task.named_peers)
    for release in releases:
        totals.add(release.means, +1, weighted=task.counts_samples)
    taught, drawn = _chosen(np.flatnonzero(totals.clients >= least).tolist(), wants), []
    for label in _chosen(range(task.classes), wants):
        observed = [list(zip(*r.observations.of(label), strict=True)) for r in releases]
        rows = [row for each in observed for row in each]
        if sum(map(bool, observed)) >= least:
            drawn += rng.sample(rows, min(wants.observations, len(rows)))
    means = totals.means(taught)
    if task.aggregation != "mean":
        each = [np.concatenate([r.means.of(label).vectors for r in releases]) for label in taught]
        centres = [aggregate(vectors, task.aggregation) for vectors in each]
        means = stack(list(zip(centres, taught, means.counts.tolist(), strict=True)), task.dimension)
    return Teacher(means, stack(drawn, task.dimension))


def _random(view: BoardState, wants: Wants, key: bytes) -> random.Random:
    """Return randomness for one question about one version: always the same, and unpredictable without the key."""
    if not key:
        return random.Random(wants.seed)
    asked = f"{view.head.version}\n{view.client}\n{wants.seed}".encode()
    return random.Random(hashlib.blake2b(asked, key=key, digest_size=32).digest())


def _chosen(classes: Iterable[int], wants: Wants) -> list[int]:
    if wants.classes is None:
        return list(classes)
    wanted = set(wants.classes)
    return [label for label in classes if label in wanted]
