"""The process that serves a relay: listening, TLS, time limits for connections, and a shutdown that loses nothing."""

import gc
import logging
import signal
import socket
import ssl
import sys
from asyncio import AbstractEventLoop, TimerHandle, Transport
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from repshare.files import explain_errors
from repshare.relay.app import make_app
from repshare.relay.monitoring import logs
from repshare.relay.monitoring.audit_log import AuditLog
from repshare.relay.options import Address, RelayOptions
from repshare.relay.service import Service
from repshare.stores import Database

IDLE_SECONDS = 75  # between requests; proxies keep connections open for about a minute
LONGEST_HEAD_BYTES = 65_536
MOST_HEADERS = 100  # in a head: each takes far more memory than its bytes
MOST_PIPELINED = 20  # requests that wait on a connection for the one before them
MOST_UNREAD_BYTES = 16_384  # of an answer that do not count yet
MOST_JOINED_BYTES = 65_536
LAST_SECONDS = 0.5  # at a stop, for requests that are on their way over connections that look idle
STOP_SECONDS = 40  # for requests under way; longer than a body may take
BACKLOG = 2048
TLS_HELLO = b"\x16\x03"  # how a client of TLS begins
MOST_FILES = 65_536
SPARE_FILES = 64  # for the store, the log and what is imported late
SWITCH_SECONDS = 0.0005  # between threads: those with little to do need not wait for one that makes a large answer


def serve(database: Database, options: RelayOptions, address: Address, audit: AuditLog | None = None) -> None:
    """Serve until SIGTERM or SIGINT; then finish what is under way and return."""
    address.check(insecure=options.insecure)
    sys.setswitchinterval(SWITCH_SECONDS)
    options = _within_files(options)
    listener = _listen(address)
    app = make_app(database, options, audit)
    config = uvicorn.Config(
        app,
        http=RelayProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        backlog=BACKLOG,
        proxy_headers=address.behind_proxy,
        forwarded_allow_ips="*" if address.behind_proxy else None,
        **_tls(address),
    )
    with explain_errors("the certificate or its key cannot be used"):
        config.load()
    gc.collect()
    gc.freeze()  # what is there for good is not looked through again while requests wait
    RelayServer(config, _url(address, listener)).run(sockets=[listener])
    logs.log_event("stopped")


class RelayServer(uvicorn.Server):
    """uvicorn's, which says where it listens, and on its way out answers first the requests that wait for a change."""

    def __init__(self, config: uvicorn.Config, url: str) -> None:
        super().__init__(config)
        self._url = url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin, and say so."""
        await super().startup(sockets)
        logs.log_event("listening", url=self._url)
        print(f"repshare relay at {self._url} (its API: {self._url}/docs). Ctrl-C stops it.", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is under way."""
        logs.log_event("stopping")
        self.config.app.state.service.versions.stop()  # type: ignore[union-attr]
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second Ctrl-C stops at once. Unlike uvicorn, end with exit code 0: stopping was asked for."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


