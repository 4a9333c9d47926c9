"""A member of a masked group: it meets the others at a relay, and only the total of what they share can be read.

A key is trusted when it is first seen, and kept: another one later is refused. In each meeting a masked sum of its own
tells how many have each class and how many samples they have together, before anything else leaves: who spoils sums
is named there. What a single member shares cannot be read, so that observations cannot be shared, and others can check
a total only.

Totals of changing sub-groups would tell single parts, as soon as they tell who is wrong. So each member compares its
first part with the total of the others, as clients of a relay compare each other's (`board.votes`). Whose rows belong
to other classes, or are unlike, leaves itself out and says so: a mistake names itself. If more than a third of the
members find others unlike them, one of these lies, or they have nothing in common: then nothing more is shared.
"""

import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from repshare.board.votes import begins, find_difference, sketch
from repshare.errors import ConfigError, LeftOut, Malformed, Refused, Unreachable
from repshare.exchange import Exchange, Traffic
from repshare.exchange.http import REPLY_LIMIT, Reply
from repshare.exchange.keys import Key, Trust, parse_public
from repshare.exchange.relay import BYTES, RelayExchange
from repshare.files import write_atomically
from repshare.secure.masking import Group, Member, Vector, add_up
from repshare.secure.meetings import STEPS, Called, newcomers_behind
from repshare.sharing import fixed_point, wire
from repshare.sharing.fixed_point import Totals
from repshare.sharing.representations import Integers, Release, Teacher, Wants, nothing
from repshare.sharing.task import Task

SIGNING_KEY, MEMBERS, KNOWN = "signing.key", "group.jsonl", "group.total"
KEYS, COUNTS, RELEASES = range(STEPS)
POLL_SECONDS = 0.5
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.5
QUIET_SECONDS, REMIND_SECONDS = 5.0, 60.0  # waiting is told after the first, and again after the second


class RelayMeetings:
    """The meetings of a relay's task: see `Meetings`."""

    def __init__(self, relay: RelayExchange) -> None:
        """Meet through a relay.

        Args:
            relay: The relay, with the member's token.
        """
        self.relay = relay

    def call(self, client: str, key: str, call: str, base: str, company: int, fault: str, *, patience: float) -> Called:
        """Say that a member is ready, and return whom it meets."""
        asked = {"key": key, "call": call, "base": base, "company": company, "fault": fault, "patience": patience}
        reply = self._ask("PUT", f"/{quote(client, safe='')}", query=asked)
        return Called(
            reply.value("number", int), reply.value("members", dict), reply.value("ready", list),
            reply.value("newcomers", list), reply.value("base", str), reply.value("faults", dict),
        )  # fmt: skip

    def put(self, client: str, number: int, step: int, body: bytes) -> None:
        """Send a message in a step."""
        self._ask("PUT", f"/{quote(client, safe='')}/{number}/{step}", body=body, headers={"Content-Type": BYTES})

    def get(self, client: str, number: int, step: int) -> dict[str, bytes] | None:
        """Return everyone's messages in a step, or None while it is not over."""
        reply = self._ask("GET", f"/{quote(client, safe='')}/{number}/{step}", limit=REPLY_LIMIT)
        if reply.status == 204:
            return None
        reply.check_type(BYTES)
        return wire.decode_items(reply.body)

    def ready(self) -> list[str]:
        """Return the names of those who wait for a meeting."""
        return list(self._ask("GET", "").value("ready", list))

    def _ask(self, method: str, path: str, **options: Any) -> Reply:
        return self.relay.connection.ask(method, f"{self.relay.task_path()}/group{path}", **options)


class Known(NamedTuple):
    """A total that a member knows."""

    own: Vector  # (rows, columns + …)  its own part of it
    total: Vector
    members: int  # behind it

    @property
    def name(self) -> str:
        """What tells it from other totals."""
        return hashlib.sha256(b"%d\0" % self.members + self.total.astype("<i8").tobytes()).hexdigest()


class Meeting(NamedTuple):
    """A meeting that has begun."""

    number: int
    group: Group
    member: Member
    announced: Mapping[str, bytes]


