"""Presence of clients: when they were last active, and how much they sent and received.

Counted in memory, so that fetching a teacher does not become a write; put into the store about once a second.

seen/CLIENT   a Presence
traffic       bytes up and down of all clients that ever were
"""

import struct
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass

from repshare.relay.page.histories import read_many
from repshare.stores import Store, Transaction, decoded

WEIGHT = 0.3  # of the newest interval in the usual one
PRESENCE, TRAFFIC = struct.Struct("<dqqdd"), struct.Struct("<qq")  # many are written every second


@dataclass
class Presence:
    """A client's activity: since it joined, or since the store was last updated."""

    last: float = 0.0  # seconds since 1970
    up: int = 0  # bytes
    down: int = 0
    interval: float = 0.0  # usual seconds between releases; 0: not known yet
    published: float = 0.0  # when the last release came; 0: never

    def away_after(self, least: float) -> float:
        """Return the silence after which it counts as offline."""
        return max(least, 3 * self.interval)

    def add(self, recent: "Presence") -> None:
        """Add what happened since."""
        if recent.published and self.published:
            gap = max(recent.published - self.published, 0.0)
            self.interval = (1 - WEIGHT) * self.interval + WEIGHT * gap if self.interval else gap
        self.published = recent.published or self.published
        self.last = recent.last  # also if it is earlier: a clock was wrong
        self.up += recent.up
        self.down += recent.down


class PresenceRecorder:
    """The activity since the store was last updated. Used from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._pending: dict[str, dict[str, Presence]] = {}  # by task and client

    def note(self, task: str, client: str, *, up: int = 0, down: int = 0, published: bool = False) -> None:
        """Note that a client was active."""
        recent = self._pending.setdefault(task, defaultdict(Presence))[client]
        recent.last = self._clock()
        recent.up += up
        recent.down += down
        if published:
            recent.published = recent.last

    def take(self) -> dict[str, dict[str, Presence]]:
        """Return the activity by task and client, and forget it."""
        taken, self._pending = self._pending, {}
        return taken


def flush(notes: Store, recent: dict[str, Presence]) -> None:
    """Add to what is kept. A client that has never published leaves no trace: anyone may ask under any name."""

    def work(state: Transaction) -> None:
        kept = state.get(["traffic", *(f"seen/{client}" for client in recent)])
        up, down = decode_traffic(kept[0])
        written = {}
        for (client, activity), before in zip(recent.items(), kept[1:], strict=True):
            if before is not None or activity.published:
                presence = decode(f"seen/{client}", before)
                presence.add(activity)
                written[f"seen/{client}"] = PRESENCE.pack(*astuple(presence))
                up, down = up + activity.up, down + activity.down
        if written:
            state.set({**written, "traffic": TRAFFIC.pack(up, down)})

    notes.transact(work)


def read_presence(notes: Store, clients: Iterable[str]) -> dict[str, Presence]:
    """Return these clients' presence."""
    return {client: decode(f"seen/{client}", kept) for client, kept in read_many(notes, "seen", clients).items()}


def read_traffic(notes: Store) -> tuple[int, int]:
    """Return the bytes up and down of all clients."""
    (kept,) = notes.read(lambda state: state.get(["traffic"]))
    return decode_traffic(kept)


def decode(key: str, kept: bytes | None) -> Presence:
    """Return a client's presence; that of one who was never there if there is none."""
    return Presence(*decoded(key, PRESENCE.unpack, kept)) if kept else Presence()


def decode_traffic(kept: bytes | None) -> tuple[int, int]:
    """Return the bytes up and down."""
    up, down = decoded("traffic", TRAFFIC.unpack, kept) if kept else (0, 0)
    return up, down
