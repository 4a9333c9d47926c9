"""The server's half of Algorithm 1: accept releases, keep totals and class buffers, hand out teachers.

A board never trains and never waits. Accepting a release or making a teacher costs the same with 10 clients as with
100,000: totals are updated by what changed, and observations are drawn from a buffer for each class. A robust
aggregate is made from all clients' means of a class, or of many drawn at random: see `robust`.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import NamedTuple

from repshare.board import buffers, outliers
from repshare.board.checking import Survey
from repshare.board.clock import KEY as TIME
from repshare.board.clock import StoreClock
from repshare.board.members import BoardMember, find_member, read_members
from repshare.board.memory import MOST_ANSWERS, BoardMemory
from repshare.board.robust import RobustMeans, read_means
from repshare.board.state import SLACK, BoardState, Core, forget, read_head, release_key
from repshare.board.teaching import Wants, draw, make_teacher, taught_classes
from repshare.errors import Damaged, Outdated, Refused, RepshareError, StoreError
from repshare.sharing import wire
from repshare.sharing.representations import Floats, Release, Representations, Teacher, stack
from repshare.sharing.task import MOST_OBSERVATIONS, Task
from repshare.stores import MemoryStore, Store, Transaction

EXPIRED_AT_ONCE = 10  # releases, in one transaction: others come in between
STRANGE = 4.0  # times the usual distance from the others: an outlier
Work = Callable[[Transaction], Core]
MOST_COMPARED = 2**22  # numbers that outliers are found by: where there are more, by the first classes and clients


class BoardStatus(NamedTuple):
    """The state of a board."""

    version: int
    clients: int
    shown: list[BoardMember]
    strangeness: list[float | None]
    """For each of those shown, how many times farther its means are from the others' than is usual; in a common space,
    how many times more often than usual it is wrong about samples of its own."""

    def outliers(self) -> list[str]:
        """Return the names of those shown whose releases are unlike the others'."""
        pairs = zip(self.shown, self.strangeness, strict=True)
        return [member.name for member, score in pairs if score is not None and score > STRANGE]


