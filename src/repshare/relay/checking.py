"""All that a relay keeps, read once: what of it is damaged."""

from collections.abc import Iterator
from typing import NamedTuple

from repshare.relay.auth import Access
from repshare.relay.page import activity
from repshare.relay.tasks import OpenTask, Tasks
from repshare.stores import Database, find_faults


class Finding(NamedTuple):
    """A stored value that is damaged, or does not fit the others."""

    where: str
    key: str
    reason: str


def check_all(database: Database) -> Iterator[Finding]:
    """Yield everything that is damaged."""
    yield from (Finding("database", "", reason) for reason in database.find_faults())
    tasks, access = Tasks(database), Access(database)
    yield from _name("tasks", tasks.find_faults())
    yield from _name("tokens", access.find_faults())
    for entry in tasks.entries():
        yield from _check_task(tasks.get(entry.name))


def _check_task(opened: OpenTask) -> Iterator[Finding]:
    name = opened.entry.name
    yield from _name(f"task {name}", opened.board.find_faults())
    yield from _name(f"meetings of {name}", opened.meetings.find_faults())
    yield from _name(f"page of {name}", opened.activity.read(lambda state: find_faults(state, activity.check_value)))


def _name(where: str, faults: dict[str, str]) -> Iterator[Finding]:
    return (Finding(where, key, reason) for key, reason in sorted(faults.items()))
