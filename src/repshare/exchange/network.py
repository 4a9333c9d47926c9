"""Eclipse Zenoh as a network of peers: who is there, and asking some of them with a deadline.

Every peer is a Zenoh router, so that two which cannot reach each other talk through those between them; and those
that hear of each other connect directly where they can, so that nobody's going takes the others apart.
"""

import ctypes
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote, unquote

import zenoh
from zenoh.handlers import Callback

from repshare.errors import ConfigError, Unreachable

LONGEST_NAME = 64  # characters
MOST_LIVE = 10_000  # names remembered as live, whoever invents them
MOST_REPLIES = 8  # to one question under one name: more than one is somebody else's
TRIES = 5  # to listen at a port that was free a moment ago
ASKS = 3  # of one that nobody answers for: a peer can be known a moment before the way to it is
PAUSE_SECONDS = 0.1  # before it is asked again
CLOSE_SECONDS = 5.0
OWN_LINK_SECONDS = 1.0  # that a neighbour may keep this one from sending to it, before the link is closed


@dataclass(frozen=True)
class Tls:
    """PEM files for endpoints that begin with tls/ or quic/."""

    ca: Path | None = None
    """Certificates of the authority that vouches for the peers."""
    cert: Path | None = None
    """This peer's certificate: to listen, and where others ask for one."""
    key: Path | None = None
    """The certificate's private key."""
    mutual: bool = False
    """Ask those who connect for a certificate, too."""


class Answer(NamedTuple):
    """What came of asking a peer: bytes, maybe none; or why there are none; or that nothing more will come."""

    name: str
    body: bytes | None
    trouble: str | None = None
    last: bool = False


class Network:
    """One peer's place among those of a task."""

    def __init__(
        self,
        task: str,
        name: str,
        answer: Callable[[], bytes],
        *,
        listen: Sequence[str],
        connect: Sequence[str],
        multicast: bool,
        tls: Tls,
        limit: int,
    ) -> None:
        """`answer` gives what others get who ask; replies longer than `limit` bytes are refused."""
        self.name, self._limit, self._task = name, limit, quote(task, safe="")
        self._live: set[str] = set()
        self._lock = threading.Lock()
        self.session, self.listening = _open(listen, connect, multicast=multicast, tls=tls, limit=limit)
        release = self._place(name)
        try:
            self._queryable = self.session.declare_queryable(release, lambda query: query.reply(release, answer()))
            self._token = self.session.liveliness().declare_token(self._token_of(quote(name, safe="")))
            self._watching = self.session.liveliness().declare_subscriber(
                self._token_of("*"), self._notice, history=True
            )
        except BaseException:
            self.session.close()
            raise

    def live(self) -> list[str]:
        """The other peers that are there, sorted."""
        with self._lock:
            return sorted(self._live - {self.name})

    def leave(self) -> None:
        """Leave, but let the links end with the process, which is about to end itself.

        A router of Zenoh 1.10 that closes its links may panic: harmless, but a page of backtrace.
        """
        self._undeclare()
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.session))  # what is dropped would be closed

    def close(self) -> None:
        """Leave, within a few seconds whatever Zenoh does."""
        closing = threading.Thread(target=self._close, daemon=True)
        closing.start()
        closing.join(CLOSE_SECONDS)

    def _close(self) -> None:
        self._undeclare()
        with suppress(BaseException):  # nothing can interrupt this thread: it is closed already, or Zenoh panicked
            self.session.close()

    def _undeclare(self) -> None:
        with suppress(zenoh.ZError):  # it was closed before
            self._token.undeclare()
            self._queryable.undeclare()
            self._watching.undeclare()

    def question(self, deadline: float) -> "Question":
        """Begin to ask, for no longer than until this point of `time.monotonic`."""
        return Question(self.session, self._place, self._limit, deadline)

    def _place(self, name: str) -> str:
        return f"repshare/{self._task}/{quote(name, safe='')}/release"

    def _token_of(self, quoted: str) -> str:
        return f"repshare/{self._task}/{quoted}/live"

    def _notice(self, sample: zenoh.Sample) -> None:
        name = unquote(str(sample.key_expr).split("/")[2])
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
            return
        with self._lock:
            if sample.kind == zenoh.SampleKind.DELETE:
                self._live.discard(name)
            elif len(self._live) < MOST_LIVE:
                self._live.add(name)


