"""The check of a board: values that cannot be decoded, or do not fit its releases, of which all else is made."""

from collections import Counter

import numpy as np

from repshare.board import buffers
from repshare.board.buffers import row_keys, slots_key
from repshare.board.state import (
    BoardState,
    decode_head,
    decode_member,
    decode_release,
    decode_rows,
    means_buffer,
    members_buffer,
    release_key,
)
from repshare.board.totals import read_totals
from repshare.errors import Damaged, Refused
from repshare.sharing.representations import Release
from repshare.sharing.task import Task
from repshare.stores import Transaction, find_faults


class Survey:
    """The contents of a board, each value decoded once and then compared with the others."""

    def __init__(self, task: Task, state: Transaction) -> None:
        self.task = task
        self.sums = read_totals(None, task)  # of all releases
        self.wanted = dict[str, tuple[list[int], Counter[int]]]()  # by client: its classes, and its rows by buffer
        self.slots = dict[str, buffers.Slots]()
        self.owners = dict[str, str]()  # by row
        self.faults = find_faults(state, self._decode)
        if not self.faults:
            self._compare(state)

    def _decode(self, key: str, kept: bytes) -> None:
        kind, _, name = key.partition("/")
        if kind == "release":
            self._add_up(name, decode_release(name, kept))
        elif kind == "place":
            self.slots[name] = buffers.decode_slots(kept)
        elif kind == "row":
            owner, contents = buffers.read_row(key, kept)
            self.owners[key], buffer = owner, int(name.split("/")[0])
            if buffer == members_buffer(self.task):
                decode_member(key, owner, contents)
            else:
                decode_rows([contents], [buffer % self.task.rows], self.task.columns)
        elif kind == "head":
            decode_head(self.task, kept)
        elif kind == "totals":
            read_totals(kept, self.task)

    def _add_up(self, client: str, release: Release) -> None:
        try:
            self.task.check(release)
        except Refused as error:
            raise Damaged(release_key(client), f"it is no release of this task: {error}") from error
        self.sums.add(release.means, +1, weighted=self.task.counts_samples)
        classes, rows = release.means.labels.tolist(), Counter(release.observations.labels.tolist())
        if self.task.aggregation != "mean":
            rows.update(means_buffer(self.task, label) for label in classes)
        rows[members_buffer(self.task)] = 1
        self.wanted[client] = classes, rows

    def _compare(self, state: Transaction) -> None:
        sizes, owned = Counter[int](), dict[str, str]()
        for client in self.wanted.keys() | self.slots.keys():
            slots = self.slots.get(client, buffers.decode_slots(None))
            rows = {buffer: len(own) for buffer, own in slots.owned.items()}
            if (slots.classes, rows) != self.wanted.get(client):
                self.faults[slots_key(client)] = "it does not fit the release"
            owned |= dict.fromkeys(row_keys((at, slot) for at, own in slots.owned.items() for slot in own), client)
            sizes.update(rows)
        for key in owned.keys() | self.owners.keys():
            if owned.get(key) != self.owners.get(key):
                self.faults[key] = f"it is {self.owners.get(key, 'nobody')}'s, and in the slots of {owned.get(key)}"
        there = BoardState(self.task, state)
        if there.sizes.tolist() != [sizes[buffer] for buffer in range(len(there.sizes))]:
            self.faults["head"] = "its sizes are not those of the rows"
        if not np.array_equal(self.sums.numbers, there.totals.numbers):
            self.faults["totals"] = "they are not the sums of the releases"
