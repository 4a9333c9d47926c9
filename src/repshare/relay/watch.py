"""Waiting for a change: one watcher for each task that any request waits for."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

POLL_SECONDS = 0.5  # how soon a change by another relay on the same database is noticed

Look = Callable[[], Awaitable[int]]  # at a task's version


class VersionWatch:
    """The requests that wait until a task has another version. Used from one event loop."""

    def __init__(self) -> None:
        self._watchers: dict[str, _Watcher] = {}
        self.stopped = False

    @property
    def waiting(self) -> int:
        """The number of requests that wait."""
        return sum(len(watcher.waiting) for watcher in self._watchers.values())

    def notify(self, task: str) -> None:
        """Let the task's watcher look at once: something has changed here."""
        if watcher := self._watchers.get(task):
            watcher.changed.set()

    def stop(self) -> None:
        """Answer all requests that wait, and let none wait again."""
        self.stopped = True
        for watcher in self._watchers.values():
            watcher.answer(None)

    async def wait(self, task: str, since: int, seconds: float, look: Look) -> int:
        """The task's version: at once if it is not `since`, otherwise when it changes or the time is over."""
        now = await look()
        if now != since or seconds <= 0 or self.stopped:
            return now
        if task not in self._watchers:
            self._watchers[task] = _Watcher(look)
        watcher = self._watchers[task]
        outcome: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        watcher.waiting[outcome] = since
        watcher.changed.set()  # it may have changed since it was looked at
        try:
            async with asyncio.timeout(seconds):
                return await outcome
        except TimeoutError:
            return since
        finally:
            del watcher.waiting[outcome]
            if not watcher.waiting:
                watcher.work.cancel()
                del self._watchers[task]


class _Watcher:
    """Looks at one task's version, twice a second and when something changes here, while any request waits."""

    def __init__(self, look: Look) -> None:
        self.waiting: dict[asyncio.Future[int], int] = {}  # the version that each has
        self.changed = asyncio.Event()
        self.work = asyncio.create_task(self._watch(look))

    def answer(self, found: int | Exception | None) -> None:
        """Answer the requests that have another version than this; None: all, with the version that each has."""
        for outcome, since in self.waiting.items():
            if outcome.done() or since == found:
                continue
            if isinstance(found, Exception):
                outcome.set_exception(found)
            else:
                outcome.set_result(since if found is None else found)

    async def _watch(self, look: Look) -> None:
        while True:
            self.changed.clear()
            try:
                self.answer(await look())
            except Exception as error:  # the store is unavailable, the task was deleted: those who wait are told
                self.answer(error)
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_SECONDS):
                    await self.changed.wait()
