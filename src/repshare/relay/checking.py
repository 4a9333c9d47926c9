"""All that a relay keeps: what of it is damaged, and repairing it."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from repshare.errors import Damaged
from repshare.relay.auth import Access
from repshare.relay.tasks import OpenTask, Tasks
from repshare.stores import Database

Faults = dict[str, str]  # key -> what is wrong with it


class Finding(NamedTuple):
    """A stored value that is damaged, or does not fit the others."""

    where: str
    key: str
    reason: str
    repaired: bool


def check_all(database: Database, *, repair: bool) -> Iterator[Finding]:
    """Yield everything that is damaged."""
    tasks, access = Tasks(database), Access(database)
    yield from _check("tasks", tasks.find_faults, tasks.repair, repair=repair)
    yield from _check("tokens", access.find_faults, lambda _: access.repair(), repair=repair)
    for entry in tasks.entries():
        yield from _check_task(tasks.get(entry.name), repair=repair)


def _check_task(opened: OpenTask, *, repair: bool) -> Iterator[Finding]:
    name, board, meetings = opened.entry.name, opened.board, opened.meetings.store
    yield from _check(f"task {name}", board.find_faults, board.store.heal, repair=repair)
    yield from _check(f"meetings of {name}", meetings.find_faults, meetings.heal, repair=repair)
    yield from _check(f"page of {name}", opened.notes.find_faults, opened.notes.heal, repair=repair)


def _check(
    where: str, find_faults: Callable[[], Faults], heal: Callable[[Damaged], object], *, repair: bool
) -> Iterator[Finding]:
    faults = find_faults()
    if faults and repair:
        heal(Damaged(*next(iter(faults.items()))))
    left = find_faults() if faults and repair else faults
    for key, reason in sorted(faults.items()):
        yield Finding(where, key, reason, key not in left)
