"""Waiting for something new: one watcher for each task that anybody waits for."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

POLL_SECONDS = 0.5  # how soon a change by another relay on the same database is noticed

Look = Callable[[], Awaitable[int]]  # at a task's version


class News:
    """Those who wait until a task has another version. Used from one event loop."""

    def __init__(self) -> None:
        self._watches: dict[str, _Watch] = {}
        self.stopped = False

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return sum(len(watch.waiting) for watch in self._watches.values())

    def tell(self, task: str) -> None:
        """Note that something has changed here: let the watcher look at once."""
        if watch := self._watches.get(task):
            watch.changed.set()

    def stop(self) -> None:
        """Answer all who wait, and let none wait again."""
        self.stopped = True
        for watch in self._watches.values():
            watch.release()

    async def wait(self, task: str, since: int, seconds: float, look: Look) -> int:
        """Return the task's version: at once if it is not `since`, otherwise when it changes or the time is over."""
        now = await look()
        if now != since or seconds <= 0 or self.stopped:
            return now
        if task not in self._watches:
            self._watches[task] = _Watch(look)
        watch = self._watches[task]
        future = watch.enter(since)
        try:
            async with asyncio.timeout(seconds):
                return await future
        except TimeoutError:
            return since
        finally:
            if watch.leave(future):
                del self._watches[task]


class _Watch:
    """Looks at one task's version, twice a second and when something changes here, while anybody waits."""

    def __init__(self, look: Look) -> None:
        self.waiting: dict[asyncio.Future[int], int] = {}  # the version that each has
        self.changed = asyncio.Event()
        self._look = look
        self._watcher = asyncio.create_task(self._watch())

    def enter(self, since: int) -> asyncio.Future[int]:
        """Wait for a version that is not this one."""
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.waiting[future] = since
        self.changed.set()  # it may have changed while this one came in
        return future

    def leave(self, future: asyncio.Future[int]) -> bool:
        """Wait no longer; whether this was the last one."""
        del self.waiting[future]
        if not self.waiting:
            self._watcher.cancel()
        return not self.waiting

    def release(self) -> None:
        """Answer all who wait with the version that they have."""
        for future, since in self.waiting.items():
            if not future.done():
                future.set_result(since)

    async def _watch(self) -> None:
        while True:
            self.changed.clear()
            try:
                now = await self._look()
            except Exception as error:  # the store is unavailable, the task was deleted: those who wait are told
                self._fail(error)
            else:
                self._tell(now)
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self.changed.wait()

    def _tell(self, now: int) -> None:
        for future, since in self.waiting.items():
            if now != since and not future.done():
                future.set_result(now)

    def _fail(self, error: Exception) -> None:
        for future in self.waiting:
            if not future.done():
                future.set_exception(error)
