"""The recorder of what the page shows in addition to boards: presence, reports, snapshots of the means."""

import asyncio
import logging
from collections.abc import Collection

from repshare.errors import RepshareError
from repshare.relay.page import presence, snapshots
from repshare.relay.service import Service
from repshare.relay.tasks import OpenTask

NOTES_SECONDS = 1.0  # between updates of the store, and between snapshots


def forget(opened: OpenTask, clients: Collection[str]) -> None:
    """Remove all that the page has of these clients."""
    keys = [f"{kind}/{client}" for kind in ("report", "seen") for client in clients]
    opened.notes.transact(lambda state: state.delete(keys))
    snapshots.forget(opened.board, opened.notes, clients)


def expire(opened: OpenTask) -> int:
    """Forget some releases that are too old, and what the page has of their clients: how many; 0 if none is left."""
    gone = opened.board.expire()
    if gone:
        forget(opened, gone)
    return len(gone)


async def keep_notes(service: Service) -> None:
    """Store clients' presence, and take snapshots for the map, about once a second; a last time when it ends."""
    try:
        while True:
            await asyncio.sleep(NOTES_SECONDS)
            await _write_notes(service, snapping=True)
    finally:
        await _write_notes(service, snapping=False)


async def _write_notes(service: Service, *, snapping: bool) -> None:
    for task, recent in service.presence.take().items():
        try:
            opened = await service.run(service.tasks.find, task)
            if opened is None:
                continue
            await service.run(presence.flush, opened.notes, recent)
            if snapping and any(activity.published for activity in recent.values()):
                await service.run(snapshots.snap, opened.board, opened.notes)
        except RepshareError as error:
            logging.getLogger(__name__).warning("could not record clients' presence: %s", error)
        except Exception:  # the relay continues without; the log says why
            logging.getLogger(__name__).exception("could not record clients' presence")
