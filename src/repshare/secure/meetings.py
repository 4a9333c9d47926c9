"""The masked group of a task: who is there, by which key, who meets next, and the messages. A relay keeps it.

A member that is ready for a meeting says so, and asks again until it is told whom it meets. The first meeting waits for
all who are invited, a later one for those who stayed to the end of the last one; either for a while only.

A total that lacks a member of the one before would show, by the difference, what that member shares. So those who are
left add up how their parts have changed since the last total that all of them know: the part of the missing one stays.

In a meeting, members exchange messages in steps, for sums (see `masking`). All must send one in each: where one is
missing for too long, the meeting is over. Messages are opaque here, and only those of the last meeting are kept.
"""

import json
import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple, TypedDict

from repshare.errors import Refused
from repshare.stores import MemoryStore, Store, Transaction, decoded, find_faults

STEPS = 3  # keys; counts of classes and samples; the releases
MOST_MEMBERS = 100
MOST_KNOWN = 1000  # names with a key
AWAY_SECONDS = 10.0  # without asking: a member is not ready any more
GROUP = "group"


class Called(NamedTuple):
    """The answer to a member that is ready."""

    number: int
    """The meeting's."""
    members: dict[str, str]
    """Names and public keys of those who meet; none, while more are waited for."""
    ready: list[str]
    """The members that wait."""
    newcomers: list[str]
    """Those of `members` that are not behind the total before; none, if there was none."""
    base: str
    """The total whose changes they add up; empty: they make a new one."""
    faults: dict[str, str] = {}
    """Members that have left themselves out, by their own word, and why."""


class Waiting(NamedTuple):
    """A member that waits."""

    call: str
    base: str  # the last total that it knows
    company: int  # newcomers, with it, that it joins with: the difference of two totals is theirs
    asked: float  # when it asked last


class _Group(TypedDict):
    """The group, as it is kept."""

    keys: dict[str, str]  # the first one of each name
    ready: dict[str, Waiting]
    since: float | None  # when enough were ready first
    number: int  # of the last meeting
    members: dict[str, str]  # its members, each with the call that it waited in
    patience: float  # seconds for each step, from the first message
    sent: list[list[str]]  # the senders of messages, by step
    begun: list[float]  # when the first message came, by step
    newcomers: list[str]
    base: str
    behind: list[str]  # members with parts in the last total
    faults: dict[str, str]  # why members have left themselves out


