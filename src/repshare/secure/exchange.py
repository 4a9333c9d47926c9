"""Class means through secure sums: a fixed group meets once a round, and only the total can be read by anyone.

A total still tells of a class that one or two members share: see lab/notebook/secure-sums.md, and the warning here.
"""

import hashlib
import json
import logging
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import numpy as np

from repshare.errors import Refused, Unreachable
from repshare.exchange import Exchange, Traffic
from repshare.exchange.http import REPLY_LIMIT, Reply
from repshare.exchange.keys import Key
from repshare.exchange.relay import BYTES, RelayExchange
from repshare.files import write_atomically
from repshare.secure.masking import Group, Member, Vector, add_up
from repshare.secure.meetings import STEPS, Meetings
from repshare.sharing import fixed_point, wire
from repshare.sharing.fixed_point import Totals
from repshare.sharing.representations import Teacher, Wants, nothing
from repshare.sharing.task import Task

log = logging.getLogger("repshare.secure")

PATIENCE_SECONDS = 60.0  # for each step, from the first who takes it
FEWEST = 3  # members who share a class, for a total to hide one's mean from the others
PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.02, 0.5


class RelayMeetings:
    """The meetings of a relay's task: see `Meetings`."""

    def __init__(self, relay: RelayExchange) -> None:
        """Prepare to meet at a relay.

        Args:
            relay: This member's connection to the relay.
        """
        self.relay = relay

    def number(self, members: Sequence[str]) -> int:
        """Return the number of the group's meeting that can still be joined."""
        return int(self._next(members).value("number", int))

    def begun(self, members: Sequence[str]) -> bool:
        """Whether some member has begun that meeting."""
        return bool(self._next(members).value("begun", bool))

    def put(self, members: Sequence[str], number: int, step: int, client: str, body: bytes, patience: float) -> None:
        """Send a message in a step."""
        query = {"members": members, "patience": patience}
        path = f"/{number}/{step}/clients/{quote(client, safe='')}"
        self._ask("PUT", path, query, body=body, headers={"Content-Type": BYTES})

    def get(self, members: Sequence[str], number: int, step: int) -> dict[str, bytes] | None:
        """Return everyone's messages in a step, or None while it is not over."""
        query = {"members": members, **self.relay.identity}
        reply = self._ask("GET", f"/{number}/{step}", query, limit=REPLY_LIMIT)
        if reply.status == 204:
            return None
        reply.check_type(BYTES)
        return wire.decode_items(reply.body)

    def _next(self, members: Sequence[str]) -> Reply:
        return self._ask("GET", "", {"members": members, **self.relay.identity})

    def _ask(self, method: str, path: str, query: Mapping[str, Any], **options: Any) -> Reply:
        return self.relay.connection.ask(method, f"{self.relay.task_path()}/meetings{path}", query=query, **options)


class Known(NamedTuple):
    """A total that a member knows."""

    own: Vector  # (rows, columns + …)  its own part of it
    total: Vector
    members: int  # behind it

    @property
    def name(self) -> str:
        """What tells it from other totals."""
        return hashlib.sha256(b"%d\0" % self.members + self.total.astype("<i8").tobytes()).hexdigest()


class Together(NamedTuple):
    """A group, as far as it tells how many samples stand behind its totals."""

    members: int
    required: int
    """Members that must take part in a sum."""
    samples: int | None = None
    """Of all members. Default: as many of each as this client's."""

    def behind(self, own: int) -> float:
        """Return the samples behind a total less what one member has of it, as if all members had as many.

        Where not all must take part, the difference of two totals may be one member's.
        """
        if self.required < self.members:
            return own
        everyone = own * self.members if self.samples is None else self.samples
        return everyone * (self.members - 1) / self.members


