"""What every endpoint of a relay works with: who asks, which task, how fast, and what was refused."""

import logging
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Hashable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, ParamSpec, TypeVar

import anyio.to_thread
from starlette.requests import Request

from repshare.relay.access import Access, Grant, Role
from repshare.relay.desk import Desk
from repshare.relay.limits import Rates, Room, Unread, read_body
from repshare.relay.logs import say
from repshare.relay.metrics import Metrics
from repshare.relay.names import is_name
from repshare.relay.news import News
from repshare.relay.options import Options
from repshare.relay.problems import Problem
from repshare.relay.seen import Seen
from repshare.relay.tasks import Open, Tasks
from repshare.stores import Database

REFUSALS_KEPT = 100  # a task
REFUSALS_LOGGED = 100  # a second, so that nobody can fill a disk with them
ANYONE = Grant("admin", "anyone", None)  # what an insecure relay allows everyone
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

    def __init__(self, database: Database, options: Options) -> None:
        self.database, self.options = database, options
        self.access, self.tasks, self.news = Access(database), Tasks(database), News()
        self.seen, self.unread = Seen(), Unread()
        self.metrics = Metrics(lambda: self.news.waiting)
        self.refusals: dict[str, deque[Refusal]] = {}  # by task
        self._rates, self._room = Rates(options.rate, 2 * options.rate), Room(options.max_bytes)
        self._reading = Desk() if database.slow else None
        self._writing = Desk() if database.slow else None
        self._log_rate = Rates(REFUSALS_LOGGED, REFUSALS_LOGGED)

    async def run(
        self, function: Callable[Arguments, Result], *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """Do something with the store: here, or in a thread where others would have to wait for disk or network."""
        if not self.database.slow:
            return function(*args, **kwargs)
        return await anyio.to_thread.run_sync(lambda: function(*args, **kwargs))

    async def read(self, function: Together[Item, Result], item: Item) -> Result:
        """Do something that reads from the store, where that is slow together with what others want of it."""
        return await self._reading.do(function, item) if self._reading else _alone(function, item)

    async def write(self, function: Together[Item, Result], item: Item) -> Result:
        """Do something that writes to the store, likewise."""
        return await self._writing.do(function, item) if self._writing else _alone(function, item)

    async def enter(self, request: Request, roles: tuple[Role, ...], task: str | None = None) -> Grant:
        """Who asks, if one of these roles and of this task; and not too fast."""
        grant = await self._identify(request)
        request.scope["grant"] = grant
        self._slow_down(self._who(request))
        if grant.role not in roles and not self.options.insecure:
            raise Problem("forbidden", f"this is for {' and '.join(roles)}; the token's role is {grant.role}")
        if grant.task is not None and task is not None and grant.task != task:
            raise Problem("forbidden", f"the token is for the task {grant.task}, not for {task[:80]}")
        return grant

    async def enter_page(self, request: Request, task: str | None = None) -> Grant:
        """Who asks, if one who may look: viewers, admins, and with --public-page everyone without a token."""
        if not self.options.public_page or "authorization" in request.headers:
            return await self.enter(request, ("viewer", "admin"), task)
        self._slow_down(("visitor", request.client.host if request.client else ""))
        return VISITOR

    async def open(self, name: str) -> Open:
        """The task of this name and its board."""
        there = self.tasks.recall(name)
        if there is None and is_name(name):
            there = await self.run(self.tasks.find, name)
        if there is None:
            raise Problem("unknown", f"there is no task {name[:80]!r}")
        return there

    @asynccontextmanager
    async def receive(self, request: Request, there: Open, most_bytes: int) -> AsyncIterator[bytes]:
        """A body for this task, held until the end of the block.

        While it came, the task may have been deleted, or another created under its name.
        """
        with self._room.hold(self._who(request)) as take:
            body = await read_body(request, min(most_bytes, self.options.max_bytes), self.options.body_seconds, take)
            if (await self.open(there.entry.name)).entry.identity != there.entry.identity:
                raise Problem("unknown", f"the task {there.entry.name} was deleted in the meantime")
            yield body

    def refused(self, request: Request, problem: Problem) -> None:
        """Count a refusal, log it, and keep it for the task's status."""
        self.metrics.refused(problem.kind)
        grant: Grant | None = request.scope.get("grant")
        path: dict[str, Any] = request.scope.get("path_params", {})
        task, client = path.get("task"), grant.name if grant and not self.options.insecure else path.get("client")
        if self._log_rate.take("log") == 0:
            about = {"task": task, "client": client, "method": request.method, "path": request.url.path[:200]}
            level = logging.ERROR if problem.status >= 500 else logging.WARNING
            say("refused", level, kind=problem.kind, status=problem.status, reason=problem.detail[:500], **about)
        # Only what those of a known task did in it: a stranger must not be able to push that out.
        if grant and grant.task in (None, task) and isinstance(task, str) and self.tasks.recall(task):
            kept = self.refusals.setdefault(task, deque(maxlen=REFUSALS_KEPT))
            kept.append(Refusal(time.time(), str(client or "")[:80], problem.kind, problem.detail[:500]))

    def _who(self, request: Request) -> Hashable:
        return request.path_params.get("client") if self.options.insecure else request.scope["grant"]

    def _slow_down(self, who: Hashable) -> None:
        if wait := self._rates.take(who):
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
            raise _unauthorised("the token is unknown or revoked")
        return grant


def _alone(function: Together[Item, Result], item: Item) -> Result:
    (outcome,) = function([item])
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _unauthorised(detail: str) -> Problem:
    return Problem("unauthorised", detail, {"WWW-Authenticate": "Bearer"})
