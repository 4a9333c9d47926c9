"""Work in the background: old releases expire, and lines that were left out of the log are counted."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any

from repshare.errors import RepshareError
from repshare.relay.monitoring.logs import log_event
from repshare.relay.page import activity
from repshare.relay.service import Service
from repshare.relay.tasks import OpenTask

SECONDS = 1.0  # between two turns of each work


@asynccontextmanager
async def work_in_background(service: Service) -> AsyncIterator[dict[str, Any]]:
    """Work until the end of the block (with the application's state); then answer all who wait."""
    works = [asyncio.create_task(_repeat(each, service)) for each in (_expire, _count_omitted_lines)]
    try:
        yield {"service": service}
    finally:
        service.versions.stop()
        for each in works:
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each


async def _repeat(work: Callable[[Service], Awaitable[None]], service: Service) -> None:
    while True:
        await asyncio.sleep(SECONDS)
        await work(service)


@contextmanager
def _logging_errors(what: str) -> Iterator[None]:
    try:
        yield
    except RepshareError as error:
        log_event(f"could not {what}", logging.WARNING, reason=str(error))
    except Exception:  # the relay continues without; the log says why
        logging.getLogger(__name__).exception("could not %s", what)


async def _expire(service: Service) -> None:
    with _logging_errors("look for old releases"):
        for entry in await service.run(service.tasks.entries):
            if entry.task.max_age is not None:
                with _logging_errors("look for old releases"):  # an error in one task does not stop the others
                    await _expire_in(service, entry.name)


async def _expire_in(service: Service, name: str) -> None:
    opened = await service.run(service.tasks.find, name)
    while opened is not None and (expired := await service.run(expire, opened)):
        service.metrics.expired.inc(expired)
        service.versions.notify(name)
        log_event("expired", task=name, releases=expired)
        await asyncio.sleep(0)


async def _count_omitted_lines(service: Service) -> None:
    service.lines.flush()


def expire(opened: OpenTask) -> int:
    """Forget some releases that are too old, and their clients' reports; return how many, 0 if none is left."""
    gone = opened.board.expire()
    if gone:
        activity.forget(opened.activity, gone)
    return len(gone)
