"""The recorder of what the page shows in addition to boards: presence, reports, snapshots of the means."""

import asyncio
import logging
from collections.abc import Collection

from repshare.errors import RepshareError
from repshare.relay.page import histories, presence, snapshots
from repshare.relay.service import Service
from repshare.relay.tasks import Open

NOTES_SECONDS = 1.0  # between writes of what was seen, and between snapshots


def forget(there: Open, clients: Collection[str]) -> None:
    """Remove all that the page has of these clients."""
    histories.forget(there.notes, clients)
    presence.forget(there.notes, clients)
    snapshots.forget(there.board, there.notes, clients)


def expire(there: Open) -> int:
    """Forget some releases that are too old, and what the page has of their clients: how many; 0 if none is left."""
    gone = there.board.expire()
    if gone:
        forget(there, gone)
    return len(gone)


async def keep_notes(service: Service) -> None:
    """Write down what was seen, and take snapshots for the map, about once a second; a last time when it ends."""
    try:
        while True:
            await asyncio.sleep(NOTES_SECONDS)
            await _write_notes(service, snapping=True)
    finally:
        await _write_notes(service, snapping=False)


async def _write_notes(service: Service, *, snapping: bool) -> None:
    for task, tallies in service.seen.take().items():
        try:
            there = await service.run(service.tasks.find, task)
            if there is None:
                continue
            await service.run(presence.flush, there.notes, tallies)
            if snapping and any(tally.published for tally in tallies.values()):
                await service.run(snapshots.snap, there.board, there.notes)
        except RepshareError as error:
            logging.getLogger(__name__).warning("could not record clients' presence: %s", error)
        except Exception:  # the relay continues without; the log says why
            logging.getLogger(__name__).exception("could not record clients' presence")