class Board:
    """The server's half of Algorithm 1 for one task: accepts releases, and hands out teachers. It never trains."""

    def __init__(
        self,
        task: Task,
        store: Store | None = None,
        clock: Callable[[], float] | None = None,
        *,
        key: bytes = b"",
        memory: BoardMemory | None = None,
    ) -> None:
        """Create a board.

        Args:
            task: What the clients agree on.
            store: Where the state is kept. Default: in memory.
            clock: Gives both the age of releases and their dates, which otherwise come from different clocks.
            key: A secret of the board's keeper, so that clients cannot predict what is drawn. Without one, as in
                simulations, what is drawn follows from seeds and versions alone.
            memory: What the process remembers of its boards. Only those with a key are remembered.
        """
        self.task, self.clock, self.date, self.key = task, StoreClock(clock or time.monotonic), clock or time.time, key
        self.store = store or MemoryStore()
        self._memory = memory or BoardMemory()
        self._robust = RobustMeans(task, self.store, repeatable=not key)

    def accept(self, client: str, body: bytes) -> int:
        """Make this release the client's current one, and return the board's version.

        Repeating it only renews its age; a refused one changes nothing.
        """
        (outcome,) = self.accept_all([(client, body)])
        if isinstance(outcome, RepshareError):
            raise outcome
        return outcome

    def accept_all(self, bodies: Sequence[tuple[str, bytes]]) -> list[int | RepshareError]:
        """Accept each client's release, all in one transaction: the version after it, or why it was not accepted.

        Where a stored value is damaged, each in a transaction of its own: only those that need the value are refused.
        """
        try:
            return self._accept(bodies, lambda work: partial(self.store.transact, work))()
        except Damaged as error:
            return [error] if len(bodies) == 1 else [self.accept_all([each])[0] for each in bodies]

    def prepare_all(self, bodies: Sequence[tuple[str, bytes]]) -> Callable[[], list[int | RepshareError]]:
        """Do the same without waiting, but for what the returned function does: it has the releases kept.

        Raises Damaged or StoreError where `accept_all` must be asked.
        """
        return self._accept(bodies, self.store.prepare)

    def _accept(
        self,
        bodies: Sequence[tuple[str, bytes]],
        begin: Callable[[Work], Callable[[], Core]],
    ) -> Callable[[], list[int | RepshareError]]:
        """Begin a transaction that accepts these releases; return the function that ends it."""
        outcomes: list[int | RepshareError] = [0] * len(bodies)
        good: dict[int, Release] = {}
        for number, (client, body) in enumerate(bodies):
            try:
                good[number] = self._checked(client, body)
            except RepshareError as error:
                outcomes[number] = error

        def work(state: Transaction) -> Core:
            core = self._open(state, [bodies[number][0] for number in good])
            changed = False
            for number, release in good.items():
                before = core.head.version, core.head.queue
                try:
                    outcomes[number] = self._enter(core, *bodies[number], release)
                except Refused as error:  # before it has changed anything
                    outcomes[number] = error
                changed |= (core.head.version, core.head.queue) != before
            if changed:
                core.keep(stamped=bool(self.key))
            return core

        commit = begin(work) if good else None

        def finish() -> list[int | RepshareError]:
            if commit:
                core = commit()
                self._memory.keep(self, core.remember())
            return outcomes

        return finish

    def _open(self, state: Transaction, clients: Sequence[str], *, reading: bool = False) -> Core:
        """Return the board's head and totals, and read at the same time what is not remembered of these clients."""
        known = self._memory.find(self)
        keys = ["head", *map(buffers.index_key, clients)]
        if not reading:
            keys += map(release_key, clients)
        if self.task.max_age and not reading:
            keys.append(TIME)
        state.get(keys if known else [*keys, "totals"])
        return Core(self.task, state, known, reading=reading)

    def _checked(self, client: str, body: bytes) -> Release:
        if not isinstance(client, str) or not client or "\n" in client:
            raise Refused(f"{client!r} is not a client's name: it must be one line and not empty")
        release = wire.decode_release(body)
        self.task.check(release)
        return release

    def _enter(self, core: Core, client: str, body: bytes, release: Release) -> int:
        there = BoardState(core, client)
        now = self.clock.now(core.state) if self.task.max_age else 0.0
        if there.body == body:
            there.renew(now)
            return there.head.version
        if there.release and there.release.round > release.round:
            raise Outdated(f"{client} published round {there.release.round} already: {release.round} is older")
        return there.enter(release, body, now, self.date())

    def withdraw(self, client: str) -> int:
        """Forget the client's release, and return the board's version."""

        def work(state: Transaction) -> int:
            core = self._open(state, [client])
            before, version = core.head.version, BoardState(core, client).leave()
            if version != before:
                core.keep(stamped=bool(self.key))
            return version

        return self.store.transact(work)

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return a teacher for this client, as bytes: what the others shared, and nothing where only itself did."""
        ((_, body),) = self.teach_all([(client, wants)])
        return body

    def teach_all(self, questions: Sequence[tuple[str, Wants]]) -> list[tuple[int, bytes]]:
        """Return each client's teacher, all from one state of the board, with that state's version."""
        for client, wants in questions:
            self.task.check_peers(client, wants.peers or ())
        if self.task.aggregation == "mean":
            return self.store.read(lambda state: self._answer(state, questions))
        version, teachers = self.store.read(lambda state: self._make(state, questions))
        made = zip(self._made_robust(version, teachers, questions), questions, strict=True)
        return [(version, self._encode(teacher, wants)) for teacher, (_, wants) in made]

    def glance(self, client: str, wants: Wants) -> tuple[int, bytes] | None:
        """Return the same for one client without waiting; None where `teach_all` must be asked.

        That is where the aggregate is robust, the store cannot answer at once, or something must be repaired first.
        """
        if self.task.aggregation != "mean":
            return None
        self.task.check_peers(client, wants.peers or ())
        with suppress(Damaged, StoreError):
            (answer,) = self.store.glance(lambda state: self._answer(state, [(client, wants)]))
            return answer
        return None

    def _answer(self, state: Transaction, questions: Sequence[tuple[str, Wants]]) -> list[tuple[int, bytes]]:
        """Return the version, and each client's teacher as bytes: only one teacher at a time besides those.

        Without observations it depends on the totals and on few things more, and so may have been made before.
        """
        core, views, drawn = self._draw_all(state, questions)
        bodies = list[bytes]()
        for view, slots, (_, wants) in zip(views, drawn, questions, strict=True):
            if slots or wants.peers is not None:
                bodies.append(self._encode(make_teacher(view, slots, wants, self.key), wants))
                continue
            taught = tuple(taught_classes(view, wants))
            body = core.answers.get((taught, wants.precision))
            if body is None:
                body = self._encode(make_teacher(view, slots, wants, self.key), wants)
                if len(core.answers) >= MOST_ANSWERS:
                    core.answers.clear()
                core.answers[taught, wants.precision] = body
            bodies.append(body)
        return [(core.head.version, body) for body in bodies]

    def _make(self, state: Transaction, questions: Sequence[tuple[str, Wants]]) -> tuple[int, list[Teacher]]:
        """Return the board's version, and the teachers that these clients get."""
        core, views, drawn = self._draw_all(state, questions)
        each = zip(views, drawn, questions, strict=True)
        return core.head.version, [make_teacher(view, slots, wants, self.key) for view, slots, (_, wants) in each]

    def _draw_all(
        self, state: Transaction, questions: Sequence[tuple[str, Wants]]
    ) -> tuple[Core, list[BoardState], list[list[tuple[int, int]]]]:
        """Return the board's core, these clients' parts in it, and the observations that each will see."""
        core = self._open(state, [client for client, _ in questions], reading=True)
        views = [BoardState(core, client, reading=True) for client, _ in questions]
        drawn = [draw(view, wants, self.key) for view, (_, wants) in zip(views, questions, strict=True)]
        if len(questions) > 1:  # read at once what each will need
            state.get(buffers.row_keys(slot for slots in drawn for slot in slots))
        if not core.known:
            self._memory.keep(self, core.remember())
        return core, views, drawn

    def _encode(self, teacher: Teacher, wants: Wants) -> bytes:
        return wire.encode_teacher(teacher._replace(space=self.task.space), wants.precision)

    def version(self) -> int:
        """Return a number that grows with every change."""
        return self.store.read(lambda state: read_head(self.task, state).version)

    def expire(self, limit: int = EXPIRED_AT_ONCE) -> list[str]:
        """Forget releases older than the task's max_age, at most `limit`, and return whose: none, if none is left."""
        if self.task.max_age is None:
            return []
        interval, gone, more = SLACK / 4 * self.task.max_age, list[str](), True

        def work(state: Transaction) -> tuple[list[str], bool]:
            nonlocal limit
            wanted, limit = limit, max(1, limit // 2)  # fewer if it begins again, since another came in between
            state.get(["time", "head"])  # both at once
            return forget(self.task, state, self.clock.keep(state, interval), wanted, stamped=bool(self.key))

        while more and not gone:
            gone, more = self.store.transact(work)
        return gone

    def status(self, limit: int = 100) -> BoardStatus:
        """Return the state of the board, with up to `limit` of its clients."""
        task = self.task
        head, members = self.store.read(lambda state: (read_head(task, state), read_members(task, state, limit)))
        compared = members[: max(outliers.FEWEST, MOST_COMPARED // self.task.dimension)]
        classes = max(1, MOST_COMPARED // (self.task.dimension * max(1, len(compared))))
        means = read_means(self.store, compared, classes)
        scores = dict(zip(means, outliers.judge(task, list(means.values())), strict=True))
        return BoardStatus(head.version, head.members, members, [scores.get(member.name) for member in members])

    def find(self, client: str) -> BoardMember | None:
        """Return what the board knows of this client; None if it has published nothing."""
        return self.store.read(lambda state: find_member(self.task, state, client))

    def find_faults(self) -> dict[str, str]:
        """Return what is damaged, or does not fit together: key -> what is wrong with it."""
        return self.store.read(lambda state: Survey(self.task, state)).faults

    def save(self) -> bytes:
        """Return all that the board keeps, as bytes."""
        return wire.encode_items(self.store.items())

    def load(self, saved: bytes) -> None:
        """Restore what `save` returned."""
        items = wire.decode_items(saved)
        self.store.transact(lambda state: state.set(items))
        self._robust.forget()

    def _made_robust(
        self, version: int, teachers: list[Teacher], questions: Sequence[tuple[str, Wants]]
    ) -> list[Teacher]:
        """Return the teachers with robust means in place of those over everyone."""
        pairs = [(teacher, wants.peers is None) for teacher, (_, wants) in zip(teachers, questions, strict=True)]
        labels = {label for teacher, of_everyone in pairs if of_everyone for label in teacher.means.labels.tolist()}
        found = self._robust.of(sorted(labels), version)
        return [
            teacher._replace(means=_in_place(teacher.means, found)) if of_everyone else teacher
            for teacher, of_everyone in pairs
        ]


def longest_release(task: Task) -> int:
    """Return the bytes that a release of this task can have."""
    return wire.LONGEST_HEADER_BYTES + task.classes * (1 + MOST_OBSERVATIONS) * (4 * task.dimension + 12)


def _in_place(means: Representations, found: Mapping[int, Floats]) -> Representations:
    """Return these means with the vectors found for their classes; without classes for which there is none."""
    there = zip(means.labels.tolist(), means.counts.tolist(), strict=True)
    rows = [(found[label], label, count) for label, count in there if label in found]
    return stack(rows, means.vectors.shape[1])
