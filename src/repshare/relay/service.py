"""The service behind all endpoints of a relay: who asks, which task, how fast, and what was refused."""

import asyncio
import logging
import math
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, NamedTuple, ParamSpec, TypeVar, cast

import anyio.to_thread
from starlette.requests import Request

from repshare.relay.auth import Access, Grant, Role, is_client_name
from repshare.relay.batching import Batcher, Work
from repshare.relay.limits import (
    MEMORY_BYTES,
    PART_BYTES,
    ConnectionQuota,
    MemoryBudget,
    RateLimiter,
    read_body,
)
from repshare.relay.monitoring.audit_log import Action, AuditLog
from repshare.relay.monitoring.logs import RateLimitedLog
from repshare.relay.monitoring.metrics import Metrics
from repshare.relay.options import RelayOptions
from repshare.relay.page.activity import Presence
from repshare.relay.page.document import SharedDocuments
from repshare.relay.problems import Problem
from repshare.relay.tasks import OpenTask, Tasks
from repshare.relay.watch import VersionWatch
from repshare.stores import Database, Store

HEADS_BYTES = 32_000_000  # of all requests' heads while they arrive
MOST_FIELDS = 1500  # of a query
MOST_WAITS = 20  # with one token, for changes
REFUSALS_KEPT = 100  # a task
LINES_A_SECOND = 20  # of the log for each token, and for all strangers together: they cannot fill a disk
STRANGERS = "strangers"
ANYONE = Grant("viewer", "anyone", None)  # everyone's grant at an insecure relay
LARGE_BYTES = 262_144  # of an answer: larger ones are made in a thread, so that other requests need not wait
VISITOR = Grant("viewer", "visitor", None)  # anonymous, of a public page
RECENT_SECONDS = 1.0  # for which a token or a task is not looked up again, though another process may have ended it
MOST_RECENT = 100_000  # tokens and tasks that are remembered for so long
FRESH_SECONDS = 0.5  # for which any document of the page, or a check of the store, is served

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Entry(NamedTuple):
    """An authenticated request about a task."""

    grant: Grant
    opened: OpenTask


