"""Connections that take a bounded time and memory."""

import asyncio
import math
from asyncio import AbstractEventLoop, TimerHandle, Transport
from collections.abc import Callable
from functools import partial
from typing import Any, cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from repshare.relay.service import Service

LONGEST_HEAD_BYTES = 65_536
MOST_HEADERS = 100  # in a head: each takes far more memory than its bytes
MOST_PIPELINED = 20  # requests that wait on a connection for the one before them
MOST_UNREAD_BYTES = 16_384  # of an answer that do not count yet
TLS_HELLO = b"\x16\x03"  # how a client of TLS begins
UNREAD = "its answer is not read"
BAD_REQUEST = b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


class GuardedConnection(asyncio.Protocol):
    """A connection, between its transport and uvicorn's protocol.

    "Incomplete request headers, idle connections, unread answers and very slow senders do not stop other clients"
    (docs/threats.md): uvicorn alone takes heads of any length, and waits for ever for the first of them, for the rest
    of one and for answers to be read. A parser here counts what comes; uvicorn then gets the same bytes.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        self._service: Service = app_state["service"]
        self._loop = asyncio.get_running_loop()
        self._http = HttpToolsProtocol(config, server_state, {**app_state, "connection": self}, _loop)
        self._parser = HttpRequestParser(self)
        self._parser.set_dangerous_leniencies(lenient_data_after_close=True)  # uvicorn's parser leaves such data unread
        self._timers: dict[str, TimerHandle] = {}  # for a head that is awaited, and for an answer that is not read
        self._in_head, self._head_bytes, self._counted, self._headers = False, 0, 0, 0
        self._is_counted = False  # whether a head has arrived in part
        self._under_way = 0  # requests that are not answered yet
        self.sending = 0  # bytes at once, as the application says: kept whole until the last of them is sent

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin to wait for the first head."""
        self._transport = cast(Transport, transport)
        self._address = (transport.get_extra_info("peername") or ("",))[0]
        self._http.connection_made(self._transport)
        self._transport.set_write_buffer_limits(high=MOST_UNREAD_BYTES)
        self._start("head", self._service.options.head_seconds, self._transport.close)
        if gone := self._service.connections.add(self, self._address, 1):
            self._drop(gone, "too many connections")

    def data_received(self, data: bytes) -> None:
        """Count what came, and pass it on."""
        self._head_bytes += len(data)
        try:
            self._parser.feed_data(data)
        except HttpParserUpgrade:  # uvicorn answers it like any other request
            pass
        except HttpParserError:
            self._refuse(data)
            return
        if self._in_head:
            self._is_counted = True
            self._drop(self._service.heads.add(self, self._address, self._head_bytes), "too long heads")
        else:
            self._head_bytes = 0
            if self._is_counted:
                self._is_counted = False
                self._service.heads.remove(self)
        if self._head_bytes > LONGEST_HEAD_BYTES:
            self._refuse(data)
            return
        if self._in_head or not self._under_way:  # part of a head, or of a body that is not wanted
            self._start("head", self._service.options.head_seconds, self._transport.close)
        self._http.data_received(data)

    def on_message_begin(self) -> None:
        """Begin to count a head."""
        if self._under_way > MOST_PIPELINED:
            raise ValueError("too many requests at once")
        self._in_head, self._counted, self._headers = True, 0, 0

    def on_url(self, url: bytes) -> None:
        """Count a part of the request's line."""
        self._counted += len(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._headers += 1
        self._counted += len(name) + len(value) + 4  # with what is between them
        if self._counted > LONGEST_HEAD_BYTES or self._headers > MOST_HEADERS:
            raise ValueError("the head is too long")

    def on_headers_complete(self) -> None:
        """Note that a head is complete."""
        self._in_head = False
        self._under_way += 1
        self._stop("head")

    def answered(self) -> None:
        """Note that a request was answered."""
        self._under_way -= 1

    def pause_writing(self) -> None:
        """Start a timer: a part of an answer waits to be read."""
        self._http.pause_writing()
        self._expect_reading()
        self._drop(self._service.unread.add(self, self._address, self.sending), UNREAD)

    def resume_writing(self) -> None:
        """Stop the timer: the answer was read."""
        self._stop("read")
        self._service.unread.remove(self)
        self._http.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection: it has ended."""
        for timer in list(self._timers):
            self._stop(timer)
        for quota in (self._service.connections, self._service.heads, self._service.unread):
            quota.remove(self)
        self._http.connection_lost(exc)

    def _refuse(self, data: bytes) -> None:
        """End the connection; with an answer, unless one to another request is under way."""
        reason = "not HTTP, or too long or too many heads"
        if data.startswith(TLS_HELLO):
            reason = "TLS on a port without TLS: the client should use http, or this relay --certificate and --key"
        self._service.log_stranger("invalid request", address=self._address, reason=reason)
        if self._under_way:
            self._transport.abort()
        else:
            self._transport.write(BAD_REQUEST)
            self._transport.close()

    def _drop(self, those: list["GuardedConnection"], reason: str) -> None:
        for one in those:
            self._service.log_stranger("connection closed", address=one._address, reason=reason)
            self._loop.call_soon(one._transport.abort)  # not in the midst of a write
            if reason == UNREAD:
                one._stop("read")
                self._service.metrics.abandoned.inc()

    def _expect_reading(self, before: float = math.inf) -> None:
        """Give up the answer if nothing of it is read for some time."""
        left = self._transport.get_write_buffer_size()
        if left < before:
            self._start("read", self._service.options.read_seconds, partial(self._expect_reading, left))
        else:
            self._service.unread.remove(self)
            self._drop([self], UNREAD)

    def _start(self, timer: str, seconds: float, then: Callable[[], None]) -> None:
        def end() -> None:
            del self._timers[timer]
            then()

        if timer not in self._timers:
            self._timers[timer] = self._loop.call_later(seconds, end)

    def _stop(self, timer: str) -> None:
        if timer in self._timers:
            self._timers.pop(timer).cancel()
