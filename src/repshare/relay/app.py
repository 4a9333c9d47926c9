"""The relay as an ASGI application."""

import logging
import time
from contextlib import ExitStack

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from repshare.relay.background import work_in_background
from repshare.relay.monitoring.audit_log import AuditLog
from repshare.relay.options import RelayOptions, is_loopback
from repshare.relay.page import site
from repshare.relay.problems import Problem, from_error, respond
from repshare.relay.routes import clients, health, invitations, page, secure, tasks
from repshare.relay.routes.endpoint import Endpoint, Endpoints, describe_api
from repshare.relay.service import Service
from repshare.stores import Database


def make_app(database: Database, options: RelayOptions, audit: AuditLog | None = None) -> "RelayApp":
    """Make a relay over this database. Its state is `app.state.service`; the database stays open when the app ends."""
    return RelayApp(Service(database, options, audit or AuditLog()))


class RelayApp(Starlette):
    """The endpoints of a relay. Each takes a request and returns a response; any error is answered as a problem.

    Routing is done here, and not by Starlette: its layers take as long as some of the endpoints.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(lifespan=lambda _: work_in_background(service))
        self.state.service = self._service = service
        self._endpoints = Endpoints("")
        for part in (clients, secure, tasks, invitations, page, health):
            self._endpoints += part.endpoints
        description = describe_api(self._endpoints, insecure=service.options.insecure)

        @self._endpoints.add("GET HEAD", "/openapi.json")
        async def describe(_: Service, __: Request) -> Response:
            return JSONResponse(description, headers=site.HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count it. What it holds in memory (`scope["held"]`) is released when that is sent."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        status, begun = 500, time.perf_counter()

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with ExitStack() as scope["held"]:
                response = await self._answer(Request(scope, receive))
                await response(scope, receive, note)
        finally:
            # Methods and paths from the outside are not made labels: anyone could invent a million of them.
            route = scope.get("route", "none")
            method = scope["method"] if route != "none" else "none"
            self._service.metrics.answered(method, route, status, time.perf_counter() - begun)

    async def _answer(self, request: Request) -> Response:
        try:
            if self._service.options.insecure:
                _check_origin(request)
            return await self._find(request.scope).answer(self._service, request)
        except Exception as error:  # whatever it is, the client gets an answer
            problem = from_error(error)
            self._service.refused(request, problem)
            if problem.status == 500:  # unexpected: the log needs to know where
                logging.getLogger(__name__).exception("an endpoint failed")
            return respond(problem)

    def _find(self, scope: Scope) -> Endpoint:
        allowed = set[str]()
        for endpoint in self._endpoints:
            if found := endpoint.pattern.match(scope["path"]):
                scope["route"], scope["path_params"] = endpoint.path, found.groupdict()
                if scope["method"] in endpoint.methods:
                    return endpoint
                allowed.update(endpoint.methods)
        if allowed:
            raise Problem("method", "Method Not Allowed", {"Allow": ", ".join(sorted(allowed))})
        raise Problem("unknown", "Not Found")


def _check_origin(request: Request) -> None:
    """Raise a Problem unless an open relay was asked under a name of this machine, and by no page of another.

    A page in this machine's browser can reach it under a name of its own (DNS rebinding), or ask from elsewhere.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if not is_loopback(host.rpartition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]):
        raise Problem("forbidden", f"--insecure serves 127.0.0.1 and localhost only, not {host[:80]!r}")
    if origin is not None and origin.partition("://")[2] != host:
        raise Problem("forbidden", f"a page of {origin[:80]!r} may not use this relay")
