"""No server: every client answers for its own release, and learns from some of the others'.

What a teacher calls global means is then the count-weighted average of what was downloaded just now, without the
client's own: the paper's proxy for what a relay computes over everyone.
"""

import json
import logging
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple, Self

from repshare.board import Board
from repshare.errors import ConfigError, ExchangeError, Outdated, StoreError, Unreachable
from repshare.exchange.exchange import Exchange, Traffic
from repshare.exchange.keys import AHEAD_SECONDS, Key, NewestReleases, Trust, seal, unseal
from repshare.exchange.network import PeerNetwork, Question, Tls, check_name
from repshare.sharing import wire
from repshare.sharing.representations import Teacher, Wants, nothing
from repshare.sharing.task import Task
from repshare.sharing.wire import Signed
from repshare.stores import MemoryStore, Store

TIMEOUT_SECONDS = 5.0
REPLY_LIMIT = 16 * 2**20  # bytes
MOST_STRANGERS = 100  # that are named, however many are invented
ANYTHING = 1 << 20  # releases: more than peers can be
log = logging.getLogger("repshare.peer")


class _OwnAnswer(NamedTuple):
    """The answer of this client: its release, or no bytes."""

    began: int  # milliseconds since 1970
    round: int
    body: bytes


class PeerExchange(Exchange):
    """A client's connection to its peers, without a server: see `Exchange`.

    Examples:
        >>> others = ["tcp/example.org:7447"]
        >>> with PeerExchange(task, "alice", "digits", key=key, trust=trust, connect=others) as exchange:
        ...     for record in Client(model, data, exchange, name="alice").rounds(20):
        ...         print(record.round, record.trouble)
    """

    def __init__(
        self,
        task: Task,
        name: str,
        task_name: str,
        *,
        key: Key,
        trust: Trust,
        listen: Sequence[str] = (),
        connect: Sequence[str] = (),
        multicast: bool = False,
        tls: Tls | None = None,
        store: Store | None = None,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:
        """Join the peers' network.

        Args:
            task: What the peers agree on.
            name: This client's name.
            task_name: The task's name: only peers with the same one meet.
            key: This client's key.
            trust: The public keys of the other peers.
            listen: Zenoh's endpoints at which others can connect: tcp/host:port, tls/host:port.
            connect: Endpoints of others to connect to.
            multicast: Whether to look for peers in the local network.
            tls: Certificates for tls endpoints.
            store: Keeps what must outlast the process: the client's own release, and what was seen of others.
            timeout: Seconds for a whole collect.
        """
        for each in (name, task_name):
            check_name(each)
        if not 0 < timeout < 1e6:
            raise ConfigError(f"timeout must be above 0 seconds and below a million, not {timeout}")
        self.task, self.name, self.task_name = task, name, task_name
        self.key, self.trust, self.timeout = key, trust, timeout
        self.store = store or MemoryStore()
        self.seen = NewestReleases(self.store)
        self._sent = self._received = 0  # bytes
        self._met: dict[str, bytes] = {}  # by peer: its newest part of a total
        self._met_anyone = False
        self._strangers: set[str] = set()  # whose names were logged
        self._own = self._recall()
        limit = min(REPLY_LIMIT, wire.ENVELOPE_BYTES + task.longest_release)
        self.network = PeerNetwork(
            task_name, name, self._answer, lambda other: self.trust.get(other) is not None,
            listen=listen, connect=connect, multicast=multicast, tls=tls or Tls(), limit=limit,
        )  # fmt: skip

    def __repr__(self) -> str:
        return f"PeerExchange({self.name!r}, {self.task_name!r}, listening={self.listening})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def listening(self) -> tuple[str, ...]:
        """The endpoints at which others can connect to this one."""
        return self.network.listening

    def live(self) -> list[str]:
        """Return the names of the other peers that are online now."""
        return self.network.live()

    def others(self) -> int:
        """Return the number of other peers in the last total; without a common space, of those online now."""
        return len(self.live()) if self.task.space is None else len(self._met)

    def wait(self, since: int, seconds: float) -> int:
        """Wait, and return a version by which all may have published: without a server, only asking tells who has.

        Args:
            since: The version that is known already.
            seconds: Seconds to wait.
        """
        time.sleep(seconds)
        return since + ANYTHING

    def traffic(self) -> Traffic:
        """Return the bytes of own releases, each once however many ask, and of peers' answers."""
        return Traffic(self._sent, self._received)

    def close(self) -> None:
        """Disconnect from the other peers."""
        self.network.close()

    def leave(self) -> None:
        """Disconnect as the last thing that the process does: see `PeerNetwork.leave`."""
        self.network.leave()

    def publish(self, body: bytes) -> None:
        """Answer with this release from now on. It is checked as any peer will check it."""
        release = wire.decode_release(body)
        self.task.check(release)
        if release.round < self._own.round:
            raise Outdated(f"{self.name} published round {self._own.round} already: {release.round} is older")
        self._remember({"release": body})
        self._own = _OwnAnswer(self._own.began, release.round, body)
        self._sent += len(body)

    def withdraw(self) -> None:
        """Answer with nothing from now on. What is published next may begin at round 1 again."""
        self._own = _OwnAnswer(max(_now(), self._own.began + 1), 0, b"")
        self._remember({"release": b"", "began": json.dumps(self._own.began).encode()})

    def collect(self, wants: Wants) -> bytes:
        """Ask M↓ random peers that are there, or those named, and make a teacher of what they give."""
        names = self._candidates(wants)
        everyone = wants.peers is not None or self.task.space is not None  # a total is of all parts
        wanted = len(names) if everyone else max(1, wants.observations)
        try:
            fresh, failed = self._download(names, wanted)
        except StoreError as error:
            raise Unreachable(f"what was seen of the peers could not be kept: {error}") from error
        if failed and not fresh:
            raise Unreachable(
                f"none of the peers gave a release that could be accepted, {', '.join(failed)[:200]} among them"
            )
        if not names and self._met_anyone and wants.peers != ():
            raise Unreachable("no peer is online")
        return self._teach(fresh, wants)

    def _answer(self, challenge: bytes) -> bytes:
        """Return this client's release, or that there is none, signed for the peer that asks just now."""
        own = self._own
        return seal(self.key, self.task_name, self.name, own.body, challenge, began=own.began)

    def _candidates(self, wants: Wants) -> list[str]:
        known = self._known(self.live())
        self._met_anyone = self._met_anyone or bool(known)
        if wants.peers is not None:
            return [name for name in known if name in wants.peers]
        return random.Random(wants.seed).sample(known, len(known))

    def _known(self, live: Sequence[str]) -> list[str]:
        """Return those whose answer could be accepted. Others are not asked: waiting for them would be in vain."""
        strangers = {name for name in live if not self.trust.could_admit(name)}
        for name in sorted(strangers - self._strangers)[: MOST_STRANGERS - len(self._strangers)]:
            log.warning("%s is online, but its key is not trusted: add it with `repshare keys trust`", name)
            self._strangers.add(name)
        return [name for name in live if name not in strangers]

    def _download(self, names: Sequence[str], wanted: int) -> tuple[dict[str, bytes], list[str]]:
        """Return the releases of the first `wanted` of these that have a good one, and who failed to give one.

        Where one has nothing to give, or nothing that can be taken, the next is asked, as long as there is time.
        """
        answered: dict[str, Signed] = {}
        pending, failed, rest = set[str](), list[str](), iter(names)
        with closing(self.network.question(time.monotonic() + self.timeout)) as question:
            _ask(question, rest, pending, wanted)
            for name, body in question.answers() if pending else ():
                self._received += len(body or b"")
                if name not in pending:
                    continue
                if body is not None and (signed := self._admit(name, body, question.challenge)) is not None:
                    answered[name] = signed
                if name in answered or body is None:
                    pending.discard(name)
                    if name not in answered:
                        log.warning("%s: no answer that could be accepted", name)
                        failed.append(name)
                    _ask(question, rest, pending, wanted - len(_shared(answered)))
                if not pending:
                    break
        for name in sorted(pending):
            log.warning("%s: no answer within %g s", name, self.timeout)
        self.seen.keep(list(answered.values()))
        for name in answered.keys() - _shared(answered).keys():
            self._met.pop(name, None)  # it has withdrawn what it shared
        return _shared(answered), failed + sorted(pending)

    def _admit(self, name: str, body: bytes, challenge: bytes) -> Signed | None:
        """Return a peer's answer, if it may come in."""
        try:
            signed = unseal(body, self.task_name, name, self.trust, challenge)
            if signed.release:
                self.task.check(wire.decode_release(signed.release))
            self.seen.check(signed)
        except (ExchangeError, StoreError) as error:
            log.warning("%s: refused: %s", name, error)
            return None
        return signed

    def _teach(self, fresh: dict[str, bytes], wants: Wants) -> bytes:
        """Return the teacher that a board makes of what was downloaded."""
        if wants.peers == ():
            return wire.encode_teacher(Teacher(nothing(self.task.columns), nothing(self.task.columns)))
        board = Board(replace(self.task, minimum_count=1, max_age=None))
        if self.task.space is not None:
            return self._add_up(board, fresh, wants)
        for name, body in fresh.items():
            board.accept(name, body)
        return board.teach(self.name, wants._replace(peers=tuple(fresh)))

    def _add_up(self, board: Board, fresh: dict[str, bytes], wants: Wants) -> bytes:
        """Return the total of everybody's newest part, this client's own among them.

        The part of a peer that is away stays in the total until it gives another, or says that it has withdrawn it.
        """
        self._met |= fresh
        for name, body in {**self._met, self.name: self._own.body}.items():
            if body:
                board.accept(name, body)
        return board.teach(self.name, wants)

    def _recall(self) -> _OwnAnswer:
        """Return the answer from before this process. Rounds that a wrong clock began in the future start over."""
        kept, body = self.store.read(lambda state: state.get(["began", "release"]))
        began = _now() if kept is None else int(json.loads(kept))
        if kept is None or began > _now() + 1000 * AHEAD_SECONDS:
            began = _now()
            self._remember({"began": json.dumps(began).encode()})
        return _OwnAnswer(began, wire.decode_release(body).round if body else 0, body or b"")

    def _remember(self, items: dict[str, bytes]) -> None:
        try:
            self.store.transact(lambda state: state.set(items))
        except StoreError as error:
            raise Unreachable(f"what was to be published could not be kept: {error}") from error


def _shared(answered: Mapping[str, Signed]) -> dict[str, bytes]:
    """Return the releases of those who share one."""
    return {name: signed.release for name, signed in answered.items() if signed.release}


def _ask(question: Question, rest: Iterator[str], pending: set[str], wanted: int) -> None:
    """Ask until this many answers are under way."""
    while len(pending) < wanted and (name := next(rest, None)) is not None:
        pending.add(name)
        question.ask(name)


def _now() -> int:
    return int(time.time() * 1000)
