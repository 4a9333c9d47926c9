"""Snapshots of class means over the rounds, and the map: points in a plane (PCA), one plane for all rounds.

frames       which there are, and whose rows are in which place
frame/ROUND  float16: the global means, then each client's; NaN where a class has none

Of a common classifier, a class's row is the direction of its vector about the common centre, Σ αᵢc (ψᵢ − μ) / n. The
total's vectors are, up to a factor, the classifier's weights. What clients add to them is many times longer, and mostly
cancels out, so that only directions can be compared; the plane is the one that shows the total's best. A frame keeps
vectors folded, which leaves the angles between them about as they are.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from statistics import median_low
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.board import Board
from repshare.board.robust import read_means
from repshare.board.state import BoardMember, BoardState
from repshare.relay.page.histories import most_crowded, read_many
from repshare.sharing.representations import Representations
from repshare.sharing.task import Task
from repshare.stores import Store, Transaction, decoded

FRAMES = 100  # of a task
CLIENTS = 32  # the first ones, in a frame
COUNTED = 1000  # members whose rounds are looked at
CLASSES = 20  # the first ones: more colours than that cannot be told apart
NUMBERS = 2**17  # in a frame: 256 kB
READ = 2**21  # numbers of a common classifier's parts that are read for a frame: 4 MB in fp16
SCALE = 1000  # coordinates of the map are whole numbers from −SCALE to SCALE
PART = 16  # rows that are multiplied at once

Halves = NDArray[np.float16]
Floats = NDArray[np.float32]


class SnapshotIndex(NamedTuple):
    """The list of snapshots."""

    rounds: list[int]  # ascending
    clients: list[str | None]  # whose means are in row 1, 2, …; None: unused
    changes: int = 0  # how often any of it has changed


class SnapshotMeans(NamedTuple):
    """The means in a snapshot."""

    round: int
    everyone: Representations
    clients: dict[str, Representations]
    centre: Floats | None  # (d,)  of a common classifier


def snap(board: Board, notes: Store) -> bool:
    """Take a snapshot: a new one in a later round than the last, else in its place. Whether it is new.

    So the last one always shows how things stand, whatever rounds clients say they are in.
    """
    task, room = board.task, places(board.task)
    if room < 0:
        return False
    means = _read_means(board, room)
    if means is None:
        return False
    later: SnapshotMeans = means

    def work(state: Transaction) -> bool:
        index = read_index(state)
        if index.rounds and later.round < index.rounds[-1] / 2:  # the clients began again: drop the earlier run
            state.delete([_key(number) for number in index.rounds])
            index = SnapshotIndex([], [], index.changes)
        new = not index.rounds or index.rounds[-1] < later.round
        _assign_rows(state, index, list(later.clients), room, task)
        rows = [later.everyone, *(later.clients.get(client or "") for client in index.clients)]
        frame = np.stack([_to_grid(row, task, later.centre) for row in rows])
        if new:
            index.rounds.append(later.round)
        if len(index.rounds) > FRAMES:
            dropped = index.rounds.pop(most_crowded(np.array(index.rounds, np.float32)))
            state.delete([_key(dropped)])
        state.set({"frames": _changed(index), _key(index.rounds[-1]): frame.tobytes()})
        return new

    return notes.transact(work)


def usual_round(members: Sequence[BoardMember]) -> int:
    """Return the round that a task's clients are in: the median, so that no minority decides; 0 if there are none."""
    return median_low(member.round for member in members) if members else 0


