"""Medians of class means over a board's clients: of all that share a class, or of SAMPLED drawn where more do.

Each client counts the same, whatever number of samples it claims: while fewer than half of them lie, each number stays
between the smallest and the largest of the others'.

Rows are read some classes at a time and each time in a transaction of their own, so that memory stays bounded however
many classes and clients there are. While others publish, classes of one answer may be of successive versions.
"""

import os
import random
from collections.abc import Collection, Sequence
from contextlib import suppress
from functools import partial

import numpy as np

from repshare.board.state import BoardMember, BoardState, Place, decode_rows, read_releases, row_key
from repshare.errors import Damaged
from repshare.sharing.representations import Floats, Representations
from repshare.sharing.task import Task
from repshare.stores import Store, Transaction, decoded

SAMPLED = 512  # where a third of the clients lie, they are half of this many less than once in 10¹⁴ draws
AT_ONCE_BYTES = 4_000_000  # of releases that are read for their means
READ_AT_ONCE = 2**21  # numbers: 8 MB
LONGEST = READ_AT_ONCE // SAMPLED  # d' with which the rows of one class are read at once


class RobustMeans:
    """The robust means of one task's classes.

    A new sample is drawn for every answer, and cannot be predicted: otherwise clients that lie would publish again and
    again until most of a sample that lasts is theirs. `repeatable`: it follows from the version, for simulations.
    """

    def __init__(self, task: Task, store: Store, *, repeatable: bool) -> None:
        self.task, self.store, self.repeatable = task, store, repeatable
        self.forget()

    def forget(self) -> None:
        """Forget what is kept of earlier answers."""
        self._kept: tuple[int, dict[int, Floats]] = (-1, {})  # a version, and its means (d,) of all clients, by class

    def of(self, classes: Collection[int], version: int) -> dict[int, Floats]:
        """Return the robust mean (d,) of each of these classes that any client shares; `version` is the board's."""
        kept_version, kept = self._kept
        kept = kept if kept_version == version else {}
        found = {label: kept[label] for label in classes if label in kept}
        missing = [label for label in classes if label not in found]
        each = max(1, READ_AT_ONCE // (SAMPLED * self.task.columns))
        for start in range(0, len(missing), each):
            now, rows = self.store.read(partial(self._read, missing[start : start + each]))
            for label, (vectors, whole) in rows.items():
                found[label] = np.median(vectors.astype(np.float64), axis=0).astype(np.float32)
                if whole and now == version:
                    kept[label] = found[label]
        self._kept = version, kept
        return found

    def _read(self, classes: Sequence[int], state: Transaction) -> tuple[int, dict[int, tuple[Floats, bool]]]:
        """Return the board's version; and by class the clients' rows (n, d), and whether they are of all clients."""
        there = BoardState(self.task, state)
        rng = random.Random(there.version if self.repeatable else os.urandom(32))
        drawn: dict[int, list[Place]] = {}
        for label in classes:
            buffer = self.task.rows + label
            among = range(int(there.sizes[buffer]))
            slots = rng.sample(among, SAMPLED) if len(among) > SAMPLED else among
            drawn[label] = [(buffer, slot) for slot in slots]
        state.get([row_key(*place) for each in drawn.values() for place in each])  # at once what each class needs
        rows: dict[int, tuple[Floats, bool]] = {}
        for label, each in drawn.items():
            contents = [row for _, row in there.rows(each)]
            vectors = decoded("row", decode_rows, contents, [label] * len(contents), self.task.columns).vectors
            if contents:
                rows[label] = vectors, len(contents) == there.sizes[self.task.rows + label]
        return there.version, rows


def read_means(store: Store, members: Sequence[BoardMember], classes: int) -> dict[str, Representations]:
    """Return each member's means of the first `classes` classes. A few at a time: whole releases are long."""
    found, part, size = dict[str, Representations](), list[str](), 0

    def work(state: Transaction) -> None:
        for name in part:
            with suppress(Damaged):  # which its owner is told of, and `relay check` names
                for release in read_releases(state, [name]):  # none, if it has left meanwhile
                    found[name] = release.means.part(release.means.labels < classes)

    for member in members:
        part.append(member.name)
        size += member.bytes
        if size > AT_ONCE_BYTES:
            store.read(work)
            part, size = [], 0
    store.read(work)
    return found
