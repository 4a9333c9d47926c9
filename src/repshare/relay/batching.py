"""Group commit: a thread does what came for a store while it was busy in one transaction."""

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple, TypeVar

from repshare.errors import Damaged, RepshareError, StoreError
from repshare.stores import Changes, Transaction

MOST_AT_ONCE = 128  # works in a batch
BATCH_BYTES = 16_000_000  # the most memory of a batch, unless one work takes more

Result = TypeVar("Result")
Work = Callable[[Transaction], Result]
Run = Callable[[Work[Any]], Any]  # a store's `transact` or `read`


class _Waiting(NamedTuple):
    run: Run
    work: Work[Any]
    size: int
    outcome: asyncio.Future[Any]


class Batcher:
    """A thread for work on stores: what waits for the same store shares a transaction. Used from one event loop."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1, "batches")
        self._waiting: list[_Waiting] = []
        self._busy = False

    async def do(self, run: Run, work: Work[Result], size: int = 0) -> Result:
        """The work's result once its transaction is over, or raise its error: then none of its changes are made.

        Args:
            run: a store's `transact` or `read`
            work: one of a transaction
            size: bytes of memory that it takes
        """
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[Result] = loop.create_future()
        self._waiting.append(_Waiting(run, work, size, outcome))
        if not self._busy:
            self._busy = True
            loop.call_soon(self._begin, loop)  # with what else comes in this turn
        return await outcome

    def _begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin the next batch: works for one store, as many as fit, always one."""
        self._busy = bool(self._waiting)
        if not self._busy:
            return
        first, batch, left, total = self._waiting[0], list[_Waiting](), list[_Waiting](), 0
        for each in self._waiting:
            fits = each.run == first.run and len(batch) < MOST_AT_ONCE
            total += each.size if fits else 0
            (batch if fits and (not batch or total <= BATCH_BYTES) else left).append(each)
        self._waiting = left
        self._thread.submit(self._work, batch, loop)

    def _work(self, batch: list[_Waiting], loop: asyncio.AbstractEventLoop) -> None:
        """Tell the loop without a future in between, which would take as long as waking the thread."""
        outcomes: Sequence[Any]
        try:
            outcomes = batch[0].run(partial(_attempt, batch))
        except BaseException as error:  # any error: all who wait for the batch must be told
            outcomes = [error] * len(batch)
        loop.call_soon_threadsafe(self._end, batch, outcomes, loop)

    def _end(self, batch: list[_Waiting], outcomes: Sequence[Any], loop: asyncio.AbstractEventLoop) -> None:
        self._begin(loop)
        for each, outcome in zip(batch, outcomes, strict=True):
            if each.outcome.done():  # the client that asked is gone
                continue
            if isinstance(outcome, BaseException):
                each.outcome.set_exception(outcome)
            else:
                each.outcome.set_result(outcome)


def _attempt(batch: Sequence[_Waiting], state: Transaction) -> list[Any]:
    """Each work's result, or its error: then none of its changes are made."""
    outcomes = list[Any]()
    for each in batch:
        changes = Changes(state.get, state.scan)
        try:
            outcomes.append(each.work(changes))
        except RepshareError as error:
            if isinstance(error, StoreError) and not isinstance(error, Damaged):
                raise  # the transaction itself has failed
            outcomes.append(error)
            continue
        changes.apply(state)
    return outcomes
