"""The relay as an ASGI application."""

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from copy import deepcopy
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from starlette.exceptions import HTTPException
from starlette.routing import Route

import repshare
from repshare.errors import RepshareError, StoreError
from repshare.relay.monitoring.audit_log import AuditLog
from repshare.relay.monitoring.logs import say
from repshare.relay.options import RelayOptions, is_loopback
from repshare.relay.page.recorder import expire, keep_notes
from repshare.relay.problems import Problem, from_error, respond
from repshare.relay.routes import clients, health, page, secure, tasks
from repshare.relay.routes.direct import Application
from repshare.relay.schemas import Privacy, ProblemDetails, RoundReport
from repshare.relay.service import Service
from repshare.stores import Database

EXPIRY_SECONDS = 1.0


def make_app(database: Database, options: RelayOptions, audit: AuditLog | None = None) -> Application:
    """Make a relay over this database. Its state is `app.state.service`; the database stays open when the app ends."""
    service = Service(database, options, audit or AuditLog())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        work = [asyncio.create_task(each(service)) for each in (_expire, keep_notes, _tell_left_out)]
        try:
            yield
        finally:
            service.news.stop()
            for each in work:
                each.cancel()
                with suppress(asyncio.CancelledError):
                    await each

    app = Application(
        title="repshare relay",
        version=repshare.__version__,
        description="Between clients that learn together by sharing representations. Errors are "
        "`application/problem+json`; releases and teachers are safetensors bytes.",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # FastAPI's pages run scripts of other hosts; ours is in `page`
        redoc_url=None,
        openapi_url=None,
    )
    app.state.service = service
    for part in (clients, secure, tasks, page, health):
        part.add_routes(app, service)
    _answer_with_problems(app, service)
    app.openapi = lambda: _describe(app, options)  # type: ignore[method-assign]
    return app


def _answer_with_problems(app: Application, service: Service) -> None:
    async def answer(request: Request, error: Exception) -> Response:
        problem = from_error(error)
        if problem.kind == "method" and (methods := _methods(app, request)):
            problem.headers["Allow"] = ", ".join(sorted(methods))
        service.refused(request, problem)
        return respond(problem)

    for kind in (Problem, RepshareError, RequestValidationError, HTTPException, Exception):
        app.add_exception_handler(kind, answer)
    app.take_short_way(answer, service.metrics, _check_origin if service.options.insecure else None)


def _check_origin(request: Request) -> None:
    """Raise a Problem unless an open relay was asked under a name of this machine, and by no page of another.

    A page in this machine's browser can reach it under a name of its own (DNS rebinding), or ask from elsewhere.
    """
    host, origin = request.headers.get("host", ""), request.headers.get("origin")
    if not is_loopback(host.rpartition("]")[0][1:] if host.startswith("[") else host.partition(":")[0]):
        raise Problem("forbidden", f"--insecure serves 127.0.0.1 and localhost only, not {host[:80]!r}")
    if origin is not None and origin.partition("://")[2] != host:
        raise Problem("forbidden", f"a page of {origin[:80]!r} may not use this relay")


def _methods(app: FastAPI, request: Request) -> set[str]:
    paths = [route for route in app.routes if isinstance(route, Route) and route.path_regex.match(request.url.path)]
    return {method for route in paths for method in route.methods or ()}


def _describe(app: FastAPI, options: RelayOptions) -> dict[str, Any]:
    """Return the OpenAPI document, with what FastAPI cannot know: the token, and the shape of problems."""
    if app.openapi_schema is None:
        document = deepcopy(
            get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        )
        parts = document["components"]
        for model in (ProblemDetails, Privacy, RoundReport):
            shape = model.model_json_schema(ref_template="#/components/schemas/{model}")
            parts["schemas"][model.__name__] = {key: value for key, value in shape.items() if key != "$defs"}
        for path, methods in document["paths"].items():
            for method in methods.values():
                if options.insecure:
                    _require_client(method)
                elif path.startswith("/v1/"):
                    method["security"] = [{"token": []}]
        if not options.insecure:
            token = {"type": "http", "scheme": "bearer", "bearerFormat": "rs_<id>_<secret>"}
            parts["securitySchemes"] = {"token": token}
        app.openapi_schema = document
    return app.openapi_schema


def _require_client(method: dict[str, Any]) -> None:
    """Require a client's name: without a token, a request must name its client."""
    for parameter in method.get("parameters", ()):
        if parameter["name"] == "client":
            parameter["required"] = True


async def _expire(service: Service) -> None:
    """Forget releases that are too old, a few at a time."""
    while True:
        await asyncio.sleep(EXPIRY_SECONDS)
        with _going_on():
            for entry in await service.run(service.tasks.entries):
                if entry.task.max_age is not None:
                    with _going_on():  # one task's trouble is not the others'
                        await _expire_in(service, entry.name)


@contextmanager
def _going_on() -> Iterator[None]:
    try:
        yield
    except StoreError as error:
        say("could not look for old releases", logging.WARNING, reason=str(error))
    except Exception:  # the relay continues without; the log says why
        logging.getLogger(__name__).exception("could not look for old releases")


async def _tell_left_out(service: Service) -> None:
    """Log once a second how many lines were left out."""
    while True:
        await asyncio.sleep(1)
        service.lines.flush()


async def _expire_in(service: Service, name: str) -> None:
    there = await service.run(service.tasks.find, name)
    while there is not None and (gone := await service.run(expire, there)):
        service.metrics.expired(gone)
        service.news.tell(name)
        say("expired", task=name, releases=gone)
        await asyncio.sleep(0)
