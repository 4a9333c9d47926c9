"""The server's half of Algorithm 1: accept releases, keep totals and class buffers, hand out teachers.

A board never trains and never waits. Accepting a release or making a teacher costs the same with 10 clients as with
100,000: totals are updated by what changed, and observations are drawn from a buffer for each class.
"""

import math
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from repshare.board.checking import BoardCheck
from repshare.board.server import Server
from repshare.board.state import BoardMember, BoardState, row_key
from repshare.board.teaching import draw, make_teacher, make_teacher_of_peers
from repshare.board.votes import ACCEPTED, NamedClient, Ruling, Votes
from repshare.errors import Damaged, LeftOut, Outdated, Refused
from repshare.sharing import wire
from repshare.sharing.representations import Release, Teacher, Wants
from repshare.sharing.task import Task
from repshare.stores import MemoryStore, Store, Transaction

LOOKED_AT = 500  # clients, for releases that are too old, in one turn
SLACK = 1 / 8  # of max_age: how much longer than that a release may be kept


class BoardStatus(NamedTuple):
    """The state of a board."""

    version: int
    clients: int
    shown: list[BoardMember]


class Board(Server):
    """The server's half of Algorithm 1 for one task: accepts releases, and hands out teachers. It never trains."""

    def __init__(
        self,
        task: Task,
        store: Store | None = None,
        clock: Callable[[], float] | None = None,
        *,
        key: bytes = b"",
    ) -> None:
        """Create a board.

        Args:
            task: What the clients agree on.
            store: Where the state is kept. Default: in memory.
            clock: Dates releases, in seconds since 1970. Default: the wall clock.
            key: A secret of the board's keeper, so that clients cannot predict what is drawn, nor ask for each other
                by name. Without one, as in simulations, what is drawn follows from seeds and versions alone, and no
                other board may change the store.
        """
        self.task, self.clock, self.key = task, clock or time.time, key
        self.store = store or MemoryStore()
        self._open = partial(BoardState, task, totals=True, releases=True)  # all that a change reads
        self._last: tuple[tuple[Any, ...], bytes] = (), b""  # the last answer without observations, and what it was for
        self._unseen = 0  # clients that `expire` has not looked at; 0: it begins anew

    def accept(self, client: str, body: bytes) -> int:
        """Make this release the client's current one; return the board's version.

        Repeating it only renews its age; a refused one changes nothing.
        """
        version, verdict = self.store.transact(lambda state: self.accept_in(state, client, body))
        if verdict.refused is not None:
            raise LeftOut(verdict.refused)
        return version

    def accept_in(self, state: Transaction, client: str, body: bytes) -> tuple[int, Ruling]:
        """Accept a release within a transaction. Where others' parts vote against it, the verdict says so."""
        if not isinstance(client, str) or not client or "\n" in client:
            raise Refused(f"{client!r} is not a client's name: it must be one line and not empty")
        release = wire.decode_release(body)
        self.task.check(release)
        board = self._open(state, [client])
        if board.bodies[client] == body:
            if self.task.max_age is not None:
                board.renew(client, self.clock(), SLACK * self.task.max_age)
            return board.version, ACCEPTED
        before = board.release(client)
        if before and before.round > release.round:
            raise Outdated(f"{client} published round {before.round} already: {release.round} is older")
        verdict = ACCEPTED
        if self.task.compared:
            verdict = self._vote(state, board, client, before, release)
        if verdict.refused is None:
            board.put(client, before, release, body, self.clock())
        for name in verdict.left_out:
            board = self._open(state, [name])
            if (last := board.release(name)) is not None:
                board.remove(name, last)
        return board.version, verdict

    def _vote(
        self, state: Transaction, board: BoardState, client: str, before: Release | None, release: Release
    ) -> Ruling:
        """Let the other clients' parts vote on this one."""
        own = 0 if before is None else int(before.means.counts.max(initial=0))
        samples = int(board.totals.samples.max(initial=0)) - own
        others = board.count - (before is not None)
        total = board.totals.means(range(self.task.rows)) if board.count else None
        return Votes(self.task, state, self.key, client).judge(client, release, others, samples, self.clock(), total)

    def withdraw(self, client: str) -> int:
        """Forget the client's release, and return the board's version."""

        def work(state: Transaction) -> int:
            board = self._open(state, [client])
            if (before := board.release(client)) is not None:
                board.remove(client, before)
            self._forget_votes(state, client, None if before is None else self.clock())
            return board.version

        return self.store.transact(work)

    def _forget_votes(self, state: Transaction, client: str, withdrawn: float | None = None) -> None:
        if self.task.compared:
            Votes(self.task, state, self.key).forget(client, withdrawn)

    def teach(self, client: str, wants: Wants) -> bytes:
        """Make a teacher for this client, as bytes. Classes that only this client has shared have no row."""
        return self.store.read(lambda state: self.teach_in(state, client, wants))

    def teach_in(self, state: Transaction, client: str, wants: Wants) -> bytes:
        """Make a teacher within a transaction."""
        board = BoardState(self.task, state, [client])
        if wants.peers is not None:
            if self.key:
                raise Refused("a relay hands out nothing by name: leave peers out of the policy")
            return self._encode(make_teacher_of_peers(board, client, wants, self.key), wants)
        if drawn := draw(board, client, wants, self.key):
            return self._encode(make_teacher(board, client, wants, drawn), wants)
        # Without observations it is the same for many clients. With a key, others may change the store.
        asked = board.version, board.slots[client].classes, wants.precision
        if self.key or asked != self._last[0]:
            self._last = asked, self._encode(make_teacher(board, client, wants), wants)
        return self._last[1]

    def _encode(self, teacher: Teacher, wants: Wants) -> bytes:
        return wire.encode_teacher(teacher._replace(space=self.task.space), wants.precision)

    def version(self) -> int:
        """A number that grows with every change."""
        return self.store.read(lambda state: BoardState(self.task, state).version)

    def expire(self) -> list[str]:
        """Forget releases older than the task's max_age among the next LOOKED_AT clients, and return whose."""
        if self.task.max_age is None:
            return []
        gone = list[str]()
        for client in self.store.read(self._find_old):
            with suppress(Damaged):  # `relay check` names them
                gone += self.store.transact(partial(self._forget_old, client))
        return gone

    def _find_old(self, state: Transaction) -> list[str]:
        """Those of the next clients that are silent for too long. Last rows come first: they fill free slots."""
        board, old = BoardState(self.task, state), list[str]()
        end = min(self._unseen or board.count, board.count)
        self._unseen = max(0, end - LOOKED_AT)
        numbers = range(self._unseen, end)
        state.get([row_key(2 * self.task.rows, number) for number in numbers])  # at once
        for number in numbers:
            with suppress(Damaged):
                old += [member.name for member in board.members([number]) if self._is_old(member)]
        return old

    def _forget_old(self, client: str, state: Transaction) -> list[str]:
        """Forget a client that is still silent for too long; its name if it was."""
        board = self._open(state, [client])
        member = board.member(client)
        if not member or not self._is_old(member):
            return []
        board.remove(client, board.release(client))
        self._forget_votes(state, client)
        return [client]

    def _is_old(self, member: BoardMember) -> bool:
        return self.clock() - member.published > (self.task.max_age or math.inf) * (1 + SLACK)

    def status(self, limit: int = 100) -> BoardStatus:
        """The state of the board, with up to `limit` of its clients."""

        def work(state: Transaction) -> BoardStatus:
            board = BoardState(self.task, state)
            return BoardStatus(board.version, board.count, board.first_members(limit))

        return self.store.read(work)

    def find(self, client: str) -> BoardMember | None:
        """This client as the board knows it; None if it has published nothing."""
        return self.store.read(lambda state: BoardState(self.task, state, [client]).member(client))

    def last(self, client: str) -> bytes:
        """This client's release, as it was published; no bytes if it has published nothing."""
        return (
            self.store.read(lambda state: BoardState(self.task, state, [client], releases=True).bodies[client]) or b""
        )

    def named(self) -> list[NamedClient]:
        """The clients whose parts are refused or left out, and why."""
        if not self.task.compared:
            return []
        return self.store.read(lambda state: Votes(self.task, state, self.key).list_named())

    def find_faults(self) -> dict[str, str]:
        """Values that are damaged or do not fit together: key -> fault."""
        return self.store.read(lambda state: BoardCheck(self.task, state)).faults

    def save(self) -> bytes:
        """All that the board keeps, as bytes."""
        return wire.encode_items(self.store.items())

    def load(self, saved: bytes) -> None:
        """Restore what `save` returned."""
        items = wire.decode_items(saved)
        self.store.transact(lambda state: state.set(items))
        self._last = (), b""
