"""A desk: a thread to which requests bring work that waits for a disk or a network, and which does it in batches."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeVar

MOST_AT_ONCE = 128  # items in a batch
BATCH_BYTES = 16_000_000  # that the items of a batch take, or one

Item = TypeVar("Item")
Result = TypeVar("Result")


class _Work(NamedTuple):
    function: Callable[[Sequence[Any]], Sequence[Any]]
    item: Any
    size: int
    outcome: asyncio.Future[Any]


class Desk:
    """Items that came for the same function while it was busy are handed to it together. Used from one event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "desk")
        self._waiting: list[_Work] = []
        self._busy = False

    async def do(
        self, function: Callable[[Sequence[Item]], Sequence[Result | Exception]], item: Item, size: int = 0
    ) -> Result:
        """Return the function's result for this item, or raise its error. `size`: bytes of memory that it takes."""
        outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Work(function, item, size, outcome))
        if not self._busy:
            self._begin()
        return await outcome

    def _begin(self) -> None:
        self._busy = bool(self._waiting)
        if not self._busy:
            return
        function = self._waiting[0].function
        batch = _first([work for work in self._waiting if work.function == function][:MOST_AT_ONCE])
        taken = set(map(id, batch))
        self._waiting = [work for work in self._waiting if id(work) not in taken]
        self._thread.submit(self._work, asyncio.get_running_loop(), function, batch)

    def _work(
        self, loop: asyncio.AbstractEventLoop, function: Callable[..., Sequence[Any]], batch: list[_Work]
    ) -> None:
        try:
            outcomes = function([work.item for work in batch])
        except Exception as error:  # whatever it is, everyone who waits for the batch must hear of it
            outcomes = [error] * len(batch)
        loop.call_soon_threadsafe(self._end, batch, outcomes)

    def _end(self, batch: list[_Work], outcomes: Sequence[Any]) -> None:
        self._begin()
        for work, outcome in zip(batch, outcomes, strict=True):
            if work.outcome.done():  # the client that asked is gone
                continue
            if isinstance(outcome, Exception):
                work.outcome.set_exception(outcome)
            else:
                work.outcome.set_result(outcome)


def _first(waiting: list[_Work]) -> list[_Work]:
    """Return as many as fit into a batch; always one."""
    total, batch = 0, list[_Work]()
    for work in waiting:
        total += work.size
        if batch and total > BATCH_BYTES:
            break
        batch.append(work)
    return batch
