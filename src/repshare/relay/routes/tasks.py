"""Endpoints about tasks: create, list, delete, how one stands; and who a token is."""

import json
from dataclasses import asdict
from enum import Enum
from typing import Annotated, Any, NamedTuple

from fastapi import FastAPI, Query, Request, Response

from repshare.board.state import BoardMember
from repshare.errors import Refused
from repshare.relay.limits import read_body
from repshare.relay.page.document import SharedDocuments
from repshare.relay.problems import Problem
from repshare.relay.schemas import GUARDED, TASK, Me, NamedTask, TaskFields, TaskList, TaskStatus, answers, parse
from repshare.relay.service import Service
from repshare.relay.sizes import Load
from repshare.relay.tasks import Open, make_task

MOST_DESCRIPTION_BYTES = 10_000
USUALLY_SHOWN, MOST_SHOWN = 100, 1000
TAGS: list[str | Enum] = ["tasks"]


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints."""
    shared = SharedDocuments()

    @app.put(
        "/v1/tasks/{task}",
        tags=TAGS,
        summary="Create a task",
        description="For admins. The same values again change nothing; others are refused.",
        responses={
            200: {"model": NamedTask, "description": "It existed already"},
            201: {"model": NamedTask, "description": "It is new"},
            **answers("malformed", *GUARDED, "too-slow", "exists", "too-large", "invalid"),
        },
        openapi_extra={"parameters": [TASK], "requestBody": _body(TaskFields)},
    )
    async def create(request: Request) -> Response:
        name = request.path_params["task"]
        await service.enter(request, ("admin",), name)
        body = await read_body(request, MOST_DESCRIPTION_BYTES, service.options.body_seconds)
        task = make_task(parse(TaskFields, body).model_dump())
        try:
            new = await service.run(service.tasks.create, name, task)
        except Refused as error:
            raise Problem("exists", str(error)) from error
        if new:
            service.accepted(request, "create", task=name)
        return _json({"name": name, **asdict(task)}, 201 if new else 200)

    @app.get("/v1/tasks", tags=TAGS, summary="List tasks", responses={200: {"model": TaskList}, **answers(*GUARDED)})
    async def list_tasks(request: Request) -> Response:
        grant = await service.enter_page(request)
        entries = await service.run(service.tasks.entries)
        seen = [entry for entry in entries if grant.task in (None, entry.name)]
        return _json({"tasks": [{"name": entry.name, **asdict(entry.task)} for entry in seen]})

    @app.get(
        "/v1/tasks/{task}",
        tags=TAGS,
        summary="Describe a task",
        responses={200: {"model": NamedTask}, **answers(*GUARDED)},
        openapi_extra={"parameters": [TASK]},
    )
    async def describe(request: Request) -> Response:
        name = request.path_params["task"]
        await service.enter(request, ("client", "viewer", "admin"), name)
        there = await service.open(name)
        return _json({"name": name, **asdict(there.entry.task)})

    @app.delete(
        "/v1/tasks/{task}",
        tags=TAGS,
        summary="Delete a task",
        description="For admins. Everything published in it is deleted, and its tokens end.",
        status_code=204,
        response_class=Response,
        responses=answers(*GUARDED),
        openapi_extra={"parameters": [TASK]},
    )
    async def delete(request: Request) -> Response:
        name = request.path_params["task"]
        await service.enter(request, ("admin",), name)
        await service.open(name)
        await service.run(service.tasks.delete, name)
        service.accepted(request, "delete", task=name)
        service.refusals.pop(name, None)
        service.news.tell(name)
        return Response(status_code=204)

    @app.get(
        "/v1/tasks/{task}/status",
        tags=TAGS,
        summary="How a task stands",
        description="A client is told of itself only, and how many others there are. With many clients, at most some "
        "seconds old.",
        responses={200: {"model": TaskStatus}, **answers(*GUARDED, "invalid")},
        openapi_extra={"parameters": [TASK]},
    )
    async def status(request: Request, limit: Annotated[int, Query(ge=0, le=MOST_SHOWN)] = USUALLY_SHOWN) -> Response:
        name = request.path_params["task"]
        grant = await service.enter(request, ("client", "viewer", "admin"), name)
        there = await service.open(name)
        size = USUALLY_SHOWN if limit <= USUALLY_SHOWN else MOST_SHOWN
        made = await shared.get((str(size), there.entry.identity), lambda: _status(there, size))
        shown = made.shown if grant.role != "client" else await service.run(_own_row, there, made, grant.name)
        parts = [*made.fields, f'"shown": [{", ".join(list(shown.values())[:limit])}]']
        if grant.role != "client":
            refusals = [refusal._asdict() for refusal in service.refusals.get(name, ())]
            parts.append(f'"refusals": {json.dumps(refusals)}')
        body = f"{{{', '.join(parts)}}}".encode()
        service.spend(request, Load(len(body)))
        return Response(body, media_type="application/json")

    @app.get("/v1/me", tags=TAGS, summary="Who a token is", responses={200: {"model": Me}, **answers(*GUARDED)})
    async def me(request: Request) -> Response:
        grant = await service.enter(request, ("client", "viewer", "admin"))
        answer: dict[str, Any] = {"role": grant.role, "client": grant.name, "task": grant.task}
        if service.options.insecure:
            answer["client"] = None
        elif grant.task is not None:
            answer |= asdict((await service.open(grant.task)).entry.task)
        return _json(answer)


class _Status(NamedTuple):
    """The state of a task as JSON: putting it together again takes nearly no time."""

    fields: list[str]
    shown: dict[str, str]  # by client


def _status(there: Open, limit: int) -> _Status:
    now, task = there.board.status(limit), asdict(there.entry.task)
    fields = {"name": there.entry.name, "task": task, "version": now.version, "clients": now.clients}
    outliers, pairs = set(now.outliers()), zip(now.shown, now.strangeness, strict=True)
    shown = {m.name: _row(m, score, outlier=m.name in outliers) for m, score in pairs}
    return _Status([f'"{key}": {json.dumps(value)}' for key, value in fields.items()], shown)


def _own_row(there: Open, made: _Status, client: str) -> dict[str, str]:
    """Return what a client is told of itself: also where it is not among those shown."""
    if client in made.shown:
        return {client: made.shown[client]}
    member = there.board.find(client)
    return {} if member is None else {client: _row(member, None, outlier=False)}


def _row(member: BoardMember, score: float | None, *, outlier: bool) -> str:
    return json.dumps(member._asdict() | {"strangeness": score, "outlier": outlier})


def _body(model: type[TaskFields]) -> dict[str, Any]:
    return {"required": True, "content": {"application/json": {"schema": model.model_json_schema()}}}


def _json(document: Any, status: int = 200) -> Response:
    return Response(json.dumps(document), status, media_type="application/json")
