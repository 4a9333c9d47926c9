"""Load: concurrent clients, each on a connection of its own, publishing and collecting in turn as fast as they can.

Requests are encoded before the clock starts, so that the generator is never what limits a server.
"""

import asyncio
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import uvloop


class Pair(NamedTuple):
    """The two requests of a round trip, as bytes."""

    publish: bytes
    collect: bytes


@dataclass
class Load:
    """What was measured in one turn."""

    seconds: float = 0.0
    processor: float = 0.0  # seconds of the server's
    publishes: list[float] = field(default_factory=list)  # seconds, one a request
    collects: list[float] = field(default_factory=list)
    sent: int = 0  # bytes, heads included
    received: int = 0

    @property
    def rate(self) -> float:
        """Round trips a second."""
        return len(self.collects) / self.seconds

    @property
    def trips(self) -> list[float]:
        """Seconds of each round trip."""
        return [sum(pair) for pair in zip(self.publishes, self.collects, strict=False)]


class Connection(asyncio.Protocol):
    """One connection, kept open; one request at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin."""
        self.transport, self._buffer, self._missing = transport, b"", 0
        self._answer: asyncio.Future[bytes] | None = None

    def ask(self, request: bytes) -> "asyncio.Future[bytes]":
        """Send a request; the whole answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)  # type: ignore[attr-defined]
        return self._answer

    def data_received(self, data: bytes) -> None:
        """Take a part of the answer."""
        self._buffer = self._buffer + data if self._buffer else data
        head = self._buffer.find(b"\r\n\r\n")
        if head < 0:
            return
        begin = self._buffer.index(b"content-length: ") + 16
        size = head + 4 + int(self._buffer[begin : self._buffer.index(b"\r", begin)])
        if len(self._buffer) < size:
            return
        answer, self._buffer = self._buffer, b""
        if self._answer is not None and not self._answer.done():
            if answer.startswith(b"HTTP/1.1 200"):
                self._answer.set_result(answer)
            else:
                self._answer.set_exception(RuntimeError(answer[:1000].decode(errors="replace")))

    def connection_lost(self, exc: Exception | None) -> None:
        """The server hung up."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(RuntimeError(f"the server closed the connection: {exc}"))


def run(port: int, pairs: Sequence[Pair], *, clients: int, seconds: float, processor: Callable[[], float]) -> Load:
    """Let so many clients at a time make round trips; after a run-up, count. `processor`: the server's seconds."""
    return uvloop.run(_run(port, pairs, clients, seconds, processor))


def answer_sizes(port: int, pair: Pair) -> list[int]:
    """How many bytes the bodies of the answers to these requests have."""

    async def ask() -> list[int]:
        transport, connection = await asyncio.get_running_loop().create_connection(Connection, "127.0.0.1", port)
        sizes = [len((await connection.ask(request)).partition(b"\r\n\r\n")[2]) for request in pair]
        transport.close()
        return sizes

    return uvloop.run(ask())


async def _run(port: int, pairs: Sequence[Pair], clients: int, seconds: float, processor: Callable[[], float]) -> Load:
    loop, load, over = asyncio.get_running_loop(), Load(), asyncio.Event()
    opened = [await loop.create_connection(Connection, "127.0.0.1", port) for _ in range(clients)]
    await asyncio.gather(*(connection.ask(pairs[0].collect) for _, connection in opened))  # all have been let in
    work = [
        asyncio.create_task(_work(connection, pairs, random.Random(number), load, over))
        for number, (_, connection) in enumerate(opened)
    ]
    await asyncio.sleep(min(0.3, seconds / 3))  # run-up
    begun, spent = time.perf_counter(), processor()
    load.publishes.clear()
    load.collects.clear()
    load.sent = load.received = 0
    await asyncio.wait(work, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    load.seconds, load.processor = time.perf_counter() - begun, processor() - spent
    counted = Load(**vars(load) | {"publishes": load.publishes[:], "collects": load.collects[:]})
    over.set()
    await asyncio.gather(*work)
    for transport, _ in opened:
        transport.close()
    return counted


async def _work(
    connection: Connection, pairs: Sequence[Pair], rng: random.Random, load: Load, over: asyncio.Event
) -> None:
    clock = time.perf_counter
    while not over.is_set():
        publish, collect = rng.choice(pairs)
        begun = clock()
        received = len(await connection.ask(publish))
        between = clock()
        received += len(await connection.ask(collect))
        load.publishes.append(between - begun)
        load.collects.append(clock() - between)
        load.sent += len(publish) + len(collect)
        load.received += received
