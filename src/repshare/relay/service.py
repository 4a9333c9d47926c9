"""The service behind all endpoints of a relay: who asks, which task, how fast, and what was refused."""

import logging
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable, Hashable, Iterator, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple, ParamSpec, TypeVar

import anyio.to_thread
from starlette.requests import Request

from repshare.relay.auth import Access, Grant, Role, is_name
from repshare.relay.batching import Desk
from repshare.relay.limits import PART_BYTES, PART_ROWS, ROOM_BYTES, Crowd, Rates, Room, read_body
from repshare.relay.monitoring.audit_log import Action, AuditLog
from repshare.relay.monitoring.logs import Budget
from repshare.relay.monitoring.metrics import Metrics
from repshare.relay.options import RelayOptions
from repshare.relay.page.presence import PresenceRecorder
from repshare.relay.problems import Problem
from repshare.relay.sizes import Load
from repshare.relay.tasks import Open, Tasks
from repshare.relay.watch import News
from repshare.stores import Database

HEADS_BYTES = 32_000_000  # of requests' heads that have arrived in part
MOST_FIELDS = 1500  # of a query
MOST_WAITS = 20  # with one token, for news and for the page's events together
REFUSALS_KEPT = 100  # a task
LINES_A_SECOND = 20  # of the log for each token, and for all strangers together: they cannot fill a disk
STRANGERS = "strangers"
ANYONE = Grant("admin", "anyone", None)  # what an insecure relay allows everyone
LARGE_BYTES = 262_144  # of an answer: those that take more are made apart, so that the others need not wait for them
VISITOR = Grant("viewer", "visitor", None)  # who looks at a public page

Arguments = ParamSpec("Arguments")
Item = TypeVar("Item")
Result = TypeVar("Result")
Together = Callable[[Sequence[Item]], Sequence[Result | Exception]]  # what each of several items gives, or raises


class Refusal(NamedTuple):
    """A request that was refused."""

    time: float  # seconds since 1970
    client: str
    kind: str
    reason: str


