"""The server's half of Algorithm 1: accept releases, keep totals and class buffers, hand out teachers.

A board never trains and never waits. Accepting a release or making a teacher costs the same with 10 clients as with
100,000: totals are updated by what changed, and observations are drawn from a buffer for each class.
"""

import math
import random
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare import sums, wire
from repshare.errors import ConfigError, Refused
from repshare.representations import Release, Representations, Teacher, stack
from repshare.stores import MemoryStore, Store, Transaction


@dataclass(frozen=True)
class Task:
    """One collaboration: what all its clients agree on."""

    classes: int
    """C, the number of classes."""
    dimension: int
    """d', the length of a representation."""
    norm_bound: float = 1000.0
    """Vectors longer than this are refused. Tanh features are never longer than √d'."""
    minimum_count: int = 1
    """Averages over fewer samples than this are refused."""
    weighted: bool = True
    """Whether a client's class mean counts by its number of samples, or each client's the same."""

    def __post_init__(self) -> None:
        if self.classes < 2:
            raise ConfigError(f"a task needs at least 2 classes, not {self.classes}")
        if self.dimension < 1:
            raise ConfigError(f"representations need at least 1 dimension, not {self.dimension}")
        if not 0 < self.norm_bound < math.inf:
            raise ConfigError(f"norm_bound must be above 0 and finite, not {self.norm_bound}")
        if self.minimum_count < 1:
            raise ConfigError(f"minimum_count must be at least 1, not {self.minimum_count}")


class Wants(NamedTuple):
    """What a client asks of a board. The seed makes the draw repeatable, wherever the board is."""

    observations: int  # M↓, a class
    seed: int
    peers: tuple[str, ...] | None = None  # None: everyone


class Totals(NamedTuple):
    """Sums over the last release of every client, exact in any order (see `sums`)."""

    vectors: NDArray[np.int64]  # (C, d)  weighted sums of class means
    weights: NDArray[np.int64]  # (C,)    the weights' sums
    samples: NDArray[np.int64]  # (C,)    samples behind the means
    clients: NDArray[np.int64]  # (C,)    clients behind the means

    def add(self, means: Representations, sign: int, *, weighted: bool) -> None:
        """Count a client's class means in (+1) or out (−1)."""
        for vector, label, count in zip(*means, strict=True):
            weight = int(count) if weighted else 1
            self.vectors[label] += sign * sums.weigh(vector, weight)
            self.weights[label] += sign * weight
            self.samples[label] += sign * count
            self.clients[label] += sign

    def means(self, among: Iterable[int]) -> Representations:
        """The mean of each of these classes."""
        rows = [
            (sums.mean(self.vectors[c], int(self.weights[c])), c, int(self.samples[c])) for c in among
        ]  # (d,), class, count
        return stack(rows, self.vectors.shape[1])