class Question:
    """Peers asked beside each other, until a deadline."""

    def __init__(self, session: zenoh.Session, place: Callable[[str], str], limit: int, deadline: float) -> None:
        self._session, self._place, self._limit, self._deadline = session, place, limit, deadline
        self._answers: queue.SimpleQueue[Answer] = queue.SimpleQueue()
        self._over = zenoh.CancellationToken()

    def ask(self, name: str, *, again: int = ASKS - 1) -> None:
        """Ask this peer, too."""
        heard = 0

        def hear(reply: zenoh.Reply) -> None:
            nonlocal heard
            heard += 1
            if heard <= MOST_REPLIES:
                self._answers.put(self._judge(name, reply))

        def end() -> None:
            if heard or not again or self._over.is_cancelled:
                self._answers.put(Answer(name, None, last=True))
            else:
                self._later(lambda: self.ask(name, again=again - 1), name)

        # Everyone who answers under this name is heard, so that an impostor cannot keep the true one from it.
        left = max(self._deadline - time.monotonic(), 0.001)
        try:
            self._session.get(
                self._place(name),
                Callback(hear, end),
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                timeout=left,
                cancellation_token=self._over,
            )
        except zenoh.ZError as error:
            raise Unreachable(f"the network of peers is closed: {error}") from error

    def _later(self, ask: Callable[[], None], name: str) -> None:
        def work() -> None:
            try:
                ask()
            except Unreachable:
                self._answers.put(Answer(name, None, last=True))

        timer = threading.Timer(PAUSE_SECONDS, work)
        timer.daemon = True
        timer.start()

    def answers(self) -> Iterator[Answer]:
        """What comes, as it comes; it ends at the deadline."""
        while (left := self._deadline - time.monotonic()) > 0:
            try:
                yield self._answers.get(timeout=left)
            except queue.Empty:
                return

    def close(self) -> None:
        """Whatever still comes is not heard."""
        self._over.cancel()

    def _judge(self, name: str, reply: zenoh.Reply) -> Answer:
        if reply.ok is None:
            return Answer(name, None, "it answered with an error")
        size = len(reply.ok.payload)
        if size > self._limit:
            return Answer(name, None, f"a reply of {size:,} bytes; at most {self._limit:,} are taken")
        return Answer(name, reply.ok.payload.to_bytes())


def _open(
    listen: Sequence[str], connect: Sequence[str], *, multicast: bool, tls: Tls, limit: int
) -> tuple[zenoh.Session, tuple[str, ...]]:
    for left in reversed(range(TRIES)):
        places = tuple(_with_port(endpoint) for endpoint in listen)
        try:
            return zenoh.open(_configure(places, connect, multicast=multicast, tls=tls, limit=limit)), places
        except zenoh.ZError as error:
            if places == tuple(listen) or not left:
                reason = str(error).partition(" at /")[0][:300]
                raise ConfigError(f"cannot listen at {', '.join(places) or 'any place'}: {reason}") from error
    raise AssertionError("the last try returns or raises")


def _configure(listen: Sequence[str], connect: Sequence[str], *, multicast: bool, tls: Tls, limit: int) -> zenoh.Config:
    both = {"router": ["router"], "peer": ["router", "peer"]}
    settings: dict[str, Any] = {
        "mode": "router",
        "listen/endpoints": list(listen),
        "connect/endpoints": list(connect),
        "connect/timeout_ms": -1,  # go on at once, and never give up
        "connect/exit_on_failure": False,
        "scouting/multicast/enabled": multicast,
        "scouting/multicast/autoconnect": both,
        "scouting/gossip/enabled": True,
        "scouting/gossip/autoconnect": both,
        "adminspace/enabled": False,
        "transport/shared_memory/enabled": False,
        "transport/link/rx/max_message_size": 2 * limit,
        "transport/link/tx/queue/congestion_control/block/wait_before_close": int(OWN_LINK_SECONDS * 1e6),
    }
    files = {
        "root_ca_certificate": tls.ca,
        "listen_certificate": tls.cert,
        "listen_private_key": tls.key,
        "connect_certificate": tls.cert if tls.mutual else None,
        "connect_private_key": tls.key if tls.mutual else None,
    }
    for name, path in files.items():
        if path is not None:
            if not path.is_file():
                raise ConfigError(f"{path} cannot be read")
            settings[f"transport/link/tls/{name}"] = str(path)
    settings["transport/link/tls/enable_mtls"] = tls.mutual
    config = zenoh.Config()
    for key, value in settings.items():
        try:
            config.insert_json5(key, json.dumps(value))
        except zenoh.ZError as error:
            raise ConfigError(f"Zenoh does not take {value} as {key}: {str(error)[:200]}") from error
    return config


def _with_port(endpoint: str) -> str:
    """The same endpoint, with a port that is free in the place of port 0: Zenoh does not tell which one it took."""
    protocol, _, address = endpoint.partition("/")
    host, _, port = address.rpartition(":")
    if port != "0":
        return endpoint
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    kind = socket.SOCK_DGRAM if protocol in ("udp", "quic") else socket.SOCK_STREAM
    try:
        with socket.socket(family, kind) as free:
            free.bind((bare, 0))
            return f"{protocol}/{host}:{free.getsockname()[1]}"
    except OSError as error:
        raise ConfigError(f"cannot listen at {endpoint}: {error.strerror}") from error


def check_name(name: str) -> None:
    """Raise ConfigError if this cannot name a peer or a task."""
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or "/" in name or not name.strip(" ."):
        raise ConfigError(f"{name[:80]!r} is not a name: 1 to {LONGEST_NAME} printable characters without /")
