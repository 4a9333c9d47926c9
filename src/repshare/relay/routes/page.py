"""Endpoints for viewers: the page, its data, and clients' reports."""

import asyncio
import json
from collections.abc import AsyncIterator
from enum import Enum

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from starlette.responses import HTMLResponse, JSONResponse, StreamingResponse

from repshare.errors import RepshareError
from repshare.relay.page import histories, site, snapshots
from repshare.relay.page.document import SharedDocuments, make_view
from repshare.relay.problems import Problem
from repshare.relay.routes.clients import check_client
from repshare.relay.schemas import CLIENT, GUARDED, TASK, Nothing, RoundReport, answers, parse
from repshare.relay.service import Service
from repshare.relay.sizes import Load
from repshare.relay.tasks import Open

MOST_REPORT_BYTES = 4096
FRESH_SECONDS = 0.5  # for which any document is served
EVENT_SECONDS = 0.5  # between events to one viewer, at least
SIGN_OF_LIFE_SECONDS = 15.0
MOST_STREAMS = 200
TAGS: list[str | Enum] = ["page"]
JSON = {"content": {"application/json": {"schema": {"type": "object"}}}}


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints."""
    _add_files(app, service)
    _add_reports(app, service)
    _add_documents(app, service)
    _add_events(app, service)


def _add_files(app: FastAPI, service: Service) -> None:
    files, needs_token = (
        site.Files(directory=site.FOLDER),
        not (service.options.insecure or service.options.public_page),
    )

    @app.api_route("/", methods=["GET", "HEAD"], include_in_schema=False)
    async def front() -> Response:
        made = await anyio.to_thread.run_sync(lambda: site.make_front(needs_token=needs_token))
        return HTMLResponse(made, headers=site.HEADERS)

    @app.api_route("/docs", methods=["GET", "HEAD"], include_in_schema=False)
    async def docs(request: Request) -> Response:
        return await files.get_response("api.html", request.scope)

    @app.api_route("/openapi.json", methods=["GET", "HEAD"], include_in_schema=False)
    async def described() -> Response:
        return JSONResponse(app.openapi(), headers=site.HEADERS)

    @app.api_route("/static/plotly.js", methods=["GET", "HEAD"], include_in_schema=False)
    async def plotly(request: Request) -> Response:
        return site.send_plotly(await anyio.to_thread.run_sync(site.find_plotly), request)

    app.mount("/static", files)


def _add_reports(app: FastAPI, service: Service) -> None:
    @app.put(
        "/v1/tasks/{task}/clients/{client}/report",
        tags=TAGS,
        summary="Report a round",
        description="For the client itself, if it chooses: shown on the page next to what its releases tell. "
        "Every field but `round` may be left out.",
        responses={
            200: {"model": Nothing},
            **answers("malformed", *GUARDED, "too-slow", "too-large", "invalid", "busy"),
        },
        openapi_extra={
            "parameters": [TASK, CLIENT],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Report"}}},
            },
        },
    )
    async def report(request: Request) -> Response:
        path = request.path_params
        grant = await service.enter(request, ("client",), path["task"])
        there = await service.open(path["task"])
        check_client(service, grant, path["client"])
        async with service.receive(request, there, MOST_REPORT_BYTES) as body:
            told = parse(RoundReport, body).model_dump(exclude_none=True)
            await service.run(histories.record, there.notes, path["client"], told)
        service.seen.note(path["task"], path["client"])
        return Response(b"{}", media_type="application/json")


def _add_documents(app: FastAPI, service: Service) -> None:
    shared, planes = SharedDocuments(FRESH_SECONDS), dict[str, snapshots.Floats | None]()

    def draw(there: Open) -> bytes:
        task = there.board.task
        index, pictures = snapshots.read_frames(there.notes, task)
        document, plane = snapshots.make_map(index, pictures, planes.get(there.entry.identity))
        planes[there.entry.identity] = plane
        document["changes"] = index.changes
        document["room"] = snapshots.places(task)
        document["classes"] = min(task.classes, snapshots.CLASSES)
        return json.dumps(document, separators=(",", ":")).encode()

    @app.get(
        "/v1/tasks/{task}/page",
        tags=TAGS,
        summary="A task as the page shows it",
        description="For viewers and admins; for everyone with --public-page. At most some seconds old.",
        responses={200: JSON, **answers(*GUARDED)},
        openapi_extra={"parameters": [TASK]},
    )
    async def page(request: Request) -> Response:
        there = await _enter(service, request)
        name, away_seconds = there.entry.name, service.options.away_seconds
        refusals = [refusal._asdict() for refusal in service.refusals.get(name, ())]
        made = await shared.get(
            ("page", there.entry.identity), lambda: make_view(name, there.board, there.notes, refusals, away_seconds)
        )
        service.spend(request, Load(len(made)))
        return site.Pieces(made, media_type="application/json", headers={"Cache-Control": "no-store"})

    @app.get(
        "/v1/tasks/{task}/map",
        tags=TAGS,
        summary="The map: class means over the rounds as points in a plane",
        description="For viewers and admins; for everyone with --public-page. points[frame][0] are the global means, "
        "points[frame][n] those of clients[n - 1], a point or null for each class.",
        responses={200: JSON, **answers(*GUARDED)},
        openapi_extra={"parameters": [TASK]},
    )
    async def show_map(request: Request) -> Response:
        there = await _enter(service, request)
        made = await shared.get(("map", there.entry.identity), lambda: draw(there))
        service.spend(request, Load(len(made)))
        return site.Pieces(made, media_type="application/json", headers={"Cache-Control": "no-store"})


def _add_events(app: FastAPI, service: Service) -> None:
    open_streams = 0

    async def events(request: Request, task: str) -> AsyncIterator[bytes]:
        nonlocal open_streams
        open_streams += 1
        version = -1
        try:
            while not service.news.stopped:
                await service.enter_page(request, task)  # the token may have ended
                now = await service.news.wait(
                    f"page/{task}", version, SIGN_OF_LIFE_SECONDS, lambda: _look(service, task)
                )
                changed, version = now != version, now
                yield b"data: %d\n\n" % version if changed else b": still here\n\n"
                await asyncio.sleep(EVENT_SECONDS)
        except (Problem, RepshareError):  # the stream ends; who asks again is told why
            return
        finally:
            open_streams -= 1

    @app.get("/v1/tasks/{task}/events", include_in_schema=False)  # it never ends: no description can be tried on it
    async def stream(request: Request) -> Response:
        there = await _enter(service, request)
        if open_streams >= MOST_STREAMS:
            raise Problem("too-fast", f"{MOST_STREAMS} viewers are connected already: poll instead", _LATER)
        request.scope["held"].enter_context(service.waiting(request))
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(events(request, there.entry.name), media_type="text/event-stream", headers=headers)


async def _look(service: Service, task: str) -> int:
    there = await service.open(task)
    return await service.run(there.board.version)


async def _enter(service: Service, request: Request) -> Open:
    name = request.path_params["task"]
    await service.enter_page(request, name)
    return await service.open(name)


_LATER = {"Retry-After": "10"}