class Service:
    """The state of one relay process."""

    def __init__(self, database: Database, options: RelayOptions, audit: AuditLog) -> None:
        self.database, self.options, self._audit, self.audited = database, options, audit, audit.kept
        self.access, self.tasks, self.versions = Access(database), Tasks(database), VersionWatch()
        self.presence = Presence()
        self.documents, self.health = SharedDocuments(FRESH_SECONDS), SharedDocuments(FRESH_SECONDS)
        self.unread, self.heads = ConnectionQuota(MEMORY_BYTES), ConnectionQuota(HEADS_BYTES)
        self.connections = ConnectionQuota(options.connections)
        self.metrics = Metrics(lambda: self.versions.waiting)
        self.refusals: dict[str, deque[dict[str, Any]]] = {}  # by task; see `RefusalStatus`
        self._rates, self._memory = RateLimiter(options.rate, 2 * options.rate), MemoryBudget(options.max_bytes)
        self._reading, self._large, self._writing = Batcher(), Batcher(), Batcher()
        self._alone = asyncio.Lock()
        self._waits = Counter[Hashable]()
        self._recent: dict[tuple[str, str], tuple[float, Any]] = {}  # tokens and tasks, until when each may be used
        self.lines = RateLimitedLog(LINES_A_SECOND, 5 * LINES_A_SECOND)

    async def run(
        self, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Run a function in a thread, so that other requests need not wait for disk or network."""
        return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs))

    async def read(self, store: Store, work: Work[Result], size: int = 0) -> Result:
        """Read from a store. Reads that take long share one transaction with other requests' reads.

        `size`: bytes of memory that the read takes while it runs.
        """
        if size >= LARGE_BYTES:
            return await self._large.do(store.read, work, size)
        if self.database.remote:
            return await self._reading.do(store.read, work, size)
        return store.read(work)  # quicker than asking a thread

    async def write(self, store: Store, work: Work[Result], size: int = 0) -> Result:
        """Write to a store, in one transaction with other requests' writes."""
        return await self._writing.do(store.transact, work, size)

    async def run_alone(
        self, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Run a function in a thread, one at a time, as each may take much memory."""
        async with self._alone:
            return await self.run(function, *args, **kwargs)

    def reserve(self, request: Request, size: int) -> None:
        """Reserve these bytes of memory until the request is answered, and charge them to the token's rate.

        Raises a Problem where there is no room for them now, or never. For a few bytes there always is.
        """
        self.check_size(size, "ask for fewer observations at once")
        self.charge(request, size)
        if size >= PART_BYTES:
            held: ExitStack = request.scope["held"]
            held.enter_context(self._memory.hold(request.scope["who"]))(size)

    def check_size(self, size: int, instead: str) -> None:
        """Raise a Problem if no answer may ever take this many bytes."""
        if size > self._memory.each:
            raise Problem(
                "refused", f"the answer would take {size:,} bytes; at most {self._memory.each:,} may: {instead}"
            )

    def charge(self, request: Request, size: int | None = None) -> None:
        """Charge a request to its token's rate, or the bytes of memory that it takes. Raises a Problem if too fast."""
        cost = 1 if size is None else size // PART_BYTES
        if cost and (wait := self._rates.take(request.scope["who"], cost)):
            seconds = max(1, math.ceil(wait))
            raise Problem("too-fast", f"try again in {seconds} s", {"Retry-After": str(seconds)})

    async def enter(
        self, request: Request, role: Role | None = None, *, public: bool = False, own: bool = False
    ) -> Grant:
        """The grant of a request's token, if it has this role (None: any) and is not too fast.

        `public`: a request without a token may enter, too. `own`: only the client in the path may.
        """
        if public and "authorization" not in request.headers:
            request.scope["who"] = ("visitor", request.client.host if request.client else "")
            self.charge(request)
            return VISITOR
        grant = await self._authenticate(request)
        self.charge(request)
        if role not in (None, grant.role) and not self.options.insecure:
            raise Problem("forbidden", f"this is for {role}s; the token's role is {grant.role}")
        task = request.path_params.get("task")
        if grant.task is not None and task is not None and grant.task != task:
            raise Problem("forbidden", f"the token is for the task {grant.task}, not for {task[:80]}")
        if own:
            self.check_client(grant, request.path_params["client"])
        return grant

    async def enter_task(
        self, request: Request, role: Role | None = None, *, public: bool = False, own: bool = False
    ) -> Entry:
        """Enter a request about the task in its path, and open the task."""
        grant = await self.enter(request, role, public=public, own=own)
        return Entry(grant, await self.open(request.path_params["task"]))

    async def _authenticate(self, request: Request) -> Grant:
        if self.options.insecure:
            grant: Grant | None = ANYONE
        else:
            scheme, _, token = request.headers.get("authorization", "").partition(" ")
            if scheme.lower() != "bearer":
                raise _unauthorised("no token was sent: Authorization: Bearer <token>")
            grant = await self._recall(
                ("token", token), lambda: self.read(self.access.store, lambda state: self.access.find_in(state, token))
            )
        if grant is None:
            raise _unauthorised("the token is unknown, revoked or expired")
        request.scope["grant"] = grant
        request.scope["who"] = request.path_params.get("client") if self.options.insecure else grant
        if request.scope["query_string"].count(b"&") > MOST_FIELDS:
            raise Problem("invalid", f"more than {MOST_FIELDS} fields in a query")
        return grant

    def check_client(self, grant: Grant, client: str) -> None:
        """Raise a Problem if the token is another client's, or this cannot be a client's name."""
        if not self.options.insecure and client != grant.name:
            raise Problem("forbidden", f"{grant.name} publishes as itself, not as {client[:80]}")
        if not is_client_name(client):
            raise Problem("refused", f"{client[:80]!r} cannot name a client")

    async def open(self, name: str) -> OpenTask:
        """The task of this name and its board."""
        opened = await self._recall(("task", name), lambda: self.run(self.tasks.find, name))
        if opened is None:
            raise Problem("unknown", f"there is no task {name[:80]!r}")
        return opened

    async def _recall(self, key: tuple[str, str], look: Callable[[], Awaitable[Result | None]]) -> Result | None:
        """What was found under this key at most a second ago; otherwise, what `look` finds."""
        until, kept = self._recent.get(key, (0.0, None))
        if time.monotonic() < until:
            return cast(Result, kept)
        if len(self._recent) >= MOST_RECENT:
            self._recent.clear()
        self._recent.pop(key, None)
        if (found := await look()) is not None:
            self._recent[key] = time.monotonic() + RECENT_SECONDS, found
        return found

    async def version(self, name: str) -> int:
        """The version of the board of the task of this name."""
        opened = await self.open(name)
        return await self.run(opened.board.version)

    @asynccontextmanager
    async def receive(self, request: Request, opened: OpenTask, most_bytes: int) -> AsyncIterator[bytes]:
        """Yield a body for this task, counted as taken memory until the end of the block.

        Token and task are looked up again: in the seconds that a body takes, either may have ended.
        """
        with self._memory.hold(request.scope["who"]) as take:
            body = await read_body(request, min(most_bytes, self.options.max_bytes), self.options.body_seconds, take)
            await self._authenticate(request)
            if (await self.open(opened.entry.name)).entry.identity != opened.entry.identity:
                raise Problem("unknown", f"the task {opened.entry.name} was deleted in the meantime")
            yield body

    def note_refusal(self, request: Request, problem: Problem) -> None:
        """Count a refusal, log it, and keep it for the task's status."""
        self.metrics.refusals.labels(problem.kind).inc()
        grant: Grant | None = request.scope.get("grant")
        path: dict[str, Any] = request.scope.get("path_params", {})
        task, client = path.get("task"), grant.name if grant and not self.options.insecure else path.get("client")
        about = {"task": task, "client": client, "method": request.method, "path": request.url.path[:200]}
        level = logging.ERROR if problem.status >= 500 else logging.WARNING
        told = {"kind": problem.kind, "status": problem.status, "reason": problem.logged[:500], **about}
        self.lines.write(grant or "", f"{grant.role} {grant.name}" if grant else STRANGERS, "refused", level, **told)
        # Of this task's members only: a stranger must not be able to push their refusals out.
        if grant and grant.task in (None, task) and isinstance(task, str) and ("task", task) in self._recent:
            kept = self.refusals.setdefault(task, deque(maxlen=REFUSALS_KEPT))
            who, reason = str(client or "")[:80], problem.detail[:500]
            kept.append({"time": time.time(), "client": who, "kind": problem.kind, "reason": reason})

    def list_refusals(self, task: str) -> list[dict[str, Any]]:
        """The last refusals in a task, the oldest first."""
        return list(self.refusals.get(task, ()))

    def note_action(self, request: Request, action: Action, **about: Any) -> None:
        """Write down in the audit log what a request did, and by whom."""
        grant: Grant = request.scope["grant"]
        name = request.path_params.get("client", "") if self.options.insecure else grant.name
        self._audit.note(action, "anyone" if self.options.insecure else grant.role, name, **about)

    @contextmanager
    def waiting(self, request: Request) -> Iterator[None]:
        """Count this request as waiting until the end of the block. Raises a Problem if too many of its token do."""
        who = request.scope["who"]
        if self._waits[who] >= MOST_WAITS and not self.options.insecure:
            raise Problem("too-fast", f"{MOST_WAITS} requests with one token wait already", {"Retry-After": "10"})
        self._waits[who] += 1
        try:
            yield
        finally:
            self._waits[who] -= 1
            if not self._waits[who]:
                del self._waits[who]

    def log_stranger(self, event: str, **fields: Any) -> None:
        """Log something that clients without a token can cause."""
        self.lines.write("", STRANGERS, event, **fields)


def _unauthorised(detail: str) -> Problem:
    return Problem("unauthorised", detail, {"WWW-Authenticate": "Bearer"})
