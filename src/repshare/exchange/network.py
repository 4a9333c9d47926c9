"""Eclipse Zenoh as a network of peers: which peers are online, and asking some of them with a deadline.

Every peer is a Zenoh router, so that two which cannot reach each other talk through those between them; and those
that hear of each other connect directly where they can, so that one that leaves does not cut the others off.
"""

import ctypes
import json
import logging
import queue
import secrets
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import zenoh
from zenoh.handlers import Callback

from repshare.errors import ConfigError
from repshare.exchange.keys import CHALLENGE_BYTES
from repshare.files import explain_errors

FIRST = b"first"  # after a question's challenge: the peer's first release is asked for
LONGEST_NAME = 64  # characters
MOST_LIVE = 10_000  # names remembered as live in addition to known ones, whatever is invented
MOST_TOKENS = 8  # tokens remembered for one name
RENEW_SECONDS = 5.0  # between two declarations of a peer that it is online
MOST_REPLIES = 2  # a node that renews its declaration may answer a question twice
MOST_NODES = 16  # under one name: all but one are impostors
TRIES = 5  # to listen at a port that was free a moment ago
ASKS = 3  # a silent peer may be known a moment before there is a route to it
PAUSE_SECONDS = 0.1  # before it is asked again
CLOSE_SECONDS = 5.0
OWN_LINK_SECONDS = 1.0  # a neighbour may block its link for so long, then the link is closed
log = logging.getLogger("repshare.peer")


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


class PeerNetwork:
    """One peer's connection to the others of a task."""

    def __init__(
        self,
        task: str,
        name: str,
        answer: Callable[[bytes, bool], bytes],
        known: Callable[[str], bool],
        *,
        listen: Sequence[str],
        connect: Sequence[str],
        multicast: bool,
        tls: Tls,
        limit: int,
    ) -> None:
        """`answer` makes the reply to a challenge: the last release, or the first.

        Replies of others that are longer than `limit` bytes are refused.

        `known` tells the names that are always noticed, however many others are online.
        """
        self.name, self._limit, self._task, self._known = name, limit, quote(task, safe=""), known
        self._answer, self._declarations = answer, 0
        self._declared: tuple[Any, ...] = ()
        self._live: dict[str, set[str]] = {}  # by name: the tokens that it declared
        self._lock, self._changing, self._over = threading.Lock(), threading.Lock(), threading.Event()
        self.session, self.listening = _open(listen, connect, multicast=multicast, tls=tls, limit=limit)
        self._declare()
        everyone = f"repshare/{self._task}/*/live/*"
        self._watching = self.session.liveliness().declare_subscriber(everyone, self._notice, history=True)
        threading.Thread(target=self._renew, daemon=True).start()

    def live(self) -> list[str]:
        """Return the other peers that are online, sorted."""
        with self._lock:
            return sorted(set(self._live) - {self.name})

    def leave(self) -> None:
        """Leave, but let the links end with the process, which is about to end itself.

        A router of Zenoh 1.10 that closes its links may panic: harmless, but a page of backtrace.
        """
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.session))  # a dropped session would be closed
        _in_time(self._undeclare)

    def close(self) -> None:
        """Leave."""
        _in_time(self._close)

    def _close(self) -> None:
        self._undeclare()
        with suppress(BaseException):  # nothing can interrupt this thread: it is closed already, or Zenoh panicked
            self.session.close()

    def _declare(self) -> None:
        """Declare that this peer is online and answers. The old declaration ends after it, so that there is no gap."""
        self._declarations += 1
        address, before = self._address(self.name), self._declared
        release, token = f"{address}/release/{self._declarations}", f"{address}/live/{self._declarations}"
        self._declared = (
            self.session.declare_queryable(release, lambda query: self._reply(query, release)),
            self.session.liveliness().declare_token(token),
        )
        for each in before:
            each.undeclare()

    def _reply(self, query: zenoh.Query, key: str) -> None:
        asked = b"" if query.payload is None else query.payload.to_bytes()
        challenge, wanted = asked[:CHALLENGE_BYTES], asked[CHALLENGE_BYTES:]
        if len(challenge) != CHALLENGE_BYTES or wanted not in (b"", FIRST):
            query.reply_err(f"a question must bring a challenge of {CHALLENGE_BYTES} bytes")
        else:
            query.reply(key, self._answer(challenge, wanted == FIRST))

    def _renew(self) -> None:
        """Declare again: routers of Zenoh 1.10 may not tell their neighbours of one that was cut off and is back."""
        while not self._over.wait(RENEW_SECONDS):
            with self._changing, suppress(zenoh.ZError):
                if not self._over.is_set():
                    self._declare()

    def _undeclare(self) -> None:
        self._over.set()
        with self._changing, suppress(zenoh.ZError):  # it was closed before
            for each in (*self._declared, self._watching):
                each.undeclare()

    def question(self, deadline: float) -> "Question":
        """Begin to ask, for no longer than until this point of `time.monotonic`."""
        return Question(self.session, self._address, self._limit, deadline)

    def _address(self, name: str) -> str:
        return f"repshare/{self._task}/{quote(name, safe='')}"

    def _notice(self, sample: zenoh.Sample) -> None:
        _, _, quoted, _, token = str(sample.key_expr).split("/")
        name = unquote(quoted)
        if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable():
            return
        with self._lock:
            tokens = self._live.get(name, set())
            if sample.kind == zenoh.SampleKind.DELETE:
                tokens.discard(token)
            elif (tokens or len(self._live) < MOST_LIVE or self._known(name)) and len(tokens) < MOST_TOKENS:
                tokens.add(token)
            if tokens:
                self._live[name] = tokens
            else:
                self._live.pop(name, None)