class Meetings:
    """The meetings of one task, over a store; without one, in memory."""

    def __init__(self, store: Store | None = None, clock: Callable[[], float] = time.time, *, fewest: int = 3) -> None:
        """Open the meetings of one task.

        Args:
            store: Where they are kept. Default: in memory.
            clock: Seconds since 1970. Where it jumps by more than a meeting's patience, the meeting is over.
            fewest: Members of a meeting.
        """
        self.store, self.clock, self.fewest = store or MemoryStore(), clock, fewest

    def call(
        self,
        client: str,
        key: str,
        call: str,
        base: str,
        company: int,
        fault: str = "",
        *,
        invited: Collection[str],
        patience: float,
    ) -> Called:
        """Note that a member is ready, and return who meets.

        Args:
            client: The member's name.
            key: Its public key, always the same.
            call: Any word, another one for each meeting. Who asks again with the same word gets the same answer.
            base: The last total that it knows; empty: none.
            company: Newcomers, with it, that must come at once, unless all who meet are new.
            fault: Why it leaves itself out; empty: it does not.
            invited: The names of all who may come.
            patience: Seconds to wait for those who are missing, once enough are ready, and in each step.
        """

        def work(state: Transaction) -> Called:
            group = _find(state)
            if len(group["keys"]) >= MOST_KNOWN and client not in group["keys"]:
                raise Refused(f"{MOST_KNOWN} members are known here already")
            if (known := group["keys"].setdefault(client, key)) != key:
                raise Refused(
                    f"{client} is known here by the key {known}, not {key}: put its state folder back, or ask the "
                    "operator to invite it under a new name"
                )
            if group["members"].get(client) != call:
                group["faults"] = {**group["faults"], client: fault}
                group["ready"] = {**self._present(group), client: Waiting(call, base, company, self.clock())}
                self._propose(state, group, invited, patience)
                _keep(state, group)
            if group["members"].get(client) != call:
                return Called(0, {}, sorted(group["ready"]), [], "")
            keys = {name: group["keys"][name] for name in sorted(group["members"])}
            faults = {name: why for name, why in group["faults"].items() if why and name in keys}
            return Called(group["number"], keys, [], group["newcomers"], group["base"], faults)

        return self.store.transact(work)

    def put(self, client: str, number: int, step: int, body: bytes) -> None:
        """Send a message in a step; the same again changes nothing."""

        def work(state: Transaction) -> None:
            group, place = _find(state), f"{number}/{step}/{client}"
            self._check(group, client, number)
            if not 0 <= step < STEPS:
                raise Refused(f"steps are 0 to {STEPS - 1}, not {step}")
            if step and len(group["sent"][step - 1]) < len(group["members"]):
                raise Refused(f"step {step - 1} is not over yet")
            if client in group["sent"][step]:
                if state.get([place]) != [body]:
                    raise Refused(f"{client} has already sent another message in step {step}")
                return
            if self._is_late(group, step):
                raise Refused(f"step {step} of meeting {number} is over")
            group["begun"][step] = group["begun"][step] or self.clock()
            group["sent"][step].append(client)
            state.set({place: body})
            _keep(state, group)

        self.store.transact(work)

    def get(self, client: str, number: int, step: int) -> dict[str, bytes] | None:
        """Return everyone's messages in a step, or None while more may come. Raises Refused where one is missing."""

        def work(state: Transaction) -> dict[str, bytes] | None:
            group = _find(state)
            self._check(group, client, number)
            names = sorted(group["sent"][step])
            if missing := sorted(group["members"].keys() - set(names)):
                if self._is_late(group, step):
                    raise Refused(
                        f"{missing[0]} sent nothing in step {step} of meeting {number}, which has no total: the next "
                        "one may"
                    )
                return None
            return {
                name: body or b"" for name, body in zip(names, state.get(_places(number, step, names)), strict=True)
            }

        return self.store.read(work)

    def has_met(self) -> bool:
        """Whether there was a meeting."""
        return bool(self.store.read(_find)["members"])

    def ready(self) -> list[str]:
        """Return the names of those who wait for a meeting, and need no more company."""
        return sorted(self._able(self.store.read(_find)))

    def keys(self) -> dict[str, str]:
        """Return the public keys of all who have been there."""
        return self.store.read(_find)["keys"]

    def faults(self) -> dict[str, str]:
        """Return the members that have left themselves out, and why."""
        return {name: why for name, why in self.store.read(_find)["faults"].items() if why}

    def find_faults(self) -> dict[str, str]:
        """Values that cannot be read: key -> fault. Messages are opaque."""

        def decode(key: str, kept: bytes) -> None:
            if key == GROUP:
                json.loads(kept)

        return self.store.read(lambda state: find_faults(state, decode))

    def _check(self, group: _Group, client: str, number: int) -> None:
        if number != group["number"] or client not in group["members"]:
            raise Refused(f"meeting {number} is over, or continued without {client}")

    def _is_late(self, group: _Group, step: int) -> bool:
        return bool(group["begun"][step]) and abs(self.clock() - group["begun"][step]) >= group["patience"]

    def _propose(self, state: Transaction, group: _Group, invited: Collection[str], patience: float) -> None:
        """Let those who are ready meet, if they are enough and nobody else is waited for."""
        now, awaited = self.clock(), set(invited)
        if group["members"]:
            awaited = set(group["members"])
            for step, names in enumerate(group["sent"]):
                if len(names) < len(group["members"]):
                    awaited = set(names) if self._is_late(group, step) else awaited
                    break
            else:
                group["behind"] = group["behind"] if group["base"] else sorted(group["members"])
        ready = self._able(group)
        if len(ready) < self.fewest:
            group["since"] = None
            return
        since = group["since"] = now if group["since"] is None else group["since"]
        if not awaited <= ready.keys() and abs(now - since) < patience:
            return
        chosen = {name: group["ready"].pop(name) for name in sorted(ready)[:MOST_MEMBERS]}
        bases, behind = {each.base for each in chosen.values()}, set(group["behind"])
        for step, names in enumerate(group["sent"]):
            state.delete(_places(group["number"], step, names))
        group["base"] = min(bases) if len(bases) == 1 and chosen.keys() < behind else ""
        group["newcomers"] = sorted(chosen.keys() - behind) if behind else []
        group["members"], group["since"] = {name: each.call for name, each in chosen.items()}, None
        group["number"], group["patience"] = group["number"] + 1, patience
        group["sent"], group["begun"] = [[] for _ in range(STEPS)], [0.0] * STEPS

    def _able(self, group: _Group) -> dict[str, Waiting]:
        """Return those of the present who can meet: newcomers only, if they are as many as each of them wants."""
        ready, behind = self._present(group), set(group["behind"])
        for name, each in sorted(ready.items(), key=lambda item: -item[1].company if behind else 0):
            if behind and name not in behind and each.company > len(ready.keys() - behind):
                del ready[name]
        return ready

    def _present(self, group: _Group) -> dict[str, Waiting]:
        now = self.clock()
        return {name: each for name, each in group["ready"].items() if abs(now - each.asked) < AWAY_SECONDS}


def newcomers_behind(own: int, newcomers: int) -> int:
    """Return the samples behind what newcomers to a group add to its total, as one of them sees it."""
    return own * max(1, newcomers - 1)


def _places(number: int, step: int, names: Collection[str]) -> list[str]:
    return [f"{number}/{step}/{name}" for name in names]


def _keep(state: Transaction, group: _Group) -> None:
    state.set({GROUP: json.dumps(group).encode()})


def _find(state: Transaction) -> _Group:
    """Return the group, or that nobody has been there."""
    new: _Group = {
        "keys": {}, "ready": {}, "since": None, "number": 0, "members": {}, "patience": 0.0, "sent": [], "begun": [],
        "newcomers": [], "base": "", "behind": [], "faults": {},
    }  # fmt: skip
    (kept,) = state.get([GROUP])
    if kept is None:
        return new
    group: Any = decoded(GROUP, json.loads, kept)
    return {**new, **group, "ready": {name: Waiting(*each) for name, each in group["ready"].items()}}
