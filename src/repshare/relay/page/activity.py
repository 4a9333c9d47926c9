"""A task's clients as the page shows them: when this relay last saw each, its traffic, and what it chose to report.

Presence and traffic are in memory, so that fetching a teacher writes nothing. Reports are stored:

report/CLIENT   its last report
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from repshare.stores import Store, decoded

MOST_CLIENTS = 100_000  # remembered for a task: without tokens, anyone may ask under any name


@dataclass
class Activity:
    """When a client was last seen, and the bytes of its releases and teachers."""

    last: float = 0.0  # seconds since 1970
    up: int = 0
    down: int = 0


class Presence:
    """The activity of clients since this relay began. Used from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._seen = defaultdict[str, dict[str, Activity]](dict)  # by task and client

    def note(self, task: str, client: str, *, up: int = 0, down: int = 0) -> None:
        """Count a request of a client."""
        seen = self._seen[task]
        if client not in seen and len(seen) >= MOST_CLIENTS:
            seen.clear()
        activity = seen.setdefault(client, Activity())
        activity.last = self._clock()
        activity.up += up
        activity.down += down

    def of(self, task: str) -> dict[str, Activity]:
        """The clients of a task that were seen here."""
        return dict(self._seen[task]) if task in self._seen else {}


def record(store: Store, client: str, report: Mapping[str, Any]) -> None:
    """Store a client's report in place of its last one."""
    store.transact(lambda state: state.set({f"report/{client}": json.dumps(report).encode()}))


def forget(store: Store, clients: Collection[str]) -> None:
    """Remove the reports of these clients."""
    store.transact(lambda state: state.delete([f"report/{client}" for client in clients]))


def read_reports(store: Store, clients: Sequence[str]) -> dict[str, dict[str, Any]]:
    """The last report of each of these clients; an empty one where there is none."""
    keys = [f"report/{client}" for client in clients]
    kept = zip(clients, keys, store.read(lambda state: state.get(keys)), strict=True)
    return {client: decoded(key, json.loads, value or b"{}") for client, key, value in kept}


def check_value(key: str, kept: bytes) -> None:
    """Raise Damaged if a stored value cannot be read."""
    if key.startswith("report/"):  # up to commit 38a6b14d, activity was stored, too
        decoded(key, json.loads, kept)