class GroupExchange(Exchange):
    """A member's connection to a group that learns only the total of its class sums. Publishing waits for the group."""

    hides_single_releases = True

    def __init__(
        self,
        task: Task,
        name: str,
        meetings: RelayMeetings,
        *,
        task_name: str,
        folder: Path,
        own: Integers,
        company: int,
        patience: float,
        tell: Callable[[str], None],
    ) -> None:
        """Make this member's key, if it has none. Nothing is sent yet.

        Args:
            task: What the members agree on.
            name: This client's name.
            meetings: Where the group meets.
            task_name: The task's name.
            folder: Where its key, the others' keys and the last total are kept.
            own: The samples of each class that it shares (C,).
            company: Newcomers that must join a group at once with this one, and be so many with it.
            patience: Seconds to wait for others: for those who are missing, and in each step of a meeting.
            tell: Is given what the user should know.
        """
        self.task, self.name, self.meetings, self.task_name = task, name, meetings, task_name
        self.own, self.company, self.patience, self.tell = own, company, patience, tell
        if not (path := folder / SIGNING_KEY).exists():
            Key.new().write(path)
        self.key, self.trust, self._file = Key.read(path), Trust(folder / MEMBERS, first_use=True), folder / KNOWN
        self.members: Mapping[str, bytes] = {}
        self.known = self._recall()  # the last total
        self.base: Known | None = None  # the total whose changes are added up; None: the sum is a total itself
        self._meeting: Meeting | None = None
        self._samples: int | None = None  # all members' samples, known from a sum
        self._fault: str | None = None  # why this member leaves itself out
        self._faults: Mapping[str, str] = {}  # faults that other members report of themselves
        self._newcomers = 0  # with this member among them; 0: it is behind the total before, or there was none
        self._last = 0  # the last meeting that a release was masked for, never twice in one
        self._has_left = False  # whether the last release was sent, masked
        self._sent = self._received = 0  # bytes of messages
        # Other members behind the last total, and behind the one that was collected last; None: not known.
        self._others: int | None = None if self.known else 0
        self._collected = self._others
        self._renew()

    def gather(self) -> bool:
        """Ask whom to meet. Returns whether that is known: `publish` meets them then, once."""
        if self._meeting is not None:
            return True
        base = self.known.name if self.known else ""
        asked = self.key.public.hex(), self._call, base, self.company, self._fault or ""
        try:
            called = self.meetings.call(self.name, *asked, patience=self.patience)
        except Refused as error:
            raise ConfigError(str(error)) from error
        if not called.members:
            self._wait(called.ready)
            return False
        self._renew()
        self._admit({str(name): parse_public(str(key)) for name, key in called.members.items()})
        self._tell_faults(called.faults)
        if called.base not in ("", base):
            raise Malformed("the relay continues from a total that was not the last one")
        if called.number <= self._last:
            raise Refused(f"this would be meeting {called.number}, but {self.name} has taken part in it")
        self.base = self.known if called.base else None
        self._newcomers = len(called.newcomers) if self.name in called.newcomers else 0
        self._begin(called.number)
        return True

    def publish(self, body: bytes) -> None:
        """Meet, and add this release's class sums to the group's; done when the total is known, or cannot be."""
        release = wire.decode_release(body)
        if len(release.observations.labels):
            raise Refused("observations are one client's own and cannot be summed up: share none (m_up = 0)")
        self._has_left = False
        while not self.gather():
            time.sleep(POLL_SECONDS)
        meeting, self._meeting = self._meeting, None
        if self.task.space is None:  # in a space, the learner leaves its samples out
            shown = ~np.isin(release.means.labels, list(self.hidden))
            release = release._replace(means=release.means.part(shown))
        self.task.check(release)
        is_first = self.task.format == "parts" and len(release.means.labels) > 0 and begins(release)
        if is_first and self.known is not None:
            self._fault = self._compare(release, self.known)
        own = Totals.zeros(self.task.rows, self.task.columns)
        if self._fault is None:
            own.add(release.means, +1, weighted=self.task.weighted)
        base = self.base or Known(np.zeros_like(own.numbers), np.zeros_like(own.numbers), len(self.members))
        variance = self.task.layout.variance(release)  # the share of each: a total is private only if all add theirs
        added = self._sum_up(meeting, RELEASES, ["releases", variance], (own.numbers - base.own).ravel())
        known = Known(own.numbers, base.total + added.reshape(own.numbers.shape), base.members)
        if fault := find_fault(Totals(known.total - known.own), known.members - 1, self.task):
            raise Refused(f"the total of the last meeting is not used: the others have {fault}. A member has lied")
        self.known, self._others = known, self._count_others(known)
        kept = {"own": known.own.tobytes(), "total": known.total.tobytes(), "members": b"%d" % known.members}
        write_atomically(self._file, wire.encode_items(kept), private=True)
        if self._fault is not None:
            raise LeftOut(self._fault)
        if is_first:
            self._fault = self._compare(release, known)

    def collect(self, wants: Wants) -> bytes:
        """Return the means behind the last total, of classes that others have, too."""
        self._collected, none = self._others, nothing(self.task.columns)
        if self.known is None:
            return wire.encode_teacher(Teacher(none, none, self.task.space), wants.precision)
        others = Totals(self.known.total - self.known.own)
        taught = np.flatnonzero(others.clients > 0).tolist()
        means = Totals(self.known.total).means(taught)
        return wire.encode_teacher(Teacher(means, none, self.task.space), wants.precision)

    def others(self) -> int | None:
        """Return the number of other members in the total that was collected last; None, if not known."""
        return self._collected

    def behind(self, own: int) -> float:
        """Return the samples behind the least difference of totals that anybody sees; ∞: there are no members yet."""
        if not self.members:
            return math.inf
        everyone = own * len(self.members) if self._samples is None else self._samples
        together = everyone * (len(self.members) - 1) / len(self.members)
        return min(together, newcomers_behind(own, self._newcomers)) if self._newcomers else together

    def wait_for_more(self) -> None:
        """Meet nobody yet: `gather` asks again whom to meet."""
        self._meeting = None

    def has_begun(self) -> bool:
        """Whether another member waits for a meeting."""
        return bool(self.meetings.ready())

    def may_have_left(self) -> bool:
        """Whether the last release was sent, masked."""
        return self._has_left

    def traffic(self) -> Traffic:
        """Return the bytes of messages in meetings."""
        return Traffic(self._sent, self._received)

    def withdraw(self) -> None:
        """Do nothing: a total cannot be changed afterwards, and none is kept."""

    def _renew(self) -> None:
        self._call, self._remind = secrets.token_hex(8), time.monotonic() + QUIET_SECONDS

    def _wait(self, ready: list[str]) -> None:
        if time.monotonic() >= self._remind:
            self._remind, there = time.monotonic() + REMIND_SECONDS, ", ".join(map(str, ready))
            self.tell(f"waiting for another member (here: {there}; everything is saved; Ctrl-C stops)")

    def _admit(self, members: Mapping[str, bytes]) -> None:
        """Take these as the members, whose keys are what they were."""
        if members.get(self.name) != self.key.public or len(members) < self.task.group_members:
            raise Malformed(f"the relay proposes {len(members)} members, or another key of {self.name}")
        known = dict(self.trust)
        for name, key in members.items():
            try:
                self.trust.admit(name, key)
            except Refused as error:
                raise ConfigError(
                    f"the relay says that a member has another key: {error}. Do so only if {name} tells you that the "
                    f"new key is its own. The trust file is {self.trust.path}"
                ) from error
        if members != self.members:
            self.tell(f"masked group of {', '.join(members)}: key code {code(members)}")
            if members.keys() - known.keys() - {self.name}:
                self.tell("some keys are new, and trusted from now on: compare the key code with the other members")
        self.members = members

    def _begin(self, number: int) -> None:
        """Announce a key, and add up, masked, how many members have each class, and their samples."""
        task = self.task
        agreed = [task.rows, task.columns, float(task.norm_bound), task.minimum_count, task.weighted, task.space]
        # All that decides what members add up: else a relay could give each another description.
        session = [self.task_name, number, *agreed, task.class_members, self.base.name if self.base else ""]
        group = Group(self.members, json.dumps(session))
        member = Member(group, self.name, self.key)
        meeting = Meeting(number, group, member, self._meet(number, KEYS, member.announce()))
        counted = np.concatenate([self.own > 0, [self.own.sum(), 0]]).astype(np.int64)
        if self._fault is not None:
            counted = np.append(np.zeros(len(counted) - 1, np.int64), 1)
        total = self._sum_up(meeting, COUNTS, ["counts"], counted)
        others, has, differ = total - counted, total[:-2], int(total[-1])
        self._samples = int(total[-2])
        if others.min() < 0 or max(others[:-2].max(), others[-1]) >= len(self.members):
            raise Refused("members cannot have as many classes or samples as they say together. A member has lied")
        if 3 * differ > len(self.members):
            raise Refused(
                f"{differ} of {len(self.members)} members find the total of the others unlike their own samples: one "
                "of these lies, or their labels and inputs have nothing in common. Nothing is shared"
            )
        few = (has > 0) & (has < task.class_members)
        self.hidden, self._meeting = frozenset(np.flatnonzero(few).tolist()), meeting

    def _compare(self, release: Release, known: Known) -> str | None:
        """Why this member's first part is unlike the total of the others, if it is."""
        others = Totals(known.total - known.own)
        means = others.means(np.flatnonzero(others.clients > 0).tolist())
        if len(means.labels) < self.task.rows:
            return None
        total = release._replace(means=means)
        return find_difference(self.task, sketch(self.task, release), sketch(self.task, total))

    def _tell_faults(self, faults: Mapping[str, str]) -> None:
        for name, why in faults.items():
            if name != self.name and self._faults.get(name) != why and f"{name}{why}".isprintable():
                self.tell(f"{name} has left itself out: {why}"[:500])
        self._faults = faults

    def _sum_up(self, meeting: Meeting | None, step: int, what: list[Any], vector: Vector) -> Vector:
        """Return the total of all members' vectors."""
        if meeting is None:
            raise Refused("there is no meeting")
        number, named = meeting.number, json.dumps(what)
        body = meeting.member.mask(meeting.announced, named, vector)
        if step == RELEASES:
            self._last, self._has_left = number, True
        return add_up(meeting.group, meeting.announced, self._meet(number, step, body), named, len(vector))

    def _meet(self, number: int, step: int, body: bytes) -> dict[str, bytes]:
        """Send a message, and wait for those of the others."""
        self.meetings.put(self.name, number, step, body)
        self._sent += len(body)
        until, pause = time.monotonic() + self.patience + STEPS, PAUSE_SECONDS
        while (said := self.meetings.get(self.name, number, step)) is None:
            if time.monotonic() > until:
                raise Unreachable(f"step {step} of meeting {number} does not end")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        self._received += sum(map(len, said.values()))
        return said

    def _count_others(self, known: Known) -> int:
        return int(Totals(known.total - known.own).clients.max(initial=0))

    def _recall(self) -> Known | None:
        """Return the last total of an earlier process."""
        if not self._file.exists():
            return None
        kept, rows = wire.decode_items(self._file.read_bytes()), self.task.rows
        own, total = (np.frombuffer(kept[name], np.int64).reshape(rows, -1) for name in ("own", "total"))
        return Known(own, total, int(kept["members"]))