def places(task: Task) -> int:
    """Return for how many clients a snapshot has room; −1 if not even for the global means."""
    if task.space is not None:
        return min(CLIENTS, READ // (task.rows * task.columns) - 1)
    return min(CLIENTS, NUMBERS // (min(task.classes, CLASSES) * task.dimension) - 1)


def grid_of(task: Task) -> tuple[int, int]:
    """Return how many classes a frame has, and how many numbers for each."""
    classes, dimension = task.classes, task.dimension
    shown = min(classes, CLASSES)
    return shown, dimension if task.space is None else min(dimension, NUMBERS // ((1 + CLIENTS) * shown))


def read_index(state: Transaction) -> SnapshotIndex:
    """Return the list of snapshots."""
    (kept,) = state.get(["frames"])
    return decode_index(kept) if kept else SnapshotIndex([], [])


def decode_index(kept: bytes) -> SnapshotIndex:
    """Return the list of snapshots from bytes."""
    return decoded("frames", lambda: SnapshotIndex(*json.loads(kept)))


def read_frames(notes: Store, task: Task) -> tuple[SnapshotIndex, Halves]:
    """Return all frames, (frames, 1 + clients, classes, d)."""
    grid = grid_of(task)
    index = notes.read(read_index)
    found = read_many(notes, "frame", map(str, index.rounds))
    there = [(number, found[str(number)]) for number in index.rounds if str(number) in found]
    frames = np.full((len(there), 1 + len(index.clients), *grid), np.nan, np.float16)
    for frame, (number, kept) in zip(frames, there, strict=True):
        rows = decode_frame(_key(number), kept, grid)[: len(frame)]
        frame[: len(rows)] = rows
    return index._replace(rounds=[number for number, _ in there]), frames


def decode_frame(key: str, kept: bytes, grid: tuple[int, int]) -> Halves:
    """Return a frame, (1 + clients, classes, d)."""
    return decoded(key, lambda: np.frombuffer(kept, np.float16).reshape(-1, *grid))


def forget(board: Board, notes: Store, clients: Collection[str]) -> None:
    """Remove these clients' means from all frames."""

    def work(state: Transaction) -> None:
        index = read_index(state)
        if gone := [place for place, name in enumerate(index.clients) if name in clients]:
            _empty(state, index, gone, board.task)
            state.set({"frames": _changed(index)})

    notes.transact(work)


def _read_means(board: Board, room: int) -> SnapshotMeans | None:
    classes, dimension = board.task.classes, board.task.dimension
    shown = min(classes, CLASSES)

    def work(state: Transaction) -> tuple[list[BoardMember], Representations, Floats | None]:
        there = BoardState(board.task, state)
        totals = there.totals
        everyone = totals.means(np.flatnonzero(totals.clients[:shown]).tolist())
        centre = None if board.task.space is None else totals.means([classes]).vectors[0, :dimension]
        return there.first_members(COUNTED), everyone, centre

    members, everyone, centre = board.store.read(work)
    if not members:
        return None
    each = read_means(board.store, members[:room], shown)
    return SnapshotMeans(usual_round(members), everyone, each, centre)


def _assign_rows(state: Transaction, index: SnapshotIndex, names: list[str], room: int, task: Task) -> None:
    """Give every client a row; those of clients that left are reused if needed."""
    new = [name for name in names if name not in index.clients]
    free = room - len(index.clients) + index.clients.count(None)
    gone = [place for place, name in enumerate(index.clients) if name is not None and name not in names]
    if len(new) > free:
        _empty(state, index, gone[: len(new) - free], task)
    for name in new:
        if None in index.clients:
            index.clients[index.clients.index(None)] = name
        elif len(index.clients) < room:
            index.clients.append(name)


def _empty(state: Transaction, index: SnapshotIndex, places: Iterable[int], task: Task) -> None:
    keys = [_key(number) for number in index.rounds]
    for key, kept in zip(keys, state.get(keys), strict=True):
        if kept is not None:
            frame = decode_frame(key, kept, grid_of(task)).copy()
            for place in places:
                frame[1 + place : 2 + place] = np.nan
            state.set({key: frame.tobytes()})
    for place in places:
        index.clients[place] = None


def _to_grid(rows: Representations | None, task: Task, centre: Floats | None) -> Halves:
    grid = np.full(grid_of(task), np.nan, np.float16)
    if rows is not None:
        shown = rows.labels < len(grid)
        vectors = rows.vectors[shown]
        if centre is not None:
            vectors = fold(vectors[:, : len(centre)] - vectors[:, len(centre), None] * centre, grid.shape[1])
            vectors /= np.linalg.norm(vectors, axis=1, keepdims=True).clip(1e-12)
        with np.errstate(over="ignore"):  # a length that float16 has no number for
            grid[rows.labels[shown]] = vectors
    return grid


def fold(vectors: Floats, width: int) -> Floats:
    """Return vectors (n, d) as (n, width): numbers with random signs, always the same ones, added up.

    Lengths and inner products stay about as they are (a count sketch).
    """
    dimension = vectors.shape[1]
    if dimension <= width:
        return vectors
    drawn = np.frombuffer(hashlib.shake_128(b"map").digest(-(-dimension // 8)), np.uint8)
    signs = 1 - 2 * np.unpackbits(drawn)[:dimension].astype(np.float32)
    layers = -(-dimension // width)
    padded = np.pad(vectors * signs, ((0, 0), (0, layers * width - dimension)))
    folded: Floats = padded.reshape(len(vectors), layers, width).sum(axis=1)
    return folded


def _changed(index: SnapshotIndex) -> bytes:
    return json.dumps(index._replace(changes=index.changes + 1)).encode()


def _key(number: int) -> str:
    return f"frame/{number}"


def draw_map(
    index: SnapshotIndex, frames: Halves, before: Floats | None = None, *, by_total: bool = False
) -> tuple[dict[str, Any], Floats | None]:
    """Return the map of these snapshots, and its plane: the next map is turned so that it continues this one.

    The plane is that of the last frame, so that one sees how its clusters came about; `by_total`: of its first row.
    """
    document: dict[str, Any] = {"rounds": index.rounds, "clients": index.clients, "points": [], "kept": None}
    rows = frames.astype(np.float32)  # (frames, 1 + clients, classes, d)
    there: NDArray[np.bool_] = np.all(np.isfinite(rows), axis=-1)  # (frames, 1 + clients, classes)
    if not len(rows) or not there[-1].any():
        return document, None
    among = slice(1 if by_total and there[-1, 0].any() else None)
    last = rows[-1][among][there[-1][among]]
    centre = last.mean(axis=0)
    plane, kept = _plane(last - centre)
    if before is not None and before.shape == plane.shape:
        plane = plane @ _turn(plane, before)
    rows[~there] = centre
    points = np.stack([(frame - centre) @ plane for frame in rows])  # (frames, 1 + clients, classes, 2)
    size = max(float(np.abs(points).max()), 1e-12)
    whole = (points * (SCALE / size)).round().astype(np.int64).tolist()
    for frame, row, label in np.argwhere(~there).tolist():
        whole[frame][row][label] = None
    document["points"] = whole
    document["kept"] = round(kept, 3)
    return document, plane


def _plane(points: Floats) -> tuple[Floats, float]:
    """Return the two directions in which these points spread most, (d, 2), and their part of all the spread."""
    # By the smaller of the two Gram matrices, added up from small parts: a large product or an SVD is shared among
    # threads, which wait for each other where the machine has other things to do.
    tall = len(points) > points.shape[1]
    sides = points if tall else points.T
    parts = np.array_split(sides.astype(np.float64), max(1, len(sides) // PART))
    sizes, directions = np.linalg.eigh(np.sum([part.T @ part for part in parts], axis=0))
    best = directions[:, ::-1][:, :2]  # (smaller side, 2)
    plane = np.zeros((points.shape[1], 2))
    plane[:, : best.shape[1]] = best if tall else points.T @ best
    plane /= np.maximum(np.linalg.norm(plane, axis=0), 1e-12)
    spread = float(sizes.sum())
    return plane.astype(np.float32), float(sizes[-2:].sum()) / spread if spread > 0 else 1.0


def _turn(plane: Floats, before: Floats) -> Floats:
    """Return the turn, or mirroring, within a plane that brings it nearest to the one before (Procrustes)."""
    left, _, right = np.linalg.svd(plane.T @ before)
    turn: Floats = (left @ right).astype(np.float32)
    return turn
