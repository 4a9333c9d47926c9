"""The relay as an ASGI application: its API in one table, and what every request goes through."""

import logging
import re
import time
from contextlib import ExitStack
from functools import partial

from starlette.datastructures import State
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Match, Mount, Route, Router
from starlette.types import Message, Receive, Scope, Send

from repshare.relay.background import work_in_background
from repshare.relay.connections import GuardedConnection
from repshare.relay.monitoring.audit_log import AuditLog
from repshare.relay.openapi import BYTES, JSON, Endpoint, describe_api
from repshare.relay.options import RelayOptions
from repshare.relay.page import site
from repshare.relay.problems import Problem, from_error, respond
from repshare.relay.routes import clients, health, invitations, page, schemas, secure, tasks
from repshare.relay.service import Service
from repshare.stores import Database

TASK = "/v1/tasks/{task}"
CLIENT = TASK + "/clients/{client}"
STEP = TASK + "/group/{client}/{number}/{step}"
LOCAL = re.compile(r"(localhost|127(\.\d{1,3}){3}|\[::1\])(:\d+)?")  # this machine's names in a URL

ENDPOINTS = (
    Endpoint("PUT", f"{CLIENT}/release", clients.publish, body=BYTES),
    Endpoint("GET", f"{TASK}/teacher", clients.teacher, {200: BYTES}, schemas.TeacherQuery),
    Endpoint("GET", f"{TASK}/news", clients.news, query=schemas.NewsQuery),
    Endpoint("DELETE", f"{CLIENT}/release", clients.withdraw),
    Endpoint("PUT", STEP, secure.put, query=schemas.StepQuery, body=BYTES),
    Endpoint("GET", STEP, secure.get, {200: BYTES, 204: None}, schemas.StepQuery),
    Endpoint("GET", f"{TASK}/group", secure.members),
    Endpoint("PUT", f"{TASK}/group/{{client}}", secure.call, query=schemas.CallQuery),
    Endpoint("GET", "/v1/me", tasks.me),
    Endpoint("GET", "/v1/tasks", tasks.list_tasks),
    Endpoint("GET", TASK, tasks.describe),
    Endpoint("GET", f"{TASK}/status", tasks.status),
    Endpoint("POST", f"{TASK}/clients", invitations.invite, {201: JSON}, body=schemas.Invitation),
    Endpoint("DELETE", CLIENT, invitations.revoke),
    Endpoint("PUT", f"{CLIENT}/report", page.report, body=schemas.RoundReport),
    Endpoint("GET", f"{TASK}/page", page.page),
    Endpoint("GET", "/healthz", health.healthz, guarded=False),
    Endpoint("GET", "/metrics", health.metrics, {200: "text/plain"}),
)


def make_app(database: Database, options: RelayOptions, audit: AuditLog | None = None) -> "RelayApp":
    """Make a relay over this database. Its state is `app.state.service`; the database stays open when the app ends."""
    return RelayApp(Service(database, options, audit or AuditLog()))


class RelayApp:
    """The routes of a relay. A request is counted, and any error is answered as a problem."""

    def __init__(self, service: Service) -> None:
        self.state = State({"service": service})
        self._service = service
        api = [(each.method, each.path, each.answer) for each in ENDPOINTS]
        described = JSONResponse(describe_api(ENDPOINTS, insecure=service.options.insecure), headers=site.HEADERS)
        self._router = Router(
            [
                *(Route(path, partial(answer, service), methods=[method]) for method, path, answer in api),
                Route("/", partial(page.front, service)),
                Mount("/static", site.FILES),
                Route("/openapi.json", lambda _: described),
            ],
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
                if self._service.versions.stopped:  # a stop is near: no more requests over this connection
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            elif connection:
                connection.sending = len(message.get("body", b""))
            await send(message)

        try:
            with ExitStack() as scope["held"]:
                if self._service.options.insecure:
                    _check_origin(Request(scope))
                await self._router(scope, receive, note)
        except Exception as error:  # of any kind: the client gets an answer
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
        if isinstance(error, HTTPException) and error.status_code == 405:
            routes = [each for each in self._router.routes if each.matches(request.scope)[0] is not Match.NONE]
            methods = {method for each in routes if isinstance(each, Route) for method in each.methods or ()}
            error = Problem("method", error.detail, {"Allow": ", ".join(sorted(methods))})
        problem = from_error(error)
        self._service.note_refusal(request, problem)
        if problem.status == 500:  # unexpected: the log needs to know where
            logging.getLogger(__name__).error("an endpoint failed", exc_info=error)
        return respond(problem)


def _check_origin(request: Request) -> None:
    """Raise a Problem unless an open relay was asked under a name of this machine, and by no page of another.

    A page in this machine's browser can reach it under a name of its own (DNS rebinding), or ask from elsewhere.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if not LOCAL.fullmatch(host):
        raise Problem("forbidden", f"--insecure serves 127.0.0.1 and localhost only, not {host[:80]!r}")
    if origin is not None and origin.partition("://")[2] != host:
        raise Problem("forbidden", f"a page of {origin[:80]!r} may not use this relay")
