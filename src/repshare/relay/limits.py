"""Limits: request rates, memory for bodies and answers, and the connections to close where there is too little."""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import Any

from starlette.requests import ClientDisconnect, Request

from repshare.board import Board, Wants
from repshare.board.state import BoardState
from repshare.relay.problems import Problem
from repshare.sharing.task import Task
from repshare.stores import Transaction

MOST_BUCKETS = 100_000
MEMORY_BYTES = 128_000_000
PART_BYTES = 65_536  # for each such part of its memory, a request costs one more of its rate
ROW_BYTES = 512  # memory of a row besides its numbers, while it is read or written
LONGEST_DEBT = 5  # bursts: with the burst of a relay, ten seconds
_LATER = {"Retry-After": "1"}

Take = Callable[[int], None]


class RateLimiter:
    """A token bucket for each key: `per_second` on average, `burst` at once. 0 a second: no limit."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._buckets: dict[Hashable, tuple[float, float]] = {}  # tokens left, and the time of that count

    def take(self, key: Hashable, cost: float = 1.0) -> float:
        """Use this many, and return 0; or, if they are not available, the seconds until they will be.

        A full bucket lets any request in. One that costs more than is there leaves a debt of at most LONGEST_DEBT
        bursts.
        """
        if not self._per_second:
            return 0.0
        now = self._clock()
        left, then = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._per_second)
        cost = min(cost, LONGEST_DEBT * self._burst)
        needed = min(cost, max(self._burst - 1, 1.0))
        if left < needed:
            return (needed - left) / self._per_second
        if len(self._buckets) >= MOST_BUCKETS:
            rate = self._per_second
            full = [key for key, (left, then) in self._buckets.items() if left + (now - then) * rate >= self._burst]
            for each in full or list(self._buckets):
                del self._buckets[each]
        self._buckets[key] = (left - cost, now)
        return 0.0


class MemoryBudget:
    """The memory for bodies and answers at the same time: MEMORY_BYTES, a quarter of that for one key."""

    def __init__(self, longest: int) -> None:
        """`longest`: bytes of the longest body that is accepted; there is always room for several."""
        self._most = max(MEMORY_BYTES, 8 * longest)
        self.each = self._most // 4
        self._taken: Counter[Hashable] = Counter()
        self._total = 0

    @contextmanager
    def hold(self, key: Hashable) -> Iterator[Take]:
        """Yield a function that takes bytes until the end of the block; it raises a Problem if there is no room."""
        held = 0

        def take(size: int) -> None:
            nonlocal held
            if self._taken[key] + size > self.each:
                raise Problem("too-fast", f"more than {self.each:,} bytes under way with one token", _LATER)
            if self._total + size > self._most:
                raise Problem("busy", f"more than {self._most:,} bytes under way", _LATER)
            held += size
            self._taken[key] += size
            self._total += size

        try:
            yield take
        finally:
            self._total -= held
            self._taken[key] -= held
            if not self._taken[key]:
                del self._taken[key]


class ConnectionQuota:
    """A quota that connections share: of bytes, or of places.

    Where it is exceeded, the address that takes most of it loses its oldest connection.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._taking: dict[Any, tuple[str, int]] = {}  # those that have been here longest first
        self._sizes: Counter[str] = Counter()  # by address

    def add(self, one: Hashable, address: str, size: int) -> list[Any]:
        """Set what this connection takes from now on; return those to be closed. One alone may take any size."""
        if one in self._taking:
            self.remove(one)
        self._taking[one] = address, size
        self._sizes[address] += size
        gone = []
        while self._sizes.total() > self.most and len(self._taking) > 1:
            ((largest, _),) = self._sizes.most_common(1)
            gone.append(next(each for each, (there, _) in self._taking.items() if there == largest))
            self.remove(gone[-1])
        return gone

    def remove(self, one: Hashable) -> None:
        """Release this connection's share."""
        if one not in self._taking:
            return
        address, size = self._taking.pop(one)
        self._sizes[address] -= size
        if not self._sizes[address]:
            del self._sizes[address]


def size_of_rows(task: Task, rows: int) -> int:
    """The bytes that these rows, and the sums over clients, take while they are read or written."""
    return rows * (4 * task.columns + ROW_BYTES) + 8 * task.totals_size


def size_of_teacher(board: Board, wants: Wants) -> int:
    """The bytes that this question's answer will take, by what the board holds now."""

    def work(state: Transaction) -> int:
        task = board.task
        sizes = BoardState(task, state).sizes[: task.rows].tolist()
        return size_of_rows(task, sum(1 + min(wants.observations, size) for size in sizes))

    return board.store.read(work)


async def read_body(request: Request, most_bytes: int, seconds: float, take: Take = lambda size: None) -> bytes:
    """The request's body, read up to `most_bytes` and for at most `seconds`; `take` is told each part's size."""
    announced = request.headers.get("content-length")
    if announced is not None and announced.isdigit() and int(announced) > most_bytes:
        raise Problem("too-large", f"a body of {int(announced):,} bytes; at most {most_bytes:,} are accepted")
    size, parts = 0, []
    try:
        async with asyncio.timeout(seconds):
            async for part in request.stream():
                size += len(part)
                if size > most_bytes:
                    raise Problem("too-large", f"the body is longer than the {most_bytes:,} bytes that are accepted")
                take(len(part))
                parts.append(part)
    except TimeoutError:
        raise Problem("too-slow", f"the body had not arrived after {seconds:g} seconds") from None
    except ClientDisconnect:
        raise Problem("malformed", "the client disconnected in the middle of the body") from None
    return b"".join(parts)
