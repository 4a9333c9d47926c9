"""Batches: a thread for work that waits for a disk or a network, which does together what came in the meantime."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, TypeVar

MOST_AT_ONCE = 128  # items in a batch
BATCH_BYTES = 16_000_000  # that the items of a batch take, or one
QUICK_BYTES = 2_000_000  # likewise, of one that is prepared in the event loop: a few milliseconds

Item = TypeVar("Item")
Result = TypeVar("Result")
Together = Callable[[Sequence[Item]], Sequence[Result | Exception]]  # what each of several items gives, or raises


Prepare = Callable[[Sequence[Item]], Callable[[], Sequence[Result | Exception]]]


class _Work(NamedTuple):
    function: Together[Any, Any]
    item: Any
    size: int
    prepare: Prepare[Any, Any] | None
    outcome: asyncio.Future[Any]


class Batcher:
    """Items that came for the same function while it was busy are handed to it together. Used from one event loop."""

    def __init__(self, *, inline: bool = False) -> None:
        """`inline`: without a thread, and each item by itself."""
        self._thread = None if inline else ThreadPoolExecutor(1, "batches")
        self._waiting: list[_Work] = []
        self._busy = False

    async def do(
        self,
        function: Together[Item, Result],
        item: Item,
        size: int = 0,
        prepare: Prepare[Item, Result] | None = None,
    ) -> Result:
        """Return the function's result for this item, or raise its error.

        Args:
            function: what a thread does with a batch
            item: one of a batch
            size: bytes of memory that it takes
            prepare: does what needs no waiting, here; the thread calls what it returns instead. May raise.
        """
        if self._thread is None:
            (result,) = function([item])
            if isinstance(result, Exception):
                raise result
            return result
        outcome: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Work(function, item, size, prepare, outcome))
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().call_soon(self._begin, self._thread)  # with what else comes in this turn
        return await outcome

    def _begin(self, thread: ThreadPoolExecutor) -> None:
        self._busy = bool(self._waiting)
        if self._busy:
            batch, loop = self._take_batch(), asyncio.get_running_loop()
            items = [each.item for each in batch]
            finish: Callable[[], Sequence[Any]] = partial(batch[0].function, items)
            if (prepare := batch[0].prepare) and batch[0].size <= QUICK_BYTES:
                with suppress(Exception):  # whatever it is, the function will meet it, too, and say so
                    finish = prepare(items)

            def work() -> None:
                """Tell the loop without a future in between, which would take as long as waking the thread."""
                outcomes: Sequence[Any]
                try:
                    outcomes = finish()
                except BaseException as error:  # whatever it is, everyone who waits for the batch must hear of it
                    outcomes = [error] * len(batch)
                loop.call_soon_threadsafe(self._end, thread, batch, outcomes)

            thread.submit(work)

    def _take_batch(self) -> list[_Work]:
        """Remove and return the next items for one function: as many as fit into a batch, always one."""
        first, batch, left, total = self._waiting[0], list[_Work](), list[_Work](), 0
        most = QUICK_BYTES if first.prepare and first.size <= QUICK_BYTES else BATCH_BYTES
        for work in self._waiting:
            fits = work.function == first.function and len(batch) < MOST_AT_ONCE
            total += work.size if fits else 0
            (batch if fits and (not batch or total <= most) else left).append(work)
        self._waiting = left
        return batch

    def _end(self, thread: ThreadPoolExecutor, batch: list[_Work], outcomes: Sequence[Any]) -> None:
        self._begin(thread)
        for work, outcome in zip(batch, outcomes, strict=True):
            if work.outcome.done():  # the client that asked is gone
                continue
            if isinstance(outcome, BaseException):
                work.outcome.set_exception(outcome)
            else:
                work.outcome.set_result(outcome)
