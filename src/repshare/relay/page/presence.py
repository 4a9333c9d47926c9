"""Presence of clients: when they were last active, and how much they sent and received.

Counted in memory, so that fetching a teacher does not become a write; put into the store about once a second.

seen/CLIENT   last seen, bytes up, bytes down, the usual seconds between its releases
traffic       bytes up and down of all clients that ever were
"""

import struct
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from repshare.relay.page.histories import read_many
from repshare.stores import Store, Transaction

WEIGHT = 0.3  # of the newest interval in the usual one
SIGHT, TRAFFIC = struct.Struct("<dqqdd"), struct.Struct("<qq")  # many are written every second


class Sight(NamedTuple):
    """A client's presence."""

    last: float  # seconds since 1970
    up: int = 0  # bytes
    down: int = 0
    interval: float = 0.0  # seconds between releases; 0: not known yet
    published: float = 0.0  # when the last release came

    def away_after(self, least: float) -> float:
        """Return the silence after which it counts as offline."""
        return max(least, 3 * self.interval)


@dataclass
class _Tally:
    last: float = 0.0
    up: int = 0
    down: int = 0
    published: float = 0.0


class PresenceRecorder:
    """The events since the store was last updated. Used from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._pending: dict[str, dict[str, _Tally]] = {}  # by task and client

    def note(self, task: str, client: str, *, up: int = 0, down: int = 0, published: bool = False) -> None:
        """Note that a client was active."""
        tallies = self._pending.setdefault(task, {})
        tally = tallies.get(client)
        if tally is None:
            tally = tallies[client] = _Tally()
        tally.last = self._clock()
        tally.up += up
        tally.down += down
        if published:
            tally.published = tally.last

    def take(self) -> dict[str, "dict[str, _Tally]"]:
        """Return the events by task, and forget them."""
        taken, self._pending = self._pending, {}
        return taken


def flush(notes: Store, tallies: dict[str, _Tally]) -> None:
    """Add to what is kept. A client that has never published leaves no trace: anyone may ask under any name."""

    def work(state: Transaction) -> None:
        kept = state.get(["traffic", *(_key(client) for client in tallies)])
        up, down = _traffic(kept[0])
        written = {}
        for (client, tally), before in zip(tallies.items(), kept[1:], strict=True):
            if before is not None or tally.published:
                written[_key(client)] = SIGHT.pack(*_add(_decode(before), tally))
                up, down = up + tally.up, down + tally.down
        if written:
            state.set({**written, "traffic": TRAFFIC.pack(up, down)})

    notes.transact(work)


def read_sights(notes: Store, clients: Iterable[str]) -> dict[str, Sight]:
    """Return these clients' presence."""
    return {client: _decode(kept) for client, kept in read_many(notes, "seen", clients).items()}


def read_traffic(notes: Store) -> tuple[int, int]:
    """Return the bytes up and down of all clients."""
    (kept,) = notes.read(lambda state: state.get(["traffic"]))
    return _traffic(kept)


def forget(notes: Store, clients: Iterable[str]) -> None:
    """Remove what is known of these clients; the sums over all stay."""
    notes.transact(lambda state: state.delete([_key(client) for client in clients]))


def _add(before: Sight, tally: _Tally) -> Sight:
    interval = before.interval
    if tally.published and before.published:
        gap = max(tally.published - before.published, 0.0)
        interval = gap if not interval else (1 - WEIGHT) * interval + WEIGHT * gap
    return Sight(
        tally.last,  # also if it is earlier: a clock was wrong
        before.up + tally.up,
        before.down + tally.down,
        interval,
        tally.published or before.published,
    )


def _key(client: str) -> str:
    return f"seen/{client}"


def _decode(kept: bytes | None) -> Sight:
    return Sight(*SIGHT.unpack(kept)) if kept else Sight(0.0)


def _traffic(kept: bytes | None) -> tuple[int, int]:
    up, down = TRAFFIC.unpack(kept) if kept else (0, 0)
    return up, down