def code(members: Mapping[str, bytes]) -> str:
    """A code that is the same for all members who were told the same keys."""
    said = json.dumps(sorted((name, key.hex()) for name, key in members.items())).encode()
    digest = hashlib.sha256(b"repshare group\0" + said).hexdigest()[:32]
    return " ".join(digest[at : at + 4] for at in range(0, 32, 4))


def find_fault(others: Totals, members: int, task: Task) -> str | None:
    """The reason why these cannot be the sums of `members` members' releases of the task; or None.

    A single member's vector cannot be read, so this is the only check against a false one.
    """
    clients, samples, weights = others.clients, others.samples, others.weights  # (C,) each
    lengths = np.linalg.norm(others.vectors.astype(np.float64), axis=1) * fixed_point.STEP  # (C,)
    longest = (task.norm_bound + fixed_point.STEP * task.columns) * (1 + 1e-9)  # each number is rounded to a step
    faults = {
        f"{{clients}} clients, of {members},": (clients < 0) | (clients > members),
        "{samples} samples of {clients} clients": (samples < clients * task.fewest)
        | (samples > clients * wire.MOST_COUNTED),
        "a weight of {weights} for {samples} samples": weights != (samples if task.weighted else clients),
        "a sum of length {lengths:.3g} for a weight of {weights}": lengths > weights * longest,
    }
    for text, wrong in faults.items():
        for label in np.flatnonzero(wrong)[:1].tolist():
            rows = {"clients": clients, "samples": samples, "weights": weights, "lengths": lengths}
            return text.format(**{name: row[label] for name, row in rows.items()}) + f" in class {label}"
    return None