class RelayProtocol(HttpToolsProtocol):
    """A connection that is closed when a request's head does not arrive in time or end, or its answer is not read.

    uvicorn itself waits for ever for the first request, for the rest of a head once a byte of it is there, and for
    answers to be read.
    """

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        self._joined = JoiningTransport(transport, self.loop)
        super().connection_made(self._joined)  # type: ignore[arg-type]
        transport.set_write_buffer_limits(high=MOST_UNREAD_BYTES)
        self._head_bytes = 0
        self._timers: dict[str, TimerHandle] = {}  # of a head that is awaited, and of an answer that is not read
        self._stopping = self._in_head = False
        self._start_head_timer()
        self._close_others(self._service.connections.add(self, self._address, 1), "too many connections")

    def data_received(self, data: bytes) -> None:
        """Take what came."""
        self._head_bytes += len(data)
        self._received = data
        super().data_received(data)
        if self._in_head and self._head_bytes > LONGEST_HEAD_BYTES:
            self._close()
        elif self.cycle is None or self.cycle.response_complete:  # a part of a head, or of a body that is not wanted
            self._start_head_timer()
        if self._in_head:
            self._close_others(
                self._service.heads.add(self, self._address, len(data) + self._counted), "too long heads"
            )

    def on_message_begin(self) -> None:
        """Note that a head begins."""
        if len(self.pipeline) >= MOST_PIPELINED:
            raise ValueError("too many requests at once")  # ends the connection
        super().on_message_begin()
        self._in_head, self._counted = True, 0

    def on_url(self, url: bytes) -> None:
        """Count a part of the request's line."""
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        super().on_header(name, value)
        self._count(len(name) + len(value) + 4)  # with what is between them

    def _count(self, size: int) -> None:
        self._counted += size
        if self._counted > LONGEST_HEAD_BYTES or len(self.headers) > MOST_HEADERS:
            raise ValueError("the head is too long")  # ends the connection

    def send_400_response(self, msg: str) -> None:
        """End the connection; with an answer, unless one to another request is under way."""
        if self._received.startswith(TLS_HELLO):
            msg = "TLS on a port without TLS: the client should use http, or this relay --certificate and --key"
        self._service.log("invalid request", address=self._address, reason=msg)
        if self.cycle is None or self.cycle.response_complete:
            super().send_400_response(msg)
        else:
            self.transport.abort()

    def on_headers_complete(self) -> None:
        """Note that a head is complete."""
        super().on_headers_complete()
        self._in_head = False
        self._service.heads.remove(self)
        self._head_bytes = 0
        self._stop("head")
        if self._stopping:
            super().shutdown()  # after this one's answer

    def on_body(self, body: bytes) -> None:
        """Take a part of a body, which is limited elsewhere."""
        super().on_body(body)
        self._head_bytes = 0

    def shutdown(self) -> None:
        """Answer what is under way or on its way, and say with it that no more will be; then close."""
        self._stopping = True
        if self.cycle is None or self.cycle.response_complete:
            self.loop.call_later(LAST_SECONDS, super().shutdown)
        else:
            super().shutdown()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection: it has ended."""
        self._stop("head")
        self._stop_reading()
        self._service.heads.remove(self)
        self._service.connections.remove(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Start a timer: a part of an answer waits to be read."""
        super().pause_writing()
        self._left = self.transport.get_write_buffer_size()
        self._start_read_timer()
        for one in self._service.unread.add(self, self._address, self._joined.written):
            one.abandon()

    def resume_writing(self) -> None:
        """Stop the timer: the answer was read."""
        self._stop_reading()
        super().resume_writing()

    def abandon(self) -> None:
        """Close at once, whatever has not been read."""
        self._stop_reading()
        self._service.metrics.abandoned.inc()
        self.loop.call_soon(self.transport.abort)  # not in the midst of a write

    @property
    def _address(self) -> str:
        """The address of the client: behind a proxy, the one that the proxy names."""
        client = self.cycle.scope["client"] if self.cycle else self.client
        return client[0] if client else ""

    def _close_others(self, those: list["RelayProtocol"], reason: str) -> None:
        for one in those:
            self._service.log("connection closed", address=one._address, reason=reason)
            self.loop.call_soon(one.transport.abort)

    @property
    def _service(self) -> Service:
        return self.config.app.state.service  # type: ignore[union-attr, no-any-return]

    def _start_read_timer(self) -> None:
        self._timers["read"] = self.loop.call_later(self._service.options.read_seconds, self._check_reading)

    def _check_reading(self) -> None:
        before, self._left = self._left, self.transport.get_write_buffer_size()
        if self._left < before:
            self._start_read_timer()
        else:
            self.abandon()

    def _stop_reading(self) -> None:
        self._service.unread.remove(self)
        self._stop("read")

    def _start_head_timer(self) -> None:
        if "head" not in self._timers:
            self._timers["head"] = self.loop.call_later(self._service.options.head_seconds, self._close)

    def _stop(self, timer: str) -> None:
        if timer in self._timers:
            self._timers.pop(timer).cancel()

    def _close(self) -> None:
        self._stop("head")
        self.transport.close()


class JoiningTransport:
    """A transport that sends together what is written in one turn of the loop: an answer's head does not go alone."""

    def __init__(self, transport: Transport, loop: AbstractEventLoop) -> None:
        self._transport, self._loop = transport, loop
        self._parts: list[bytes] = []
        self._size = 0
        self.written = 0  # bytes at once, last time: kept whole until the last of them is sent

    def write(self, data: bytes) -> None:
        """Send this, soon."""
        if len(data) > MOST_JOINED_BYTES:  # copied as little as can be: other connections wait meanwhile
            self._send()
            self.written = len(data)
            self._transport.write(memoryview(data))
            return
        self._parts.append(data)
        self._size += len(data)
        if self._size > MOST_JOINED_BYTES:
            self._send()
        elif len(self._parts) == 1:
            self._loop.call_soon(self._send)

    def close(self) -> None:
        """Send what is left, then close."""
        self._send()
        self._transport.close()

    def _send(self) -> None:
        if self._parts:
            whole = b"".join(self._parts)
            self._parts.clear()
            self.written, self._size = self._size, 0
            self._transport.write(whole)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with explain_errors(f"cannot listen on {address.host} port {address.port}"):
        return socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)


def _url(address: Address, listener: socket.socket) -> str:
    scheme = "https" if address.certificate else "http"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"


def _tls(address: Address) -> dict[str, Any]:
    if address.certificate is None:
        return {}
    files = {"ssl_certfile": str(address.certificate), "ssl_keyfile": str(address.key)}
    if address.client_ca is None:
        return files
    return {**files, "ssl_ca_certs": str(address.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}


def _within_files(options: RelayOptions) -> RelayOptions:
    """Raise the limit on files as far as the system allows: the usual 1,024 are few for a server.

    No more connections than there can be files, and some to spare: what needs one then would fail without a word.
    """
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return options

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, MOST_FILES) if hard != resource.RLIM_INFINITY else MOST_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS has another limit below the one that it tells
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft == resource.RLIM_INFINITY or options.connections <= soft - SPARE_FILES:
        return options
    connections = max(1, soft - SPARE_FILES)
    logs.log_event("fewer connections than wanted", logging.WARNING, connections=connections, files=soft)
    return replace(options, connections=connections)
