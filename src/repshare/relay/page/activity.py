"""A task's clients as the page shows them: when each was last seen, its traffic, and what it chose to report.

Traffic is counted in memory, so that fetching a teacher does not write, and stored about once a second:

seen/CLIENT     an Activity
report/CLIENT   its last report
traffic         bytes up and down of all clients that ever were
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from repshare.stores import Store, Transaction, decoded


@dataclass
class Activity:
    """When a client was last seen, and the bytes of its releases and teachers."""

    last: float = 0.0  # seconds since 1970
    up: int = 0
    down: int = 0


class ActivityRecorder:
    """The activity since the store was last updated. Used from one event loop."""

    def __init__(self, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._pending: dict[str, dict[str, Activity]] = {}  # by task and client

    def note(self, task: str, client: str, *, up: int = 0, down: int = 0) -> None:
        """Count a request of a client."""
        recent = self._pending.setdefault(task, defaultdict(Activity))[client]
        recent.last = self._clock()
        recent.up += up
        recent.down += down

    def take(self) -> dict[str, dict[str, Activity]]:
        """Return the activity by task and client, and forget it."""
        taken, self._pending = self._pending, {}
        return taken


def flush(store: Store, recent: Mapping[str, Activity]) -> None:
    """Add recent activity to the stored. Clients that never published leave no trace: anyone may ask under any name."""

    def work(state: Transaction) -> None:
        kept = state.get(["traffic", *(f"seen/{client}" for client in recent)])
        traffic, written = _decode("traffic", kept[0]), dict[str, bytes]()
        for (client, new), value in zip(recent.items(), kept[1:], strict=True):
            if value is None and not new.up:
                continue
            key = f"seen/{client}"
            before = _decode(key, value)
            written[key] = _encode(Activity(new.last, before.up + new.up, before.down + new.down))
            traffic = Activity(new.last, traffic.up + new.up, traffic.down + new.down)
        if written:
            state.set({**written, "traffic": _encode(traffic)})

    store.transact(work)


def record(store: Store, client: str, report: Mapping[str, Any]) -> None:
    """Store a client's report in place of its last one."""
    store.transact(lambda state: state.set({f"report/{client}": json.dumps(report).encode()}))


def forget(store: Store, clients: Collection[str]) -> None:
    """Remove all that is stored of these clients."""
    store.transact(lambda state: state.delete([f"{kind}/{each}" for kind in ("seen", "report") for each in clients]))


def read_activity(
    store: Store, clients: Sequence[str]
) -> tuple[Activity, dict[str, Activity], dict[str, dict[str, Any]]]:
    """The traffic of all clients that ever were; the activity of each of these, where there is any; their reports."""
    keys = ["traffic", *(f"{kind}/{client}" for client in clients for kind in ("seen", "report"))]
    kept = dict(zip(keys, store.read(lambda state: state.get(keys)), strict=True))
    seen = {client: _decode(key, kept[key]) for client in clients if kept[key := f"seen/{client}"] is not None}
    reports = {client: decoded(key := f"report/{client}", json.loads, kept[key] or b"{}") for client in clients}
    return _decode("traffic", kept["traffic"]), seen, reports


def check_value(key: str, kept: bytes) -> None:
    """Raise Damaged if a stored value cannot be read."""
    if key.startswith("report/"):
        decoded(key, json.loads, kept)
    else:
        _decode(key, kept)


def _encode(activity: Activity) -> bytes:
    return json.dumps(asdict(activity)).encode()


def _decode(key: str, kept: bytes | None) -> Activity:
    return decoded(key, lambda: Activity(**json.loads(kept))) if kept is not None else Activity()
