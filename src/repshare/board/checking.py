"""The check of a board: values that cannot be decoded, or do not fit its releases, of which all else is made."""

from collections import Counter

import numpy as np

from repshare.board.state import (
    BoardState,
    Slots,
    decode_head,
    decode_member,
    decode_rows,
    read_row,
    release_key,
    row_key,
    slots_key,
)
from repshare.errors import Damaged, Refused
from repshare.sharing import wire
from repshare.sharing.fixed_point import Totals
from repshare.sharing.representations import Release
from repshare.sharing.task import Task
from repshare.stores import Transaction, find_faults


class BoardCheck:
    """The contents of a board, each value decoded once and then compared with the others."""

    def __init__(self, task: Task, state: Transaction) -> None:
        self.task = task
        self.sums = Totals.zeros(task.rows, task.columns)  # of all releases
        self.wanted = dict[str, tuple[list[int], Counter[int]]]()  # by client: its classes, and its rows by buffer
        self.slots = dict[str, Slots]()
        self.owners = dict[str, str]()  # by row
        self.faults = find_faults(state, self._decode)
        if not self.faults:
            self._compare(state)

    def _decode(self, key: str, kept: bytes) -> None:
        kind, _, name = key.partition("/")
        if kind == "release":
            self._add_up(name, wire.decode_release(kept))
        elif kind == "place":
            self.slots[name] = Slots.decode(kept)
        elif kind == "row":
            owner, contents = read_row(key, kept)
            self.owners[key], buffer = owner, int(name.split("/")[0])
            if buffer == 2 * self.task.rows:
                decode_member(owner, contents)
            else:
                decode_rows([contents], [buffer % self.task.rows], self.task.columns)
        elif kind == "head":
            decode_head(self.task, kept)
        elif kind == "totals":
            Totals.decode(kept, self.task.rows, self.task.columns)

    def _add_up(self, client: str, release: Release) -> None:
        try:
            self.task.check(release)
        except Refused as error:
            raise Damaged(release_key(client), f"it is no release of this task: {error}") from error
        self.sums.add(release.means, +1, weighted=self.task.weighted)
        classes, rows = release.means.labels.tolist(), Counter(release.observations.labels.tolist())
        rows[2 * self.task.rows] = 1
        self.wanted[client] = classes, rows

    def _compare(self, state: Transaction) -> None:
        sizes, owned = Counter[int](), dict[str, str]()
        for client in self.wanted.keys() | self.slots.keys():
            slots = self.slots.get(client, Slots({}, []))
            rows = {buffer: len(own) for buffer, own in slots.owned.items()}
            if (slots.classes, rows) != self.wanted.get(client):
                self.faults[slots_key(client)] = "it does not fit the release"
            owned |= {row_key(at, slot): client for at, own in slots.owned.items() for slot in own}
            sizes.update(rows)
        for key in owned.keys() | self.owners.keys():
            if owned.get(key) != self.owners.get(key):
                self.faults[key] = f"it is {self.owners.get(key, 'nobody')}'s, and in the slots of {owned.get(key)}"
        board = BoardState(self.task, state)
        if board.sizes.tolist() != [sizes[buffer] for buffer in range(len(board.sizes))]:
            self.faults["head"] = "its sizes are not those of the rows"
        if not np.array_equal(self.sums.numbers, board.totals.numbers):
            self.faults["totals"] = "they are not the sums of the releases"
