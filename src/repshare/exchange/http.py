"""HTTP with time limits, replies of bounded size, and another try where one may help."""

import contextlib
import http.client
import ipaddress
import json
import logging
import random
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2

from repshare.errors import ConfigError, ExchangeError, LeftOut, Malformed, Outdated, Refused, Unreachable
from repshare.files import explain_errors
from repshare.imports import in_one_line

LOG = "repshare.connection"
log = logging.getLogger(LOG)

TIMEOUT_SECONDS = 10.0
PATIENCE_SECONDS = 30.0
QUIET_SECONDS = 2.0  # waiting for less is not told
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.2, 10.0
LAST_TRY_SECONDS = 1.0  # the least time for an answer, also when patience is about to end
SPARING = 10  # while a relay is unavailable, trying to reach it takes at most about a tenth of the time
LONGEST_AFTER_SECONDS = 3600.0  # the longest Retry-After that is obeyed
REPLY_LIMIT = 128 * 2**20  # bytes of any reply
JSON_LIMIT = 2**20  # bytes of a reply that is JSON, which takes many times as much to be read
REASON_LIMIT = 2**16  # bytes of a reply that is an error: the rest is not read
LONGEST_REASON = 300  # characters of what a relay says that are passed on
KINDS: dict[type, str] = {int: "whole number", float: "number", bool: "true or false", str: "word"}
ERRORS: dict[int, type[ExchangeError]] = {400: Malformed, 409: Outdated, 412: LeftOut}  # by status; others are Refused


class Reply(NamedTuple):
    """An answer that is no error."""

    status: int
    headers: httpx2.Headers
    body: bytes

    def json(self) -> dict[str, Any]:
        """Return the JSON object in it, or Malformed."""
        self.check_type("application/json")
        try:
            document = json.loads(self.body)
        except (ValueError, RecursionError) as error:
            raise Malformed(f"the relay's reply is not JSON: {in_one_line(error)[:LONGEST_REASON]}") from error
        if not isinstance(document, dict):
            raise Malformed(f"the relay's reply is a JSON {type(document).__name__}, not an object")
        return document

    def value(self, name: str, kind: type) -> Any:
        """Return the value of this name in its JSON object, or Malformed if it is not of this kind."""
        value = self.json().get(name)
        if kind is float and type(value) is int and abs(value) < 2**53:
            value = float(value)
        if type(value) is not kind:
            raise Malformed(f"the relay's reply has no {KINDS[kind]} {name!r}")
        return value

    def check_type(self, expected: str) -> None:
        """Raise Malformed if the reply is of another type, such as a proxy's error page."""
        if (given := _media_type(self.headers)) != expected:
            raise Malformed(f"the reply is {given or 'of no type'}, not {expected}: is this a relay's address?")


