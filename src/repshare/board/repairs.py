"""Repairs of a board: what is wrong with it, and how it is rebuilt from its releases, of which all else is made.

A release that cannot be read costs its client that release, and other clients nothing. All other damage costs nothing.
"""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from repshare.board import buffers, clock
from repshare.board.buffers import Place, place_key
from repshare.board.state import (
    Books,
    Head,
    queue_key,
    read_head_of,
    read_member,
    read_queued,
    read_release,
    read_rows,
    release_key,
)
from repshare.board.totals import Totals, read_totals
from repshare.errors import Damaged
from repshare.sharing.representations import Release
from repshare.sharing.task import Task
from repshare.stores import Healed, Transaction, decoding, sound


class Survey(NamedTuple):
    """The contents of a board. Its clients are those whose releases can be read."""

    faults: dict[str, str]  # key -> what is wrong with it
    head: Head | None  # None: it cannot be read
    places: dict[str, Place]  # of clients whose rows are all where they should be
    queue: dict[str, int]  # the numbers that clients have in it
    totals: Totals  # of the clients with places
    scattered: list[str]  # the other clients
    lost: list[str]  # who was a client, and has no release that can be read
    keys: set[str]  # of all rows, places and entries in the queue


def survey(task: Task, state: Transaction) -> Survey:
    """Read everything, and compare it."""
    faults, keys = dict[str, str](), set[str]()
    head = _read_head(task, state, faults)
    places = dict(_places(state, faults, keys))
    misplaced = _check_rows(task, state, places, faults, keys)
    queue = _check_queue(task, state, places, faults, keys)
    misplaced |= set() if task.max_age is None else places.keys() - queue.keys()
    totals, everyone = read_totals(None, task), read_totals(None, task)
    scattered, good, lost = list[str](), dict[str, Place](), list[str]()
    for client, release in _releases(task, state, faults):
        if release is None:
            lost.append(client)
            continue
        everyone.add(release.means, +1, weighted=task.counts_samples)
        place = places.get(client)
        if place is None or not _fits(task, release, place):
            faults.setdefault(place_key(client), "it does not fit the release")
            misplaced.add(client)
        if client in misplaced or place is None:
            scattered.append(client)
        else:
            good[client] = place
            totals.add(release.means, +1, weighted=task.counts_samples)
    for client in places.keys() - good.keys() - set(scattered) - set(lost):
        faults[release_key(client)] = "it is missing"
        lost.append(client)
    _check_head(task, state, head, places, faults)
    if not lost:
        _check_totals(task, state, everyone, faults)
    with _noting(faults, clock.KEY):
        clock.Age().now(state)
    return Survey(faults, head, good, queue, totals, scattered, lost, keys)


def repair(task: Task, state: Transaction, now: float, date: float) -> Healed:
    """Make a board whole: now, by its own time, and on this date."""
    found = survey(task, state)
    if not found.faults:
        return Healed({}, [])
    _gather(task, state, found, date)
    for client in found.scattered:
        (body,) = state.get([release_key(client)])
        state.delete([release_key(client)])
        if body is not None:
            Books(task, state, client).enter(read_release(client, body), body, now, date)
    return Healed(found.faults, [f"the release of {client}" for client in found.lost])


def _gather(task: Task, state: Transaction, found: Survey, date: float) -> None:
    """Leave only those whose rows are where they should be, without gaps between the rows."""
    sizes = np.zeros(2 * task.classes + 1, np.int64)
    rows: dict[int, list[tuple[int, str]]] = {}  # by buffer: slots, and whose
    for client, place in found.places.items():
        for buffer, own in place.slots.items():
            rows.setdefault(buffer, []).extend((slot, client) for slot in own)
    moved = set[str]()
    for buffer, owned in rows.items():
        sizes[buffer] = len(owned)
        gaps = iter(sorted(set(range(len(owned))) - {slot for slot, _ in owned}))
        for slot, client in owned:
            if slot >= len(owned):
                _move(state, found.places[client], buffer, slot, next(gaps))
                moved.add(client)
    numbers = [found.queue[client] for client in found.places if client in found.queue]
    kept = {key for buffer, owned in rows.items() for key in buffers.keys_of([(buffer, n) for n in range(len(owned))])}
    kept |= {place_key(client) for client in found.places} | {queue_key(number) for number in numbers}
    state.delete([*found.keys - kept, *map(release_key, found.lost)])
    state.set({place_key(client): found.places[client].encode() for client in moved})
    # A version that was there before would make others believe that they have seen this board.
    version = found.head.version + 1 if found.head else int(1000 * date)
    head = Head(np.array([version, min(numbers, default=0), max(numbers, default=-1) + 1, *sizes], np.int64))
    state.set({"head": head.encode(), "totals": found.totals.encode()})


def _move(state: Transaction, place: Place, buffer: int, old: int, new: int) -> None:
    (row,) = state.get(buffers.keys_of([(buffer, old)]))
    (key,) = buffers.keys_of([(buffer, new)])
    state.set({key: row or b""})
    place.slots[buffer][place.slots[buffer].index(old)] = new


