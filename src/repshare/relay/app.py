"""The relay as an ASGI application: its API in one table, and what every request goes through."""

import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import ExitStack
from functools import partial

from starlette.datastructures import State
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, Router
from starlette.staticfiles import StaticFiles
from starlette.types import Message, Receive, Scope, Send

from repshare.relay.background import work_in_background
from repshare.relay.connections import GuardedConnection
from repshare.relay.monitoring.audit_log import AuditLog
from repshare.relay.options import RelayOptions
from repshare.relay.page import site
from repshare.relay.problems import Problem, from_error, respond
from repshare.relay.routes import clients, health, page, secure, tasks
from repshare.relay.service import Service
from repshare.stores import Database

TASK = "/v1/tasks/{task}"
CLIENT = TASK + "/clients/{client}"
STEP = TASK + "/group/{client}/{number}/{step}"
Answer = Callable[[Service, Request], Awaitable[Response]]
LOCAL = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?")  # this machine's names in a URL

ROUTES: Mapping[str, Mapping[str, Answer]] = {
    f"{CLIENT}/release": {"PUT": clients.publish, "DELETE": clients.withdraw},
    f"{TASK}/teacher": {"GET": clients.teacher},
    f"{TASK}/news": {"GET": clients.news},
    f"{TASK}/status": {"GET": page.status},
    f"{CLIENT}/report": {"PUT": page.report},
    STEP: {"PUT": secure.put, "GET": secure.get},
    f"{TASK}/group": {"GET": secure.members},
    f"{TASK}/group/{{client}}": {"PUT": secure.call},
    TASK: {"GET": tasks.describe},
    "/v1/tasks": {"GET": tasks.list_tasks},
    "/v1/me": {"GET": tasks.me},
    "/healthz": {"GET": health.healthz},
    "/metrics": {"GET": health.metrics},
    "/": {"GET": page.front},
}


def make_app(database: Database, options: RelayOptions, audit: AuditLog | None = None) -> "RelayApp":
    """Make a relay over this database. Its state is `app.state.service`; the database stays open when the app ends."""
    return RelayApp(Service(database, options, audit or AuditLog()))


class RelayApp:
    """The routes of a relay. A request is counted, and any error is answered as a problem."""

    def __init__(self, service: Service) -> None:
        self.state = State({"service": service})
        self._service = service
        routes = [Route(path, partial(_answer, service, ways), methods=[*ways]) for path, ways in ROUTES.items()]
        self._router = Router(
            [*routes, Mount("/static", StaticFiles(directory=site.FOLDER))],
            redirect_slashes=False,
            lifespan=lambda _: work_in_background(service),
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. What it holds in memory (`scope["held"]`) is released when the answer is sent."""
        scope["app"] = self  # has the router raise what it cannot answer
        if scope["type"] != "http":
            await self._router(scope, receive, send)
            return
        status, begun = 0, time.perf_counter()
        connection: GuardedConnection | None = scope.get("state", {}).get("connection")  # none in a test without one

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                ending = [(b"connection", b"close")] if self._service.versions.stopped else []  # no more requests
                message["headers"] = [*message["headers"], *site.HEADERS, *ending]
            elif connection:
                connection.sending = len(message.get("body", b""))
            await send(message)

        try:
            with ExitStack() as scope["held"]:
                if self._service.options.insecure:
                    _check_origin(Request(scope))
                await self._router(scope, receive, note)
        except Exception as error:  # any error: the client gets an answer
            if status:  # one is under way: all that is left is to end it early
                raise
            await self._refuse(error, Request(scope))(scope, receive, note)
        finally:
            if connection:
                connection.answered()
            # Methods and paths from the outside are not made labels: anyone could invent a million of them.
            route = scope["route"].path if "route" in scope else "none"
            method = scope["method"] if route != "none" else "none"
            seconds = time.perf_counter() - begun
            self._service.metrics.seconds.labels(method, route, str(status or 500)).observe(seconds)

    def _refuse(self, error: Exception, request: Request) -> Response:
        problem = from_error(error)
        self._service.note_refusal(request, problem)
        if problem.status == 500:  # unexpected: the log needs to know where
            logging.getLogger(__name__).error("an endpoint failed", exc_info=error)
        return respond(problem)


async def _answer(service: Service, ways: Mapping[str, Answer], request: Request) -> Response:
    return await ways["GET" if request.method == "HEAD" else request.method](service, request)


def _check_origin(request: Request) -> None:
    """Raise a Problem unless an open relay was asked under a name of this machine, and by no page of another.

    A page in this machine's browser can reach it under a name of its own (DNS rebinding), or ask from elsewhere.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if not LOCAL.fullmatch(host):
        raise Problem("forbidden", f"--insecure serves 127.0.0.1 and localhost only, not {host[:80]!r}")
    if origin is not None and origin.partition("://")[2] != host:
        raise Problem("forbidden", f"a page of {origin[:80]!r} may not use this relay")