class Board:
    """One task's state over a store; without one, in memory."""

    def __init__(self, task: Task, store: Store | None = None) -> None:
        self.task, self.store = task, store or MemoryStore()

    def accept(self, client: str, body: bytes) -> None:
        """Make this release the client's current one. Repeating it changes nothing; a refused one neither."""
        if not isinstance(client, str) or not client or "\n" in client:
            raise Refused(f"{client!r} is not a client's name: it must be one line and not empty")
        release = wire.decode_release(body)
        self._check(release)
        with self.store.transaction() as state:
            before = _release(state, client)
            if before and before.round > release.round:
                raise Refused(f"{client} published round {before.round} already: round {release.round} is older")
            totals = self._totals(state)
            if before:
                totals.add(before.means, -1, weighted=self.task.weighted)
            totals.add(release.means, +1, weighted=self.task.weighted)
            if sums.overflows(totals.vectors):
                raise Refused(f"the task is full: {totals.weights.max()} samples of one class")
            state.set("totals", b"".join(part.tobytes() for part in totals))
            state.set(f"release/{client}", body)
            for label in range(self.task.classes):
                self._replace_observations(state, client, label, release.observations.of(label))

    def teach(self, client: str, wants: Wants) -> bytes:
        """A teacher for this client, as bytes: what the others shared, and nothing where only itself did."""
        rng = random.Random(wants.seed)
        with self.store.transaction() as state:
            if wants.peers is None:
                teacher = self._from_everyone(state, client, wants.observations, rng)
            else:
                teacher = self._from_peers(state, client, wants, rng)
        return wire.encode_teacher(teacher)

    def save(self) -> bytes:
        """All that is kept, as bytes."""
        return wire.encode_items(self.store.items())

    def load(self, saved: bytes) -> None:
        """Put back what `save` gave."""
        with self.store.transaction() as state:
            for key, value in wire.decode_items(saved).items():
                state.set(key, value)

    def _from_everyone(self, state: Transaction, client: str, observations: int, rng: random.Random) -> Teacher:
        totals, own = self._totals(state), _release(state, client)
        others = totals.clients.copy()
        if own:
            others[own.means.labels] -= 1
        drawn = [
            (vector, label, count)
            for label in range(self.task.classes)
            for vector, count in _draw(state, client, label, observations, rng)
        ]
        return Teacher(totals.means(np.flatnonzero(others)), stack(drawn, self.task.dimension))

    def _from_peers(self, state: Transaction, client: str, wants: Wants, rng: random.Random) -> Teacher:
        found = [_release(state, peer) for peer in sorted(set(wants.peers or ()) - {client})]
        releases = [release for release in found if release]
        totals = self._empty()
        for release in releases:
            totals.add(release.means, +1, weighted=self.task.weighted)
        drawn = []
        for label in range(self.task.classes):
            rows = [row for r in releases for row in zip(*r.observations.of(label), strict=True)]
            drawn += rng.sample(rows, min(wants.observations, len(rows)))
        return Teacher(totals.means(np.flatnonzero(totals.clients)), stack(drawn, self.task.dimension))

    def _check(self, release: Release) -> None:
        task = self.task
        for rows in (release.means, release.observations):
            if rows.vectors.shape[1] != task.dimension:
                raise Refused(f"representations of {rows.vectors.shape[1]} numbers; the task's have {task.dimension}")
            if unknown := set(rows.labels.tolist()) - set(range(task.classes)):
                raise Refused(f"class {min(unknown)} is unknown; the task's are 0 to {task.classes - 1}")
            if (rows.counts < task.minimum_count).any():
                raise Refused(f"an average of {rows.counts.min()} samples; the task wants {task.minimum_count}")
            if not np.isfinite(rows.vectors).all():
                raise Refused("a vector is not finite")
            longest = float(np.linalg.norm(rows.vectors.astype(np.float64), axis=1).max(initial=0))
            if longest > task.norm_bound:
                raise Refused(f"a vector of length {longest:.4g}; the task's norm_bound is {task.norm_bound:.4g}")
            if not sums.fits(longest, int(rows.counts.max(initial=0))):
                raise Refused(f"an average of {rows.counts.max()} samples is more than can be summed up")
        if len(set(release.means.labels.tolist())) < len(release.means.labels):
            raise Refused("two means of one class")

    def _empty(self) -> Totals:
        counts = (np.zeros(self.task.classes, np.int64) for _ in range(3))
        return Totals(np.zeros((self.task.classes, self.task.dimension), np.int64), *counts)

    def _totals(self, state: Transaction) -> Totals:
        kept = state.get("totals")
        if kept is None:
            return self._empty()
        classes, dimension = self.task.classes, self.task.dimension
        numbers = np.frombuffer(kept, np.int64).copy()
        vectors, *counts = np.split(numbers, [classes * (dimension + i) for i in range(3)])
        return Totals(vectors.reshape(classes, dimension), *counts)

    def _replace_observations(self, state: Transaction, client: str, label: int, observations: Representations) -> None:
        """Give the client as many slots of the class's buffer as it has observations, and fill them."""
        slots = _slots(state, client, label)
        size = _number(state, f"buffer/{label}")
        while len(slots) > len(observations.labels):
            size, free = size - 1, slots.pop()
            _set_slots(state, client, label, slots)
            _move(state, label, size, free)
            slots = _slots(state, client, label)  # the entry that moved may have been its own
        while len(slots) < len(observations.labels):
            slots.append(size)
            size += 1
        for slot, vector, count in zip(slots, observations.vectors, observations.counts, strict=True):
            state.set(f"buffer/{label}/{slot}", _entry(client, int(count), vector))
        state.set(f"buffer/{label}", str(size).encode())
        _set_slots(state, client, label, slots)


def _move(state: Transaction, label: int, last: int, free: int) -> None:
    """Close the gap at `free` with the buffer's last entry, whose owner must learn its new place."""
    entry = state.get(f"buffer/{label}/{last}")
    state.delete(f"buffer/{label}/{last}")
    if entry is None or last == free:
        return
    owner = _read_entry(entry)[0]
    state.set(f"buffer/{label}/{free}", entry)
    _set_slots(state, owner, label, [free if slot == last else slot for slot in _slots(state, owner, label)])


def _release(state: Transaction, client: str) -> Release | None:
    body = state.get(f"release/{client}")
    return wire.decode_release(body) if body else None


def _draw(
    state: Transaction, client: str, label: int, wanted: int, rng: random.Random
) -> Iterable[tuple[NDArray[np.float32], int]]:
    """Up to `wanted` different observations of a class, none of the client's own."""
    size, own = _number(state, f"buffer/{label}"), set(_slots(state, client, label))
    drawn = rng.sample(range(size), min(size, wanted + len(own)))
    for slot in [slot for slot in drawn if slot not in own][:wanted]:
        entry = state.get(f"buffer/{label}/{slot}")
        if entry is not None:
            _, count, vector = _read_entry(entry)
            yield vector, count


def _entry(client: str, count: int, vector: NDArray[np.float32]) -> bytes:
    return b"%s\n%d\n%s" % (client.encode(), count, vector.astype(np.float32).tobytes())


def _read_entry(entry: bytes) -> tuple[str, int, NDArray[np.float32]]:
    client, count, vector = entry.split(b"\n", 2)
    return client.decode(), int(count), np.frombuffer(vector, np.float32)


def _number(state: Transaction, key: str) -> int:
    return int(state.get(key) or 0)


def _slots(state: Transaction, client: str, label: int) -> list[int]:
    return [int(slot) for slot in (state.get(f"slots/{label}/{client}") or b"").split()]


def _set_slots(state: Transaction, client: str, label: int, slots: list[int]) -> None:
    state.set(f"slots/{label}/{client}", " ".join(map(str, slots)).encode())