class Question:
    """Peers asked in parallel, until a deadline, with a challenge that their answers must be signed with."""

    def __init__(self, session: zenoh.Session, address: Callable[[str], str], limit: int, deadline: float) -> None:
        self._session, self._address, self._limit, self._deadline = session, address, limit, deadline
        self._answers: queue.SimpleQueue[tuple[str, bytes | None]] = queue.SimpleQueue()
        self._over = zenoh.CancellationToken()
        self.challenge = secrets.token_bytes(CHALLENGE_BYTES)

    def ask(self, name: str, *, first: bool = False, again: int = ASKS - 1) -> None:
        """Ask this peer, too: for its last release, or its first."""
        heard = Counter[str]()  # replies by node, so that one node cannot use up the limit for all

        def hear(reply: zenoh.Reply) -> None:
            node = str(reply.replier_id and reply.replier_id.zid)
            if node in heard or len(heard) < MOST_NODES:
                heard[node] += 1
                if heard[node] <= MOST_REPLIES and (body := self._read(name, reply)) is not None:
                    self._answers.put((name, body))

        def end() -> None:
            if heard or not again or self._over.is_cancelled:
                self._answers.put((name, None))
            else:
                timer = threading.Timer(PAUSE_SECONDS, self.ask, [name], {"first": first, "again": again - 1})
                timer.daemon = True
                timer.start()

        # All answers under this name are read, so that an impostor cannot suppress the true peer's.
        left = max(self._deadline - time.monotonic(), 0.001)
        try:
            self._session.get(
                f"{self._address(name)}/release/*",
                Callback(hear, end),
                payload=self.challenge + FIRST * first,
                target=zenoh.QueryTarget.ALL,
                consolidation=zenoh.ConsolidationMode.NONE,
                timeout=left,
                cancellation_token=self._over,
            )
        except zenoh.ZError as error:
            log.warning("%s: the network of peers is closed: %s", name, error)
            self._answers.put((name, None))

    def answers(self) -> Iterator[tuple[str, bytes | None]]:
        """Yield peers' names and answers as they come, until the deadline. None: this peer will send no more."""
        while (left := self._deadline - time.monotonic()) > 0:
            try:
                yield self._answers.get(timeout=left)
            except queue.Empty:
                return

    def close(self) -> None:
        """Ignore all further answers."""
        self._over.cancel()

    def _read(self, name: str, reply: zenoh.Reply) -> bytes | None:
        if reply.ok is None:
            log.warning("%s: it answered with an error", name)
        elif (size := len(reply.ok.payload)) > self._limit:
            log.warning("%s: a reply of %s bytes; at most %s are accepted", name, f"{size:,}", f"{self._limit:,}")
        else:
            return reply.ok.payload.to_bytes()
        return None


def _open(
    listen: Sequence[str], connect: Sequence[str], *, multicast: bool, tls: Tls, limit: int
) -> tuple[zenoh.Session, tuple[str, ...]]:
    for left in reversed(range(TRIES)):
        endpoints = tuple(_with_port(endpoint) for endpoint in listen)
        try:
            return zenoh.open(_configure(endpoints, connect, multicast=multicast, tls=tls, limit=limit)), endpoints
        except zenoh.ZError as error:
            if endpoints == tuple(listen) or not left:
                reason = str(error).partition(" at /")[0][:300]
                raise ConfigError(f"cannot listen at {', '.join(endpoints) or 'any address'}: {reason}") from error
    raise AssertionError("the last try returns or raises")


def _configure(listen: Sequence[str], connect: Sequence[str], *, multicast: bool, tls: Tls, limit: int) -> zenoh.Config:
    both = {"router": ["router"], "peer": ["router", "peer"]}
    settings: dict[str, Any] = {
        "mode": "router",
        "listen/endpoints": list(listen),
        "connect/endpoints": list(connect),
        "connect/timeout_ms": -1,  # do not wait for them, and never stop trying
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
    """Return the endpoint with a free port in the place of port 0: Zenoh does not tell which one it took."""
    protocol, _, address = endpoint.partition("/")
    host, _, port = address.rpartition(":")
    if port != "0":
        return endpoint
    bare = host.strip("[]")
    family = socket.AF_INET6 if ":" in bare else socket.AF_INET
    kind = socket.SOCK_DGRAM if protocol in ("udp", "quic") else socket.SOCK_STREAM
    with explain_errors(f"cannot listen at {endpoint}"), socket.socket(family, kind) as free:
        free.bind((bare, 0))
        return f"{protocol}/{host}:{free.getsockname()[1]}"


def _in_time(work: Callable[[], None]) -> None:
    """Run `work`, but give up after a few seconds, whatever Zenoh does."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    thread.join(CLOSE_SECONDS)


def check_name(name: str) -> None:
    """Raise ConfigError if this cannot name a peer or a task."""
    if not 1 <= len(name) <= LONGEST_NAME or not name.isprintable() or "/" in name or not name.strip(" ."):
        raise ConfigError(f"{name[:80]!r} is not a name: 1 to {LONGEST_NAME} printable characters without /")