@contextmanager
def _noting(faults: dict[str, str], key: str) -> Iterator[None]:
    try:
        with decoding(key):
            yield
    except Damaged as fault:
        faults[key] = fault.reason


def _read_head(task: Task, state: Transaction, faults: dict[str, str]) -> Head | None:
    head: Head | None = None
    with _noting(faults, "head"):
        (kept,) = state.get(["head"])
        if kept is not None:
            head = read_head_of(task, kept)
    return head


def _places(state: Transaction, faults: dict[str, str], keys: set[str]) -> Iterator[tuple[str, Place]]:
    for key, kept in state.scan(place_key("")):
        keys.add(key)
        with _noting(faults, key):
            yield key.removeprefix(place_key("")), buffers.read_place(sound(kept))


def _check_rows(
    task: Task, state: Transaction, places: dict[str, Place], faults: dict[str, str], keys: set[str]
) -> set[str]:
    """Return the clients whose rows are not all there, or not theirs alone."""
    owners, misplaced = dict[str, str](), set[str]()
    for client, place in places.items():
        for key in buffers.keys_of([(buffer, slot) for buffer, own in place.slots.items() for slot in own]):
            if (other := owners.setdefault(key, client)) != client:
                faults[place_key(client)] = f"{key} is in the place of {other}, too"
                misplaced |= {client, other}
    missing = set(owners)
    for key, kept in state.scan("row/"):
        keys.add(key)
        missing.discard(key)
        with _noting(faults, key):
            owner, contents = buffers.read_row(key, sound(kept))
            _check_contents(task, key, owner, contents)
            if owner.decode() != owners.get(key) and place_key(owner.decode()) not in faults:
                raise ValueError(f"it is in no place of {owner.decode()}")
        if key in faults and key in owners:
            misplaced.add(owners[key])
    faults |= dict.fromkeys(missing, "it is missing")
    return misplaced | {owners[key] for key in missing}


def _check_contents(task: Task, key: str, owner: bytes, contents: bytes) -> None:
    buffer = int(key.split("/")[1])
    if buffer == 2 * task.classes:
        read_member(key, owner, contents)
    else:
        read_rows([contents], [buffer % task.classes], task.dimension)


def _check_queue(
    task: Task, state: Transaction, places: dict[str, Place], faults: dict[str, str], keys: set[str]
) -> dict[str, int]:
    """Return which client has which number in the queue."""
    numbers = dict[str, int]()
    for key, kept in state.scan(queue_key("")):
        keys.add(key)
        with _noting(faults, key):
            client, queued = read_queued(key, sound(kept))
            if client in places and places[client].queued == queued:  # others were left by an earlier version
                numbers[client] = int(key.removeprefix(queue_key("")))
    if task.max_age is not None:
        faults |= {place_key(client): "it is not in the queue" for client in places.keys() - numbers.keys()}
    return numbers


def _releases(task: Task, state: Transaction, faults: dict[str, str]) -> Iterator[tuple[str, Release | None]]:
    for key, kept in state.scan(release_key("")):
        client, release = key.removeprefix(release_key("")), None
        with _noting(faults, key):
            found = read_release(client, sound(kept))
            for rows in (found.means, found.observations):
                known = rows.vectors.shape[1] == task.dimension and set(rows.labels.tolist()) <= set(
                    range(task.classes)
                )
                if not known or not np.isfinite(rows.vectors).all():
                    raise ValueError("it is not a release of this task")
            release = found
        yield client, release


def _fits(task: Task, release: Release, place: Place) -> bool:
    """Return whether a client owns as many rows as it released."""
    expected = Counter(release.observations.labels.tolist())
    if task.aggregation != "mean":
        expected.update(task.classes + label for label in release.means.labels.tolist())
    expected[2 * task.classes] = 1
    return place.classes == release.means.labels.tolist() and expected == {
        b: len(own) for b, own in place.slots.items()
    }


def _check_head(
    task: Task, state: Transaction, head: Head | None, places: dict[str, Place], faults: dict[str, str]
) -> None:
    if head is None:
        if places or any(True for _ in state.scan(release_key(""))):
            faults.setdefault("head", "it is missing")
        return
    sizes = np.zeros(2 * task.classes + 1, np.int64)
    for place in places.values():
        for buffer, own in place.slots.items():
            if not 0 <= buffer < len(sizes) or max(own, default=0) >= head.sizes[buffer]:
                faults["head"] = "rows beyond its sizes"
                return
            sizes[buffer] += len(own)
    unread = any(key.startswith(place_key("")) for key in faults)
    if not unread and not np.array_equal(sizes, head.sizes):
        faults.setdefault("head", "its sizes are not those of the rows")


def _check_totals(task: Task, state: Transaction, everyone: Totals, faults: dict[str, str]) -> None:
    with _noting(faults, "totals"):
        (kept,) = state.get(["totals"])
        if not np.array_equal(read_totals(kept, task).numbers, everyone.numbers):
            raise ValueError("they are not the sums of the releases")
