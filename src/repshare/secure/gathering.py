"""A member of a masked group that comes together at a relay, anew for each meeting: see `Roll`.

A key is trusted when it is first seen, and kept: another one later is refused. Before members meet who have not met
before, a masked sum of their own tells how many have each class and how many samples they have together.
"""

import hashlib
import json
import math
import secrets
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from urllib.parse import quote

import numpy as np

from repshare.errors import ConfigError, Malformed, Refused
from repshare.exchange.keys import Key, Trust, parse_public
from repshare.exchange.relay import RelayExchange
from repshare.files import write_atomically
from repshare.secure.exchange import Known, RelayMeetings, SecureExchange, Together
from repshare.secure.masking import Group
from repshare.secure.roll import newcomers_behind
from repshare.sharing import wire
from repshare.sharing.representations import Integers
from repshare.sharing.task import Task

SIGNING_KEY, MEMBERS, KNOWN = "signing.key", "group.jsonl", "group.total"
POLL_SECONDS = 0.5
QUIET_SECONDS, REMIND_SECONDS = 5.0, 60.0  # of waiting, before it is told, and told again


class GatheredExchange(SecureExchange):
    """A client's connection to such a group."""

    def __init__(
        self,
        task: Task,
        name: str,
        relay: RelayExchange,
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
            relay: Its connection to the relay.
            task_name: The task's name.
            folder: Where its key, the others' keys and the last total are kept.
            own: The samples of each class that it shares (C,).
            company: Newcomers that must join a group at once with this one, and be so many with it.
            patience: Seconds to wait for others: for those who are missing, and in each step of a meeting.
            tell: Is given what the user should know.
        """
        path, self._total = folder / SIGNING_KEY, folder / KNOWN
        if not path.exists():
            Key.new().write(path)
        key = Key.read(path)
        super().__init__(task, name, RelayMeetings(relay), task_name=task_name, key=key, members={}, patience=patience)
        self.relay, self.own, self.company, self.tell = relay, own, company, tell
        self.trust = Trust(folder / MEMBERS, first_use=True)
        self._newcomers = 0  # with this member among them; 0: it is behind the total before, or there was none
        self._counted = ""  # the code of those who counted their classes last
        self._is_gathered = False
        self._recall_known()
        self._call, self._remind = "", math.inf
        self._renew()

    def gather(self) -> bool:
        """Ask whom to meet. Returns whether that is known: `publish` meets them then, once."""
        if self._is_gathered:
            return True
        base = self.known.name if self.known else ""
        asked = {
            "key": self.key.public.hex(), "call": self._call, "base": base, "company": self.company,
            "patience": self.patience,
        }  # fmt: skip
        path = f"{self.relay.task_path()}/group/{quote(self.name, safe='')}"
        try:
            reply = self.relay.connection.ask("PUT", path, query=asked)
        except Refused as error:
            raise ConfigError(str(error)) from error
        members, newcomers = reply.value("members", dict), reply.value("newcomers", list)
        if not members:
            self._wait(reply.value("ready", list))
            return False
        self._renew()
        self._admit({str(name): parse_public(str(key)) for name, key in members.items()})
        if (told := reply.value("base", str)) not in ("", base):
            raise Malformed("the relay continues from a total that was not the last one")
        self.base = self.known if told else None
        self._newcomers = len(newcomers) if self.name in newcomers else 0
        if self._counted != code(self.members):
            self._count()
        self._is_gathered = True
        return True

    def publish(self, body: bytes) -> None:
        """Meet, and add this release's class sums to the group's."""
        while not self.gather():
            time.sleep(POLL_SECONDS)
        self._is_gathered = False
        if self.task.space is None:  # in a space, the learner leaves its samples out
            release = wire.decode_release(body)
            shown = ~np.isin(release.means.labels, list(self.hidden))
            body = wire.encode_release(release._replace(means=release.means.part(shown)))
        counted, self._counted = self._counted, ""  # after a failure they count again: one may have begun anew
        super().publish(body)
        self._counted = counted
        self._keep_known()

    def rehearse(self) -> None:
        """Add up zeros with those whom this member meets."""
        while not self.gather():
            time.sleep(POLL_SECONDS)
        super().rehearse()

    def wait_for_more(self) -> None:
        """Meet nobody yet: `gather` asks again whom to meet."""
        self._is_gathered = False

    def has_begun(self) -> bool:
        """Whether another member waits for a meeting."""
        return bool(self.relay.connection.ask("GET", f"{self.relay.task_path()}/group").value("ready", list))

    def behind(self, own: int) -> float:
        """Return the samples behind the least difference of totals that anybody sees; ∞: there are no members yet."""
        if not self.members:
            return math.inf
        together = Together(len(self.members), len(self.members), self._samples).behind(own)
        return min(together, newcomers_behind(own, self._newcomers)) if self._newcomers else together

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
        self.members, self.threshold = members, len(members)

    def _count(self) -> None:
        """Add up, masked, how many members have each class, and their samples."""
        number, has = self._number(), (self.own > 0).astype(np.int64)
        session = json.dumps([self.task_name, number, "classes", self.task.classes, self.task.class_members])
        group = Group(self.members, session, len(has) + 1, self.threshold)
        total, _ = self._sum_up(group, number, np.append(has, self.own.sum()))
        self._has_left = False
        others, self._samples = total[:-1] - has, int(total[-1])
        if others.min() < 0 or others.max() >= len(self.members) or total[-1] < self.own.sum():
            raise Refused("members cannot have as many classes or samples as they say together. A member has lied")
        few = (total[:-1] > 0) & (total[:-1] < self.task.class_members)
        self.hidden, self._counted = frozenset(np.flatnonzero(few).tolist()), code(self.members)

    def _keep_known(self) -> None:
        if self.known is not None:
            counted = [self._counted, sorted(self.hidden), self._samples, self.own.tolist(), self.known.members]
            kept = {"own": self.known.own.tobytes(), "total": self.known.total.tobytes()}
            body = wire.encode_items({**kept, "counted": json.dumps(counted).encode()})
            write_atomically(self._total, body, private=True)

    def _recall_known(self) -> None:
        if self._total.exists():
            kept, rows = wire.decode_items(self._total.read_bytes()), self.task.rows
            counted, hidden, samples, owned, members = json.loads(kept["counted"])
            own, total = (np.frombuffer(kept[name], np.int64).reshape(rows, -1) for name in ("own", "total"))
            self.known = Known(own, total, members)
            if owned == self.own.tolist():
                self._counted, self.hidden, self._samples = counted, frozenset(hidden), samples


def code(members: Mapping[str, bytes]) -> str:
    """A code that is the same for all members who were told the same keys."""
    said = json.dumps(sorted((name, key.hex()) for name, key in members.items())).encode()
    digest = hashlib.sha256(b"repshare group\0" + said).hexdigest()[:32]
    return " ".join(digest[at : at + 4] for at in range(0, 32, 4))
