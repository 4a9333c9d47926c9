"""Meetings, in which the members of a fixed group exchange messages in steps, for a secure sum: see `masking`.

A step is over when every expected member has sent a message, or some time after the first did; then it never changes,
and only those who sent one are expected in the next. So all see the same messages, and know who dropped out.
Messages are opaque here, and only those of the last two meetings of a group are kept.
"""

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypedDict

from repshare.errors import Refused
from repshare.stores import MemoryStore, Store, Transaction, decoded, find_faults

STEPS = 2
MOST_MEMBERS = 100
MOST_GROUPS = 100  # of a task; one that has not met for a while makes room
MOST_OPENED = 10  # of those, by one client: members may be names that no client has
IDLE_SECONDS = 3600.0
KEPT = 2  # meetings of a group: members may still read the one before


class Step(TypedDict):
    """A step of a meeting, as it is kept."""

    since: float  # when the first message came, in seconds since 1970
    patience: float  # seconds from then on
    names: list[str]  # whose messages are there
    over: bool


class Meetings:
    """The meetings of all groups of one task, over a store; without one, in memory."""

    def __init__(self, store: Store | None = None, clock: Callable[[], float] = time.time) -> None:
        """Open the meetings of one task.

        Args:
            store: Where messages are kept. Default: in memory.
            clock: Seconds since 1970. Where it jumps by more than a step's patience, the step is over.
        """
        self.store, self.clock = store or MemoryStore(), clock

    def number(self, members: Sequence[str]) -> int:
        """Return the number of the group's meeting that can still be joined."""
        return self.store.read(lambda state: self._number(state, _identify(members)))

    def begun(self, members: Sequence[str]) -> bool:
        """Whether some member has begun the meeting that can still be joined."""
        group = _identify(members)
        return self.store.read(lambda state: read(state, f"{group}/{self._number(state, group)}/0") is not None)

    def put(self, members: Sequence[str], number: int, step: int, client: str, body: bytes, patience: float) -> None:
        """Send a message in a step; the same again changes nothing. The first says how many seconds there are."""
        group = _identify(members)
        if client not in members:
            raise Refused(f"{client} is not in the group")
        if not 0 <= step < STEPS:
            raise Refused(f"steps are 0 to {STEPS - 1}, not {step}")
        self.store.transact(lambda state: self._put(state, members, f"{group}/{number}", step, client, body, patience))

    def get(self, members: Sequence[str], number: int, step: int) -> dict[str, bytes] | None:
        """Return everyone's messages in a step, or None while it is not over."""
        meeting = f"{_identify(members)}/{number}"

        def work(state: Transaction) -> dict[str, bytes] | None:
            kept = self._step(state, meeting, step)
            if kept is None or not kept["over"]:
                return None
            bodies = state.get([f"{meeting}/{step}/{name}" for name in kept["names"]])
            return {name: body or b"" for name, body in zip(kept["names"], bodies, strict=True)}

        return self.store.transact(work)

    def progress(self, state: Transaction, members: Sequence[str]) -> tuple[int, list[str]]:
        """The number of completed steps of the group's last meeting, and the members in the last of them.

        Of a group that has not met, all members are returned.
        """
        group = _identify(members)
        number, over, names = read(state, f"{group}/last"), 0, list(members)
        for step in range(STEPS if number else 0):
            kept: Step | None = read(state, f"{group}/{number['number']}/{step}")
            if kept is None or not (kept["over"] or self._late(kept)):
                break
            over, names = step + 1, kept["names"]
        return over, names

    def find_faults(self) -> dict[str, str]:
        """Values that cannot be read: key -> fault. Messages are opaque."""
        return self.store.read(lambda state: find_faults(state, _decode))

    def _put(
        self, state: Transaction, members: Sequence[str], meeting: str, step: int, client: str, body: bytes, wait: float
    ) -> None:
        group, _, number = meeting.partition("/")
        if step == 0:
            self._open(state, members, group, int(number), client)
        expected = self._expected(state, members, meeting, step)
        if client not in expected:
            raise Refused(f"meeting {number} continued without {client}")
        kept = self._step(state, meeting, step)
        kept = kept or {"since": self.clock(), "patience": wait, "names": [], "over": False}
        key = f"{meeting}/{step}/{client}"
        if client in kept["names"]:
            if state.get([key]) != [body]:
                raise Refused(f"{client} has already sent another message in step {step}")
            return
        if kept["over"]:
            raise Refused(f"step {step} of meeting {number} is over")
        kept["names"] = sorted([*kept["names"], client])
        kept["over"] = kept["names"] == expected
        state.set({key: body})
        write(state, {f"{meeting}/{step}": kept})

    def _step(self, state: Transaction, meeting: str, step: int) -> Step | None:
        """Return a step as it stands; time may have ended it just now."""
        kept: Step | None = read(state, f"{meeting}/{step}")
        if kept is not None and not kept["over"] and self._late(kept):
            kept["over"] = True
            write(state, {f"{meeting}/{step}": kept})
        return kept

    def _expected(self, state: Transaction, members: Sequence[str], meeting: str, step: int) -> list[str]:
        if step == 0:
            return sorted(members)
        before = self._step(state, meeting, step - 1)
        if before is None or not before["over"]:
            raise Refused(f"step {step - 1} is not over yet")
        return list(before["names"])

    def _number(self, state: Transaction, group: str) -> int:
        last = read(state, f"{group}/last")
        number = int(last["number"] if last else (read(state, "forgotten") or 0) + 1)
        first = read(state, f"{group}/{number}/0")
        gone = first and (first["over"] or self._late(first))
        return number + 1 if gone else number

    def _open(self, state: Transaction, members: Sequence[str], group: str, number: int, client: str) -> None:
        """Make room for a meeting, unless it has begun. Only the next one can be joined."""
        last = read(state, f"{group}/last")
        if last and number == last["number"]:
            return
        if number != (next_one := self._number(state, group)):
            raise Refused(f"the group's next meeting is number {next_one}, not {number}")
        groups = read(state, "groups") or {}
        for other, (since, names) in sorted(groups.items(), key=lambda each: each[1][0]):
            if other != group and abs(self.clock() - since) >= IDLE_SECONDS:
                forgotten = max(read(state, f"{other}/last")["number"], read(state, "forgotten") or 0)
                write(state, {"forgotten": forgotten})  # so that a group never counts from 1 again
                state.delete([f"{other}/last", *(key for n in range(KEPT) for key in _keys(state, other, names, n))])
                del groups[other]
        if group not in groups:
            if sum(names[0] == client for _, names in groups.values()) >= MOST_OPENED:
                raise Refused(f"{MOST_OPENED} groups that {client} opened meet already")
            if len(groups) >= MOST_GROUPS:
                raise Refused(f"{MOST_GROUPS} groups of this task meet already")
            groups[group] = [0.0, sorted(members, key=lambda name: name != client)]  # first who opened it
        groups[group][0] = self.clock()
        state.delete(_keys(state, group, members, KEPT - 1))
        write(state, {"groups": groups, f"{group}/last": {"number": number}})

    def _late(self, step: Step) -> bool:
        return abs(self.clock() - step["since"]) >= step["patience"]


def _keys(state: Transaction, group: str, members: Sequence[str], back: int) -> list[str]:
    """Return all keys of the meeting of a group that was `back` meetings before its last one."""
    number = int((read(state, f"{group}/last") or {"number": 0})["number"]) - back
    places = [f"{group}/{number}/{step}" for step in range(STEPS)]
    return [*places, *(f"{place}/{name}" for place in places for name in members)]


def _identify(members: Sequence[str]) -> str:
    if not 2 <= len(set(members)) == len(members) <= MOST_MEMBERS:
        raise Refused(f"a group has 2 to {MOST_MEMBERS} different members")
    return hashlib.sha256(json.dumps(sorted(members)).encode()).hexdigest()[:32]


def write(state: Transaction, values: Mapping[str, object]) -> None:
    """Keep values as JSON, by key."""
    state.set({key: json.dumps(value).encode() for key, value in values.items()})


def read(state: Transaction, key: str) -> Any:
    """Return the value of a key; None: there is none."""
    (kept,) = state.get([key])
    return None if kept is None else decoded(key, json.loads, kept)


def _decode(key: str, kept: bytes) -> None:
    if key.count("/") < 3:  # GROUP/NUMBER/STEP/NAME is a message
        json.loads(kept)
