"""How much and how fast: request rates, and bodies that are read only as far as they are allowed to be."""

import asyncio
import time
from collections.abc import Callable, Hashable

from starlette.requests import ClientDisconnect, Request

from repshare.relay.problems import Problem

MOST_BUCKETS = 100_000


class Rates:
    """A token bucket for each key: `per_second` on average, `burst` at once. 0 a second: no limit."""

    def __init__(self, per_second: float, burst: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second, self._burst, self._clock = per_second, burst, clock
        self._buckets: dict[Hashable, tuple[float, float]] = {}  # what is left, and when that was so

    def take(self, key: Hashable) -> float:
        """Use one; 0 if there was one, otherwise the seconds until there will be."""
        if not self._per_second:
            return 0.0
        now = self._clock()
        left, then = self._buckets.get(key, (self._burst, now))
        left = min(self._burst, left + (now - then) * self._per_second)
        if left < 1:
            return (1 - left) / self._per_second
        if len(self._buckets) >= MOST_BUCKETS:
            self._forget_full(now)
        self._buckets[key] = (left - 1, now)
        return 0.0

    def _forget_full(self, now: float) -> None:
        rate = self._per_second
        full = [key for key, (left, then) in self._buckets.items() if left + (now - then) * rate >= self._burst]
        for key in full or list(self._buckets):
            del self._buckets[key]


async def read_body(request: Request, most_bytes: int, seconds: float) -> bytes:
    """The request's body, read no further than `most_bytes` and no longer than `seconds`."""
    announced = request.headers.get("content-length")
    if announced is not None and announced.isdigit() and int(announced) > most_bytes:
        raise Problem("too-large", f"a body of {int(announced):,} bytes; at most {most_bytes:,} are taken")
    try:
        async with asyncio.timeout(seconds):
            return await _read(request, most_bytes)
    except TimeoutError:
        raise Problem("too-slow", f"the body had not arrived after {seconds:g} seconds") from None
    except ClientDisconnect:
        raise Problem("malformed", "the client went away in the middle of the body") from None


async def _read(request: Request, most_bytes: int) -> bytes:
    size, parts, more = 0, [], True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        part, more = message.get("body", b""), message.get("more_body", False)
        size += len(part)
        if size > most_bytes:
            raise Problem("too-large", f"the body is longer than the {most_bytes:,} bytes that are taken")
        parts.append(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