class Service:
    """The state of one relay process."""

    def __init__(self, database: Database, options: RelayOptions, audit: AuditLog) -> None:
        self.database, self.options, self._audit = database, options, audit
        self.access, self.tasks, self.news = Access(database), Tasks(database), News()
        self.seen = PresenceRecorder()
        self.unread, self.heads = Crowd[Any](ROOM_BYTES), Crowd[Any](HEADS_BYTES)  # of connections
        self.connections = Crowd[Any](options.connections)
        self.metrics = Metrics(lambda: self.news.waiting)
        self.refusals: dict[str, deque[Refusal]] = {}  # by task
        self._rates, self._room = Rates(options.rate, 2 * options.rate), Room(options.max_bytes)
        self._reading, self._large, self._writing = (Desk() if database.slow else None for _ in range(3))
        self._waits = Counter[Hashable]()
        self.lines = Budget(LINES_A_SECOND, 5 * LINES_A_SECOND)

    async def run(
        self, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Do something with the store: here, or in a thread where others would have to wait for disk or network."""
        if not self.database.slow:
            return function(*args, **kwargs)
        return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs))

    async def read(self, function: Together[Item, Result], item: Item, size: int = 0) -> Result:
        """Do something that reads from the store, where that is slow together with what others want of it.

        `size`: bytes of memory that it takes meanwhile.
        """
        desk = self._reading if size < LARGE_BYTES else self._large
        return await desk.do(function, item, size) if desk else _alone(function, item)

    async def write(self, function: Together[Item, Result], item: Item, size: int = 0) -> Result:
        """Do something that writes to the store, likewise."""
        return await self._writing.do(function, item, size) if self._writing else _alone(function, item)

    async def change(self, function: Callable[[], Result]) -> Result:
        """Do something that may take much memory, and so one after the other."""
        return await self.write(lambda _: [function()], None)

    def hold(self, request: Request, load: Load) -> None:
        """Count this load's bytes as taken by the request until it is answered, and let it cost.

        Raises a Problem where there is no room for them now, or never. For a few bytes there always is.
        """
        self.check_size(load.bytes, "ask for fewer observations, classes or peers at once")
        self.spend(request, load)
        if load.bytes >= PART_BYTES:
            held: ExitStack = request.scope["held"]
            held.enter_context(self._room.hold(self._who(request)))(load.bytes)

    def check_size(self, size: int, instead: str) -> None:
        """Raise a Problem if no answer may ever take this many bytes."""
        if size > self._room.each:
            raise Problem(
                "refused", f"the answer would take {size:,} bytes; at most {self._room.each:,} may: {instead}"
            )

    def spend(self, request: Request, load: Load) -> None:
        """Charge a request to its token's rate: the more it takes, the more it costs."""
        if cost := load.bytes // PART_BYTES + load.rows // PART_ROWS:
            self._slow_down(self._who(request), cost)

    async def enter(self, request: Request, roles: tuple[Role, ...], task: str | None = None) -> Grant:
        """Authenticate the request: return its grant, if it has such a role for this task and is not too fast."""
        grant = await self._identify(request)
        request.scope["grant"] = grant
        request.scope["who"] = request.path_params.get("client") if self.options.insecure else grant
        if request.scope["query_string"].count(b"&") > MOST_FIELDS:
            raise Problem("invalid", f"more than {MOST_FIELDS} fields in a query")
        self._slow_down(self._who(request))
        if grant.role not in roles and not self.options.insecure:
            raise Problem("forbidden", f"this is for {' and '.join(roles)}; the token's role is {grant.role}")
        if grant.task is not None and task is not None and grant.task != task:
            raise Problem("forbidden", f"the token is for the task {grant.task}, not for {task[:80]}")
        return grant

    async def enter_page(self, request: Request, task: str | None = None) -> Grant:
        """Authenticate a viewer: viewers, admins, and with --public-page everyone without a token."""
        if not self.options.public_page or "authorization" in request.headers:
            return await self.enter(request, ("viewer", "admin"), task)
        request.scope["who"] = ("visitor", request.client.host if request.client else "")
        self._slow_down(self._who(request))
        return VISITOR

    async def open(self, name: str) -> Open:
        """Return the task of this name and its board."""
        there = self.tasks.recall(name)
        if there is None and is_name(name):
            there = await self.run(self.tasks.find, name)
        if there is None:
            raise Problem("unknown", f"there is no task {name[:80]!r}")
        return there

    @asynccontextmanager
    async def receive(self, request: Request, there: Open, most_bytes: int) -> AsyncIterator[bytes]:
        """Yield a body for this task, held until the end of the block.

        While it came, the task may have been deleted, or another created under its name.
        """
        with self._room.hold(self._who(request)) as take:
            body = await read_body(request, min(most_bytes, self.options.max_bytes), self.options.body_seconds, take)
            await self._identify(request)  # the token may have ended meanwhile
            if (await self.open(there.entry.name)).entry.identity != there.entry.identity:
                raise Problem("unknown", f"the task {there.entry.name} was deleted in the meantime")
            yield body

    def refused(self, request: Request, problem: Problem) -> None:
        """Count a refusal, log it, and keep it for the task's status."""
        self.metrics.refused(problem.kind)
        grant: Grant | None = request.scope.get("grant")
        path: dict[str, Any] = request.scope.get("path_params", {})
        task, client = path.get("task"), grant.name if grant and not self.options.insecure else path.get("client")
        about = {"task": task, "client": client, "method": request.method, "path": request.url.path[:200]}
        level = logging.ERROR if problem.status >= 500 else logging.WARNING
        told = {"kind": problem.kind, "status": problem.status, "reason": problem.logged[:500], **about}
        self.lines.say(grant or "", f"{grant.role} {grant.name}" if grant else STRANGERS, "refused", level, **told)
        # Only what those of a known task did in it: a stranger must not be able to push that out.
        if grant and grant.task in (None, task) and isinstance(task, str) and self.tasks.recall(task):
            kept = self.refusals.setdefault(task, deque(maxlen=REFUSALS_KEPT))
            kept.append(Refusal(time.time(), str(client or "")[:80], problem.kind, problem.detail[:500]))

    def accepted(self, request: Request, action: Action, **about: Any) -> None:
        """Write down in the audit log what a request did, and by whom."""
        grant: Grant = request.scope["grant"]
        name = request.path_params.get("client", "") if self.options.insecure else grant.name
        self._audit.note(action, "anyone" if self.options.insecure else grant.role, name, **about)

    @contextmanager
    def waiting(self, request: Request) -> Iterator[None]:
        """Count this request among those of its token that wait, until the end of the block."""
        who = self._who(request)
        if self._waits[who] >= MOST_WAITS and not self.options.insecure:
            raise Problem("too-fast", f"{MOST_WAITS} requests with one token wait already", {"Retry-After": "10"})
        self._waits[who] += 1
        try:
            yield
        finally:
            self._waits[who] -= 1
            if not self._waits[who]:
                del self._waits[who]

    def log(self, event: str, **fields: Any) -> None:
        """Log something that clients without a token can cause."""
        self.lines.say("", STRANGERS, event, **fields)

    def _who(self, request: Request) -> Hashable:
        who: Hashable = request.scope["who"]
        return who

    def _slow_down(self, who: Hashable, cost: float = 1.0) -> None:
        if wait := self._rates.take(who, cost):
            seconds = max(1, math.ceil(wait))
            raise Problem("too-fast", f"try again in {seconds} s", {"Retry-After": str(seconds)})

    async def _identify(self, request: Request) -> Grant:
        if self.options.insecure:
            return ANYONE
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            raise _unauthorised("no token was sent: Authorization: Bearer <token>")
        grant = self.access.recall(token) or await self.read(self.access.find_all, token)
        if grant is None:
            raise _unauthorised("the token is unknown, revoked or expired")
        return grant


def _alone(function: Together[Item, Result], item: Item) -> Result:
    (outcome,) = function([item])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _unauthorised(detail: str) -> Problem:
    return Problem("unauthorised", detail, {"WWW-Authenticate": "Bearer"})