class Connection:
    """One client's connection to one relay, kept open between requests."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ca: Path | None = None,
        cert: tuple[Path, Path] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        patience: float = PATIENCE_SECONDS,
        plain_http: bool = False,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        for name, seconds in (("timeout", timeout), ("patience", patience)):
            if not seconds > 0:
                raise ConfigError(f"{name} must be above 0 seconds, not {seconds}")
        secure = _check(url, token, plain_http=plain_http)
        self.url, self.timeout, self.patience = url.rstrip("/"), timeout, patience
        self._token, self._clock, self._sleep, self._jitter = token, clock, sleep, jitter
        self._unavailable, self._next_try = False, 0.0
        self._stream: Any = None  # the stream of the open connection
        headers = {"Accept-Encoding": "identity"}  # compressed replies may be far larger than they look
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # A proxy named in the environment sees nothing of https; of plain http it would see the token.
        self._at = f"{self.url}{_name_proxy(url) if secure else ''}"
        self._http = httpx2.Client(headers=headers, verify=_tls(ca, cert) if secure else False, trust_env=secure)

    def __repr__(self) -> str:
        return f"Connection({self.url!r})"

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
        wait: float = 0.0,
        limit: int = JSON_LIMIT,
    ) -> Reply:
        """Return the relay's answer, of at most `limit` bytes. `wait` is how long it was asked to wait for news.

        A temporary failure (no connection, no answer in time, 5xx, 429) is tried again until patience ends. After that
        there is one try at a time, and none for a while after a slow one, until the relay is available again.
        """
        request = self._http.build_request(method, self.url + path, params=query, headers=headers, content=body)
        started = told = self._clock()
        if started < self._next_try:
            raise Unreachable(f"{self.url} is still unavailable: next try in {self._next_try - started:.0f} s")
        for tries in count(1):
            begun = self._clock()
            try:
                reply = self._try(request, started + self.patience - begun, wait, limit)
                break
            except _TemporaryFailure as failure:
                now = self._clock()
                left = started + self.patience - now
                longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(tries, 20))
                pause = min(self._jitter() * longest, left) if failure.after is None else failure.after
                if self._unavailable or failure.final or left <= 0 or pause > left:
                    self._unavailable = True
                    self._next_try = now + max(failure.after or 0.0, SPARING * (now - begun))
                    tried = "1 try" if tries == 1 else f"{tries} tries"
                    raise Unreachable(f"{self._at}: {failure} ({tried} in {now - started:.1f} s)") from failure
                if now + pause - told > QUIET_SECONDS:
                    told = now
                    log.info("waiting for the relay (%.0f s) …", now + pause - started)
                self._sleep(pause)
        self._unavailable, self._next_try = False, 0.0
        if reply.status not in (200, 201, 204):
            raise ERRORS.get(reply.status, Refused)(self._reason(reply))
        return reply

    def _try(self, request: httpx2.Request, left: float, wait: float, longest: int) -> Reply:
        """Try once. Raises _TemporaryFailure if another try may succeed."""
        limit = min(self.timeout, max(left, LAST_TRY_SECONDS))
        request.extensions["timeout"] = httpx2.Timeout(limit, read=limit + wait).as_dict()
        request.extensions["trace"] = self._remember_stream
        # httpx2 limits each read from the network alone: a byte now and then would keep it reading for days.
        late = threading.Event()
        hanging_up = threading.Timer(max(left, limit) + wait, self._hang_up, [late])
        hanging_up.daemon = True
        hanging_up.start()
        try:
            with contextlib.closing(self._http.send(request, stream=True)) as response:
                reply = Reply(response.status_code, response.headers, self._read(response, longest))
        except httpx2.HTTPError as error:
            if late.is_set():
                raise _TemporaryFailure("the reply takes too long") from error
            # A certificate that is not trusted now will not be at the next try.
            raise _TemporaryFailure(in_one_line(error), final="CERTIFICATE" in str(error)) from error
        finally:
            hanging_up.cancel()
        if reply.status in (408, 429) or reply.status >= 500:
            raise _TemporaryFailure(self._reason(reply), after=_retry_after(reply.headers))
        return reply

    def _remember_stream(self, event: str, info: Mapping[str, Any]) -> None:
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._stream = info["return_value"]

    def _hang_up(self, late: threading.Event) -> None:
        """End the connection, also if another thread reads from it."""
        late.set()
        if self._stream is not None:
            with contextlib.suppress(OSError):  # it has ended by itself
                socket.socket.shutdown(self._stream.get_extra_info("socket"), socket.SHUT_RDWR)

    def _read(self, response: httpx2.Response, longest: int) -> bytes:
        if response.headers.get("Content-Encoding", "identity") != "identity":
            raise Malformed("the reply is compressed, which was not asked for")
        read = bytearray()
        for piece in response.iter_raw():
            read += piece
            if response.status_code >= 300 and len(read) > REASON_LIMIT:
                break
            if len(read) > longest:
                raise Malformed(f"the reply is longer than {longest} bytes")
        return bytes(read)

    def _reason(self, reply: Reply) -> str:
        """The error in one printable line, whatever its source, and without the token."""
        said = f"{reply.status} {http.client.responses.get(reply.status, '')}".strip()
        if 300 <= reply.status < 400:
            said = f"{said}: the relay is not here but at {reply.headers.get('Location', 'a place it does not name')}"
        elif _media_type(reply.headers) in ("application/problem+json", "application/json"):
            with contextlib.suppress(ValueError, KeyError, TypeError, RecursionError):
                said = f"{json.loads(reply.body)['detail']} ({said})"
        said = said.replace(self._token, "…") if self._token else said
        return "".join(c if c.isprintable() else " " for c in said)[:LONGEST_REASON]


class _TemporaryFailure(Exception):
    """A failure that may be over at the next try, and the seconds after which the relay asks for that."""

    def __init__(self, said: str, *, after: float | None = None, final: bool = False) -> None:
        super().__init__(said)
        self.after, self.final = after, final


def _check(url: str, token: str | None, *, plain_http: bool) -> bool:
    """Check a relay's URL; whether it is https. Raises ConfigError if it is none, or the token should not go there."""
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigError(f"the relay's address is not a URL: {error}") from error
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment:
        raise ConfigError(f"the relay's address must look like https://relay.example.org, not {parts.geturl()!r}")
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"the relay's address must not have a user or password: use {parts.scheme}://{host}")
    if token is not None and (not token.isascii() or not token.isprintable() or not token or " " in token):
        raise ConfigError("the token is not valid: it must be letters, digits and signs without spaces")
    if parts.scheme == "http" and token is not None and not plain_http and not _is_loopback(host):
        raise ConfigError(
            f"the token would go to {host} over plain http, where anyone between could read it: use https, "
            "or --plain-http (plain_http=True) if the network there is secure"
        )
    return parts.scheme == "https"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _name_proxy(url: str) -> str:
    """The environment's proxy on the way there, in words and without its password; nothing if there is none."""
    proxy = getproxies().get("https") or getproxies().get("all", "")
    named = proxy.rpartition("//")[2].rpartition("@")[2].strip("/")
    return f", by the proxy {named} of HTTPS_PROXY" if named and not proxy_bypass(urlsplit(url).hostname or "") else ""


def _tls(ca: Path | None, cert: tuple[Path, Path] | None) -> ssl.SSLContext:
    files = ", ".join(str(path) for path in (ca, *(cert or ())) if path)
    with explain_errors(f"{files} cannot be used"):
        context = ssl.create_default_context(cafile=None if ca is None else str(ca))
        if cert is not None:
            context.load_cert_chain(*map(str, cert))
    return context


def _retry_after(headers: httpx2.Headers) -> float | None:
    given = headers.get("Retry-After", "")
    return min(float(given), LONGEST_AFTER_SECONDS) if given.isdecimal() and len(given) < 7 else None


def _media_type(headers: httpx2.Headers) -> str:
    return str(headers.get("Content-Type", "")).partition(";")[0].strip().lower()