class SecureExchange(Exchange):
    """A client's connection to a group that learns only the total of its class means. Publishing waits for the group.

    Observations are averages of one client's samples, which no sum can hide: a release must have none (M↑ = 0).
    """

    hides_single_releases = True

    def __init__(
        self,
        task: Task,
        name: str,
        meetings: Meetings | RelayMeetings,
        *,
        task_name: str,
        key: Key,
        members: Mapping[str, bytes],
        threshold: int = 0,
        patience: float = PATIENCE_SECONDS,
    ) -> None:
        """Create the exchange; nothing is sent yet.

        Args:
            task: What the members agree on.
            name: This client's name.
            meetings: Where the group meets: `RelayMeetings`, or in one process `Meetings`, the same for all members.
            task_name: The task's name.
            key: This client's key.
            members: Names and public keys of all members, including this client, the same for all.
            threshold: Number of members that must take part in a sum. Default: more than two thirds.
            patience: Seconds until a step ends without those who are missing, from its first message on.
        """
        self.task, self.name, self.meetings, self.key, self.members = task, name, meetings, key, members
        self.task_name, self.threshold, self.patience = task_name, threshold, patience
        self._has_left = False  # whether the vector of the last release was sent, masked
        self._last: dict[frozenset[str], int] = {}  # the last meeting in which a vector was masked, never twice in one
        self.known: Known | None = None  # the last total
        self.base: Known | None = None  # the total whose changes are added up; None: the sum is a total itself
        if members:
            Member(self._group(0), name, key)  # so that a mistake is found before the first round
        self._warned: set[int] = set()
        self._sent = self._received = 0  # bytes of messages in meetings
        self._teacher: Teacher | None = None  # none: the group has not met since this process began
        self._total_file: Path | None = None
        # Other members behind the last total, and behind the one that was collected last; None: not known.
        self._others: int | None = 0
        self._collected: int | None = 0
        self._samples: int | None = None  # of all members, once a total has told

    def keep_in(self, file: Path) -> None:
        """Keep the last total in a file, so that a new process of this member continues from it.

        Args:
            file: The file. It need not exist yet.
        """
        self._total_file = file

    def publish(self, body: bytes) -> None:
        """Add this release's class sums to the group's; done when the total is known, or cannot be."""
        release = wire.decode_release(body)
        self.task.check(release)
        if len(release.observations.labels):
            raise Refused("observations are one client's own and cannot be summed up: share none (m_up = 0)")
        self._has_left = False
        own = Totals.zeros(self.task.rows, self.task.columns)
        own.add(release.means, +1, weighted=self.task.weighted)
        number, base = self._number(), self.base or Known(np.zeros_like(own.numbers), np.zeros_like(own.numbers), 0)
        total, present = self._sum_up(
            self._group(number, self.task.layout.variance(release)), number, (own.numbers - base.own).ravel()
        )
        totals, present = Totals(base.total + total.reshape(own.numbers.shape)), base.members or present
        others = Totals(totals.numbers - own.numbers)
        if fault := find_fault(others, present - 1, self.task):
            raise Refused(f"the total of meeting {number} is not used: the others have {fault}. A member has lied")
        self._warn_of_few(own, totals)
        self.known = Known(own.numbers, totals.numbers, present)
        taught = np.flatnonzero(others.clients > 0).tolist()
        self._teacher = Teacher(totals.means(taught), nothing(self.task.columns), self.task.space)
        self._others = int(others.clients.max(initial=0))
        if self.task.format != "sums":
            self._samples = int(totals.samples.max(initial=0))
        if self._total_file is not None:
            write_atomically(self._total_file, wire.encode_teacher(self._teacher), private=True)

    def rehearse(self) -> None:
        """Add up zeros with the other members: who spoils sums is named before a release is charged, and leaves."""
        number, zeros = self._number(), Totals.zeros(self.task.rows, self.task.columns).numbers.ravel()
        try:
            total, _ = self._sum_up(self._group(number, rehearsal=True), number, zeros)
        finally:
            self._has_left = False
        if total.any():
            raise Refused(f"the total of meeting {number}, a rehearsal, is not zero. A member has lied")

    def collect(self, wants: Wants) -> bytes:
        """Return the means behind the last total, of classes that others have, too."""
        teacher, self._collected = self._teacher or self._recall(), self._others
        return wire.encode_teacher(teacher, wants.precision)

    def others(self) -> int | None:
        """Return the number of other members in the total that was collected last; None, if not known."""
        return self._collected

    def behind(self, own: int) -> float:
        """Return the samples behind the least difference of totals that anybody sees."""
        return Together(len(self.members), self.required, self._samples).behind(own)

    @property
    def required(self) -> int:
        """The number of members that must take part in a sum."""
        return self._group(0).threshold

    def has_begun(self) -> bool:
        """Whether another member has begun a meeting, and waits."""
        return self.meetings.begun(tuple(self.members))

    def may_have_left(self) -> bool:
        """Whether the vector of the last release was sent, masked."""
        return self._has_left

    def traffic(self) -> Traffic:
        """Return the bytes of messages in meetings."""
        return Traffic(self._sent, self._received)

    def withdraw(self) -> None:
        """Do nothing: a total cannot be changed afterwards, and none is kept."""

    def _number(self) -> int:
        """Return the number of the next meeting, which this member has not taken part in."""
        number, last = self.meetings.number(tuple(self.members)), self._last.get(frozenset(self.members), 0)
        if number <= last:
            raise Refused(
                f"this would be meeting {number}, but {self.name} has taken part in meeting {last}: if the task "
                "or its relay's database is a new one, all members must start again"
            )
        return number

    def _recall(self) -> Teacher:
        """Return the last total of an earlier process, or one without rows."""
        if self._total_file is not None and self._total_file.exists():
            self._others = None
            return wire.decode_teacher(self._total_file.read_bytes())
        return Teacher(nothing(self.task.columns), nothing(self.task.columns), self.task.space)

    def _warn_of_few(self, own: Totals, totals: Totals) -> None:
        """Warn of this client's classes that a total does not hide. That is known only once there is a total."""
        few = set(np.flatnonzero((own.clients > 0) & (totals.clients < FEWEST)).tolist()) - self._warned
        if few:
            self._warned |= few
            log.warning(
                "classes that fewer than %d members share: %s. What one shares alone is read by all; of two, each "
                "reads the other's. --share-classes leaves classes out",
                FEWEST,
                ", ".join(map(str, sorted(few))),
            )

    def _group(self, number: int, noise: float = 0.0, *, rehearsal: bool = False) -> Group:
        """Bind the sum to all that decides what members add up: else a relay could give each another description."""
        task = self.task
        agreed = [task.rows, task.columns, float(task.norm_bound), task.minimum_count, task.weighted]
        space = [task.space] if task.space else []
        variance = [noise] if noise else []  # the share of each: a total is private only if all add theirs
        base = [self.base.name] if self.base else []
        session = json.dumps([self.task_name, number, *agreed, *space, *variance, *["rehearsal"] * rehearsal, *base])
        return Group(self.members, session, task.totals_size, self.threshold)

    def _sum_up(self, group: Group, number: int, vector: Vector) -> tuple[Vector, int]:
        """Return the total, and the number of members whose vectors are in it."""
        member = Member(group, self.name, self.key)
        announced = self._meet(number, 0, member.announce())
        self._last[frozenset(self.members)] = number
        body = member.mask(announced, vector)
        self._has_left = True
        masked = self._meet(number, 1, body)
        return add_up(group, announced, masked), len(masked)

    def _meet(self, number: int, step: int, body: bytes) -> dict[str, bytes]:
        """Send a message, and wait for those of the others."""
        members = tuple(self.members)
        self.meetings.put(members, number, step, self.name, body, self.patience)
        self._sent += len(body)
        until, pause = time.monotonic() + self.patience + STEPS, PAUSE_SECONDS
        while (said := self.meetings.get(members, number, step)) is None:
            if time.monotonic() > until:
                raise Unreachable(f"step {step} of meeting {number} does not end")
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        self._received += sum(map(len, said.values()))
        return said


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
