"""A task as the page shows it: one JSON document of bounded size, made now and then and handed to all who look."""

import asyncio
import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from statistics import median_low
from typing import Any, TypeVar, cast

import anyio.to_thread

from repshare.board import Board
from repshare.board.board import BoardStatus
from repshare.board.state import BoardMember
from repshare.relay.page.common import MOST_CLASSES, describe_common, read_parts, read_total
from repshare.relay.page.histories import CURVES, FIELDS, History, make_curves, read_histories
from repshare.relay.page.presence import Presence, read_presence, read_traffic
from repshare.relay.page.snapshots import (
    CLASSES,
    COUNTED,
    Floats,
    draw_map,
    places,
    read_frames,
    read_index,
    usual_round,
)
from repshare.sharing.task import Task
from repshare.stores import Store

SHOWN = 100  # members in the table
FAR = 10  # times what is usual: a client that says more counts as so much
REFUSALS = 50
SHARE = 40  # a document that cost a second of the processor is served for this many seconds
Made = TypeVar("Made")


class SharedDocuments:
    """Documents made at most now and then, and one at a time, however many look."""

    def __init__(self, fresh_seconds: float = 0.0) -> None:
        """`fresh_seconds`: for how long any of them is served, however little it cost."""
        self._fresh_seconds = fresh_seconds
        self._made: dict[tuple[str, str], tuple[float, Any]] = {}  # until when each may be used
        self._alone = asyncio.Lock()

    async def get(self, key: tuple[str, str], make: Callable[[], Made]) -> Made:
        """Return the document, made again if it is old. In a thread: clients are served in the meantime."""
        until, kept = self._made.get(key, (0.0, None))
        if time.monotonic() < until:
            return cast(Made, kept)
        async with self._alone:
            until, kept = self._made.get(key, (0.0, None))
            if time.monotonic() < until:  # another made it while this one waited
                return cast(Made, kept)
            made, cost = await anyio.to_thread.run_sync(_timed, make)
            now = time.monotonic()
            self._made = {other: one for other, one in self._made.items() if one[0] > now}
            self._made[key] = (now + max(self._fresh_seconds, SHARE * cost), made)
            return made


def _timed(make: Callable[[], Made]) -> tuple[Made, float]:
    begun = time.thread_time()
    return make(), time.thread_time() - begun


def make_view(
    name: str,
    board: Board,
    notes: Store,
    refusals: Iterable[Mapping[str, Any]],
    away_seconds: float,
    own: str | None = None,
) -> bytes:
    """Return the document; for the client `own`, with nothing about other clients but their number."""
    status = board.status(SHOWN) if own is None else _show_only(board, own)
    members = status.shown
    if own is None and status.clients > len(members):
        members = board.first_members(COUNTED)
    names = [member.name for member in members]
    histories, presences = read_histories(notes, names), read_presence(notes, names)
    outliers, now, task = set(status.outliers()), time.time(), board.task
    common, samples = describe_common(task), _count_samples(board, status.shown)
    shown = [
        _member(
            member, histories.get(member.name), presences.get(member.name), now, away_seconds, common=common is not None
        )
        | {"outlier": member.name in outliers, "samples": samples.get(member.name, [])}
        for member in status.shown
    ]
    index = notes.read(read_index)
    document = {
        "name": name,
        "own": own,
        "task": {field: value for field, value in asdict(task).items() if field != "description"},  # which may be long
        "classes": task.classes,
        "common": common,
        "total": common and read_total(board.store, task),
        "now": now,
        "version": status.version,
        "clients": status.clients,
        "counted": len(members),
        "online": sum(_online(presences.get(each.name), each, now, away_seconds) for each in members),
        "round": usual_round(members),
        "members": shown,
        "curves": make_curves(histories),
        "frames": index.rounds[-1:] if own is None else [],  # of the map, which shows all clients
        "map": index.changes,
        "traffic": _traffic(read_traffic(notes) if own is None else None, members, histories, presences),
        "refusals": [each for each in refusals if own in (None, each["client"])][-REFUSALS:][::-1],
    }
    return json.dumps(document, separators=(",", ":")).encode()


def _show_only(board: Board, client: str) -> BoardStatus:
    """Return the state of the board with one of its clients, if it has published, and without a judgement."""
    status, member = board.status(limit=0), board.find(client)
    return status._replace(shown=[] if member is None else [member], strangeness=[None] if member else [])


def make_map(task: Task, notes: Store, before: Floats | None) -> tuple[bytes, Floats | None]:
    """Return the document of the map, and its plane; `before` is that of the last map."""
    index, frames = read_frames(notes, task)
    drawn, plane = draw_map(index, frames, before, by_total=task.space is not None)
    more = {"changes": index.changes, "room": places(task), "classes": min(task.classes, CLASSES)}
    return json.dumps(drawn | more, separators=(",", ":")).encode(), plane


def _member(
    member: BoardMember,
    history: History | None,
    presence: Presence | None,
    now: float,
    away_seconds: float,
    *,
    common: bool,
) -> dict[str, Any]:
    last = history.points[-1].tolist() if history is not None and len(history.points) else []
    told = {
        field: float(f"{value:.4g}")
        for field, value in zip(FIELDS, last[1:], strict=False)
        if value == value and field in CURVES
    }
    said = history.said if history is not None else {}
    return {
        "name": member.name,
        "round": member.round,
        "seen": presence.last if presence else member.published,
        "online": _online(presence, member, now, away_seconds),
        "samples_total": max(member.samples.values(), default=0) if common else sum(member.samples.values()),
        "bytes_up": presence.up if presence else member.bytes,
        "bytes_down": presence.down if presence else 0,
        "model": said.get("model"),
        "privacy": said.get("privacy"),
        "in_use": said.get("in_use"),
        **told,
    }


def _count_samples(board: Board, members: list[BoardMember]) -> dict[str, list[int]]:
    """Return how many samples of each class each member has. Every row of a part counts all of its samples."""
    if board.task.space is not None:
        return read_parts(board.store, board.task, members)
    classes = range(board.task.classes if board.task.classes <= MOST_CLASSES else 0)
    return {member.name: [member.samples.get(label, 0) for label in classes] for member in members}


def _online(presence: Presence | None, member: BoardMember, now: float, away_seconds: float) -> bool:
    """Return whether a client is online. A date far ahead is as wrong as an old one: the clock was set back since."""
    if presence is None:
        return abs(now - member.published) <= away_seconds
    return abs(now - presence.last) <= presence.away_after(away_seconds)


def _traffic(
    total: tuple[int, int] | None,
    members: list[BoardMember],
    histories: Mapping[str, History],
    presences: Mapping[str, Presence],
) -> dict[str, Any]:
    """Return bytes so far; and for clients that reported their models' size, what FedAvg would have cost.

    `total`: bytes up and down in all. Default: those of the members.
    """
    there = [presences[member.name] for member in members if member.name in presences]
    up, down = total or (sum(each.up for each in there), sum(each.down for each in there))
    sizes = {client: int(history.said.get("model_bytes", 0)) for client, history in histories.items()}
    sized = [
        (member, sizes[member.name], presences[member.name])
        for member in members
        if sizes.get(member.name) and member.name in presences
    ]
    costs = [2 * size * member.round for member, size, _ in sized]  # the model up and down each round
    most = FAR * median_low(costs) if costs else 0
    return {
        "up": up,
        "down": down,
        "sized": len(sized),
        "sized_bytes": sum(presence.up + presence.down for _, _, presence in sized),
        "fedavg_bytes": sum(min(cost, most) for cost in costs),
    }
