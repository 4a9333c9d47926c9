"""Work in the background: old releases expire, and lines that were left out of the log are counted."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from repshare.errors import RepshareError
from repshare.relay.monitoring.logs import log_event
from repshare.relay.page import activity
from repshare.relay.service import Service
from repshare.relay.tasks import OpenTask

SECONDS = 1.0  # between two turns


@asynccontextmanager
async def work_in_background(service: Service) -> AsyncIterator[dict[str, Any]]:
    """Work until the end of the block (with the application's state); then answer all who wait."""
    work = asyncio.create_task(_repeat(service))
    try:
        yield {"service": service}
    finally:
        service.versions.stop()
        work.cancel()
        with suppress(asyncio.CancelledError):
            await work


async def _repeat(service: Service) -> None:
    while True:
        await asyncio.sleep(SECONDS)
        service.lines.flush()
        with _logging_errors():
            for entry in await service.run(service.tasks.entries):
                if entry.task.max_age is not None:
                    with _logging_errors():  # one task's error does not stop the others
                        await _expire(service, entry.name)


@contextmanager
def _logging_errors() -> Iterator[None]:
    try:
        yield
    except RepshareError as error:
        log_event("could not look for old releases", logging.WARNING, reason=str(error))
    except Exception:  # the relay continues without; the log says why
        logging.getLogger(__name__).exception("could not look for old releases")


async def _expire(service: Service, name: str) -> None:
    opened = await service.run(service.tasks.find, name)
    while opened is not None and (expired := await service.run(expire, opened)):
        service.metrics.expired.inc(expired)
        service.versions.notify(name)
        log_event("expired", task=name, releases=expired)
        await asyncio.sleep(0)


def expire(opened: OpenTask) -> int:
    """Forget some releases that are too old, and their clients' reports; return how many, 0 if none is left."""
    gone = opened.board.expire()
    if gone:
        activity.forget(opened.activity, gone)
    return len(gone)
