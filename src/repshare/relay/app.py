"""The relay as an ASGI application."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Message, Receive, Scope, Send

from repshare.errors import StoreError
from repshare.relay.monitoring.audit_log import AuditLog
from repshare.relay.monitoring.logs import log_event
from repshare.relay.options import RelayOptions, is_loopback
from repshare.relay.page import site
from repshare.relay.page.recorder import expire, keep_notes
from repshare.relay.problems import Problem, from_error, respond
from repshare.relay.routes import clients, health, page, secure, tasks
from repshare.relay.routes.endpoint import Endpoint, Endpoints, describe_api
from repshare.relay.service import Service
from repshare.stores import Database

EXPIRY_SECONDS = 1.0


def make_app(database: Database, options: RelayOptions, audit: AuditLog | None = None) -> "RelayApp":
    """Make a relay over this database. Its state is `app.state.service`; the database stays open when the app ends."""
    return RelayApp(Service(database, options, audit or AuditLog()))


class RelayApp(Starlette):
    """The endpoints of a relay. Each takes a request and returns a response; any error is answered as a problem.

    Routing is done here, and not by Starlette: its layers take as long as some of the endpoints.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(lifespan=_run_background_work)
        self.state.service = self._service = service
        self._endpoints = Endpoints("")
        for part in (clients, secure, tasks, page, health):
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


@asynccontextmanager
async def _run_background_work(app: RelayApp) -> AsyncIterator[None]:
    service: Service = app.state.service
    work = [asyncio.create_task(each(service)) for each in (_expire, keep_notes, _count_omitted_lines)]
    try:
        yield
    finally:
        service.versions.stop()
        for each in work:
            each.cancel()
            with suppress(asyncio.CancelledError):
                await each


async def _expire(service: Service) -> None:
    """Forget releases that are too old, a few at a time."""
    while True:
        await asyncio.sleep(EXPIRY_SECONDS)
        with _logging_errors():
            for entry in await service.run(service.tasks.entries):
                if entry.task.max_age is not None:
                    with _logging_errors():  # an error in one task does not stop the others
                        await _expire_in(service, entry.name)


async def _expire_in(service: Service, name: str) -> None:
    opened = await service.run(service.tasks.find, name)
    while opened is not None and (expired := await service.run(expire, opened)):
        service.metrics.expired.inc(expired)
        service.versions.notify(name)
        log_event("expired", task=name, releases=expired)
        await asyncio.sleep(0)


@contextmanager
def _logging_errors() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        log_event("could not look for old releases", logging.WARNING, reason=str(error))
    except Exception:  # the relay continues without; the log says why
        logging.getLogger(__name__).exception("could not look for old releases")


async def _count_omitted_lines(service: Service) -> None:
    """Log once a second how many lines were left out."""
    while True:
        await asyncio.sleep(1)
        service.lines.flush()
