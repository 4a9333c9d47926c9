"""No server: every client answers for its own release, and has a board of its own with those of others.

What a teacher calls global means is, without a common space, the count-weighted average of what was downloaded just
now, without the client's own: the paper's proxy for what a relay computes over everyone. In a space, parts vote on each
other as at a relay. Only first parts can be compared: so a peer is asked for its first one, until the board knows it.
"""

import logging
import random
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import Self

from repshare.board import Board
from repshare.board.votes import begins
from repshare.errors import ConfigError, ExchangeError, LeftOut, Outdated, StoreError, Unreachable
from repshare.exchange.exchange import Exchange, Traffic
from repshare.exchange.keys import Key, Trust, seal, unseal
from repshare.exchange.network import PeerNetwork, Tls, check_name
from repshare.sharing import wire
from repshare.sharing.representations import Teacher, Wants, nothing
from repshare.sharing.task import Task
from repshare.stores import MemoryStore, Store

TIMEOUT_SECONDS = 5.0
REPLY_LIMIT = 16 * 2**20  # bytes
MOST_STRANGERS = 100  # at most so many are named, however many are invented
ANYTHING = 1 << 20  # releases: more than peers can be
FIRST = "own first"
log = logging.getLogger("repshare.peer")


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
            store: Keeps what must outlast the process: the client's board. Default: in memory.
            timeout: Seconds for a whole collect.
        """
        for each in (name, task_name):
            check_name(each)
        if not 0 < timeout < 1e6:
            raise ConfigError(f"timeout must be above 0 seconds and below a million, not {timeout}")
        self.task, self.name, self.task_name = task, name, task_name
        self.key, self.trust, self.timeout = key, trust, timeout
        self.store = store or MemoryStore()
        self.board = self._open_board()
        self._sent = self._received = 0  # bytes
        self._met_anyone = False
        self._strangers: set[str] = set()  # names that were logged
        self._told: dict[str, str] = {}  # by peer: why it is left out, as it was logged last
        self._own, self._first = self._recall()  # the releases that others are given
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
        return len(self.live()) if self.task.space is None else len(self._behind() - {self.name})

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
        """Answer with this release from now on. It is checked as any peer will check it.

        Where others' parts vote against it here, it is out of this client's total; the others decide for themselves.
        """
        self.task.check(wire.decode_release(body))
        left_out: LeftOut | None = None
        try:
            try:
                self.board.accept(self.name, body)
            except LeftOut as error:
                left_out = error
            if self.board.task.compared and (not self._first or begins(wire.decode_release(body))):
                self._first = body
                self.store.transact(lambda state: state.set({FIRST: body}))
        except StoreError as error:
            raise Unreachable(f"what was to be published could not be kept: {error}") from error
        self._own = body
        self._sent += len(body)
        if left_out is not None:
            raise left_out

    def withdraw(self) -> None:
        """Answer with nothing from now on, and forget what others shared."""
        self.store.clear()
        self.board = self._open_board()
        self._own = self._first = b""

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

    def _answer(self, challenge: bytes, first: bool = False) -> bytes:
        """Return this client's release, or that there is none, signed for the peer that asks just now."""
        return seal(self.key, self.task_name, self.name, self._first if first else self._own, challenge)

    def _open_board(self) -> Board:
        shared = replace(self.task, minimum_count=1, max_age=None, compared=self.task.format == "parts")
        # In a space nothing is handed out by name: with a secret, nobody knows which columns are compared.
        return Board(shared, self.store, key=b"" if self.task.space is None else self.key.sign(b"repshare board\0"))

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
            log.warning("%s is online, but its key is not trusted: add it to the trust file", name)
            self._strangers.add(name)
        return [name for name in live if name not in strangers]

    def _download(self, names: Sequence[str], wanted: int) -> tuple[set[str], list[str]]:
        """Put the releases of the first `wanted` of these on the board; who gave a good one, and who failed to.

        Where one has nothing to give, or nothing that can be taken, the next is asked, as long as there is time.
        """
        shared, known = set[str](), self._behind()
        pending, failed, rest = set[str](), list[str](), iter(names)
        with closing(self.network.question(time.monotonic() + self.timeout)) as question:

            def ask() -> None:
                while len(pending) < wanted - len(shared) and (name := next(rest, None)) is not None:
                    pending.add(name)
                    question.ask(name, first=self.board.task.compared and name not in known)

            ask()
            for name, body in question.answers() if pending else ():
                self._received += len(body or b"")
                if name not in pending:
                    continue
                taken = None if body is None else self._admit(name, body, question.challenge)
                if taken:
                    shared.add(name)
                if body is None and taken is None:
                    log.warning("%s: no answer that could be accepted", name)
                    failed.append(name)
                if body is None or taken is not None:
                    pending.discard(name)
                    ask()
                if not pending:
                    break
        for name in sorted(pending):
            log.warning("%s: no answer within %g s", name, self.timeout)
        return shared, failed + sorted(pending)

    def _admit(self, name: str, body: bytes, challenge: bytes) -> bool | None:
        """Put a peer's answer on the board; whether it shares anything. None: it may not come in."""
        try:
            release = unseal(body, self.task_name, name, self.trust, challenge).release
            if release:
                self.task.check(wire.decode_release(release))
            self._put(name, release)
        except LeftOut as error:
            self._tell(name, str(error))
            return False
        except (ExchangeError, StoreError) as error:
            log.warning("%s: refused: %s", name, error)
            return None
        for each in self.board.named():
            self._tell(each.name, each.reason)
        return bool(release)

    def _put(self, name: str, release: bytes) -> None:
        if not release:
            if self.board.find(name) is not None:
                self.board.withdraw(name)  # it has said so itself
            return
        try:
            self.board.accept(name, release)
        except Outdated:  # signed just now: it has begun anew
            self.board.withdraw(name)
            self.board.accept(name, release)

    def _tell(self, name: str, reason: str) -> None:
        """Say why a peer is left out, once."""
        if self._told.get(name) != reason:
            self._told[name] = reason
            log.warning("%s: left out: %s", name, reason)

    def _teach(self, fresh: set[str], wants: Wants) -> bytes:
        """Return the teacher that the board makes: of all parts, or of what was downloaded."""
        if wants.peers == ():
            return wire.encode_teacher(Teacher(nothing(self.task.columns), nothing(self.task.columns)))
        return self.board.teach(self.name, wants if self.task.space else wants._replace(peers=tuple(sorted(fresh))))

    def _behind(self) -> set[str]:
        """The names of all whose releases are on the board: those of peers that are away stay."""
        return {member.name for member in self.board.status(ANYTHING).shown}

    def _recall(self) -> tuple[bytes, bytes]:
        """Return this client's last release, and its first, from before this process."""
        return self.board.last(self.name), self.store.read(lambda state: state.get([FIRST]))[0] or b""
