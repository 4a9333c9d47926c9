"""The roll of a task's masked group: who is there, by which key, and who meets next. A relay keeps it.

A member that is ready for a meeting says so, and asks again until it is told whom it meets. The first meeting waits for
all who are invited, a later one for those who stayed to the end of the last one; either for a while only.

A total that lacks a member of the one before would show, by the difference, what that member shares. So those who are
left add up how their parts have changed since the last total that all of them know: the part of the missing one stays.
"""

from collections.abc import Collection
from typing import Any, NamedTuple, TypedDict

from repshare.errors import Refused
from repshare.secure.meetings import MOST_MEMBERS, STEPS, Meetings, read, write
from repshare.stores import Transaction

AWAY_SECONDS = 10.0  # without asking: a member is not ready any more
MOST_KNOWN = 1000  # names with a key
ROLL = "roll"


class Called(NamedTuple):
    """The answer to a member that is ready."""

    members: dict[str, str]
    """Names and public keys of those who meet; none, while more are waited for."""
    ready: list[str]
    """The members that wait."""
    newcomers: list[str]
    """Those of `members` that are not behind the total before; none, if there was none."""
    base: str
    """The total whose changes they add up; empty: they make a new one."""


class Waiting(NamedTuple):
    """A member that waits."""

    call: str
    base: str  # the last total that it knows
    company: int  # newcomers, with it, that it joins with: the difference of two totals is theirs
    asked: float  # when it asked last


class _Roll(TypedDict):
    """The roll, as it is kept."""

    keys: dict[str, str]  # the first one of each name
    ready: dict[str, Waiting]
    since: float | None  # when enough were ready first
    members: dict[str, str]  # who meet, and the call that each waited in
    newcomers: list[str]
    base: str
    behind: list[str]  # whose parts are in the last total


class Roll:
    """The roll of a task, kept with its meetings."""

    def __init__(self, meetings: Meetings, fewest: int) -> None:
        """`fewest`: members of a meeting."""
        self.meetings, self.fewest = meetings, fewest

    def call(
        self, client: str, key: str, call: str, base: str, company: int, *, invited: Collection[str], patience: float
    ) -> Called:
        """Note that a member is ready, and return who meets.

        Args:
            client: The member's name.
            key: Its public key, always the same.
            call: Any word, another one for each meeting. Who asks again with the same word gets the same answer.
            base: The last total that it knows; empty: none.
            company: Newcomers, with it, that must come at once, unless all who meet are new.
            invited: The names of all who may come.
            patience: Seconds to wait for those who are missing, once enough are ready.
        """

        def work(state: Transaction) -> Called:
            roll = _find(state)
            if len(roll["keys"]) >= MOST_KNOWN and client not in roll["keys"]:
                raise Refused(f"{MOST_KNOWN} members are known here already")
            if (known := roll["keys"].setdefault(client, key)) != key:
                raise Refused(
                    f"{client} is known here by the key {known}, not {key}: put its state folder back, or ask the "
                    "operator to invite it under a new name"
                )
            if roll["members"].get(client) != call:
                roll["ready"] = {**self._present(roll), client: Waiting(call, base, company, self.meetings.clock())}
                self._propose(state, roll, invited, patience)
                write(state, {ROLL: roll})
            if roll["members"].get(client) != call:
                return Called({}, sorted(roll["ready"]), [], "")
            keys = {name: roll["keys"][name] for name in sorted(roll["members"])}
            return Called(keys, [], roll["newcomers"], roll["base"])

        return self.meetings.store.transact(work)

    def has_met(self) -> bool:
        """Whether there was a meeting."""
        return self.meetings.store.read(lambda state: bool(_find(state)["members"]))

    def ready(self) -> list[str]:
        """Return the names of those who wait for a meeting, and need no more company."""
        return sorted(self.meetings.store.read(lambda state: self._able(_find(state))))

    def keys(self) -> dict[str, str]:
        """Return the public keys of all who have been there."""
        return self.meetings.store.read(lambda state: _find(state)["keys"])

    def _propose(self, state: Transaction, roll: _Roll, invited: Collection[str], patience: float) -> None:
        """Let those who are ready meet, if they are enough and nobody else is waited for."""
        now, awaited = self.meetings.clock(), set(invited)
        if roll["members"]:
            steps, stayed = self.meetings.progress(state, list(roll["members"]))
            awaited = set(stayed)
            if steps == STEPS and stayed == sorted(roll["members"]) and not roll["base"]:
                roll["behind"] = sorted(roll["members"])
        ready = self._able(roll)
        if len(ready) < self.fewest:
            roll["since"] = None
            return
        since = roll["since"] = now if roll["since"] is None else roll["since"]
        if not awaited <= ready.keys() and abs(now - since) < patience:
            return
        chosen = {name: roll["ready"].pop(name) for name in sorted(ready)[:MOST_MEMBERS]}
        bases, behind = {each.base for each in chosen.values()}, set(roll["behind"])
        roll["base"] = min(bases) if len(bases) == 1 and chosen.keys() < behind else ""
        roll["newcomers"] = sorted(chosen.keys() - behind) if behind else []
        roll["members"], roll["since"] = {name: each.call for name, each in chosen.items()}, None

    def _able(self, roll: _Roll) -> dict[str, Waiting]:
        """Return those of the present who can meet: newcomers only, if they are as many as each of them wants."""
        ready, behind = self._present(roll), set(roll["behind"])
        for name, each in sorted(ready.items(), key=lambda item: -item[1].company if behind else 0):
            if behind and name not in behind and each.company > len(ready.keys() - behind):
                del ready[name]
        return ready

    def _present(self, roll: _Roll) -> dict[str, Waiting]:
        now = self.meetings.clock()
        return {name: each for name, each in roll["ready"].items() if abs(now - each.asked) < AWAY_SECONDS}


def newcomers_behind(own: int, newcomers: int) -> int:
    """Return the samples behind what newcomers to a group add to its total, as one of them sees it."""
    return own * max(1, newcomers - 1)


def _find(state: Transaction) -> _Roll:
    kept: Any = read(state, ROLL)
    if kept is None:
        return {"keys": {}, "ready": {}, "since": None, "members": {}, "newcomers": [], "base": "", "behind": []}
    return {**kept, "ready": {name: Waiting(*each) for name, each in kept["ready"].items()}}  # type: ignore[typeddict-item]
