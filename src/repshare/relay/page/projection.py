"""Frames as a map: class means of d' numbers as points in a plane (PCA), one plane for all rounds."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from repshare.relay.page.snapshots import Halves, Index

SCALE = 1000  # coordinates are whole numbers from −SCALE to SCALE
PART = 16  # rows that are multiplied at once

Floats = NDArray[np.float32]


def make_map(index: Index, frames: Halves, before: Floats | None = None) -> tuple[dict[str, Any], Floats | None]:
    """The map of these frames, and the plane it is drawn in: the next map is turned so that it continues this one.

    The plane is that of the last frame, so that one sees how its clusters came about.
    """
    document: dict[str, Any] = {"rounds": index.rounds, "clients": index.clients, "points": [], "kept": None}
    rows = frames.astype(np.float32)  # (frames, 1 + clients, classes, d)
    there: NDArray[np.bool_] = np.all(np.isfinite(rows), axis=-1)  # (frames, 1 + clients, classes)
    if not len(rows) or not there[-1].any():
        return document, None
    last = rows[-1][there[-1]]
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
    """The two directions in which these points spread most, (d, 2), and their part of all the spread."""
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
    """The turn, or mirroring, within a plane that brings it nearest to the one before (Procrustes)."""
    left, _, right = np.linalg.svd(plane.T @ before)
    turn: Floats = (left @ right).astype(np.float32)
    return turn
