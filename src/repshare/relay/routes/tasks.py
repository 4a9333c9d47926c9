"""Endpoints about tasks: create, list, describe and delete them, their status; and who a token is."""

import json
from dataclasses import asdict
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from repshare.board.members import BoardMember
from repshare.errors import Refused
from repshare.relay.limits import read_body
from repshare.relay.problems import Problem
from repshare.relay.routes.schemas import MOST_SHOWN, USUALLY_SHOWN, StatusQuery, TaskFields, parse, parse_query
from repshare.relay.service import Service
from repshare.relay.sizes import Load
from repshare.relay.tasks import OpenTask, make_task

MOST_DESCRIPTION_BYTES = 200_000


async def create(service: Service, request: Request) -> Response:
    """Create a task.

    For admins. The same values again change nothing; others are refused.
    """
    name = request.path_params["task"]
    await service.enter(request, "admin")
    body = await read_body(request, MOST_DESCRIPTION_BYTES, service.options.body_seconds)
    task = make_task(parse(TaskFields, body).model_dump())
    try:
        new = await service.run(service.tasks.create, name, task)
    except Refused as error:
        raise Problem("exists", str(error)) from error
    if new:
        service.accepted(request, "create", task=name)
    return _json({"name": name, **asdict(task)}, 201 if new else 200)


async def list_tasks(service: Service, request: Request) -> Response:
    """List tasks."""
    grant = await service.enter_page(request, "client")
    entries = await service.run(service.tasks.entries)
    visible = [entry for entry in entries if grant.task in (None, entry.name)]
    return _json({"tasks": [{"name": entry.name, **asdict(entry.task)} for entry in visible]})


async def describe(service: Service, request: Request) -> Response:
    """Describe a task."""
    _, opened = await service.enter_task(request, "client", "viewer", "admin")
    return _json({"name": opened.entry.name, **asdict(opened.entry.task)})


async def delete(service: Service, request: Request) -> Response:
    """Delete a task.

    For admins. Everything published in it is deleted, and its tokens end.
    """
    _, opened = await service.enter_task(request, "admin")
    name = opened.entry.name
    await service.run(service.tasks.delete, name)
    service.accepted(request, "delete", task=name)
    service.refusals.pop(name, None)
    service.versions.notify(name)
    return Response(status_code=204)


async def status(service: Service, request: Request) -> Response:
    """Show the status of a task.

    A client is told of itself only, and how many others there are. With many clients, at most some seconds old.
    """
    grant, opened = await service.enter_task(request, "client", "viewer", "admin")
    limit = parse_query(StatusQuery, request).limit
    size = USUALLY_SHOWN if limit <= USUALLY_SHOWN else MOST_SHOWN
    made = await service.statuses.get((str(size), opened.entry.identity), lambda: _status(opened, size))
    shown = made.shown if grant.role != "client" else await service.run(_own_row, opened, made, grant.name)
    parts = [*made.fields, f'"shown": [{", ".join(list(shown.values())[:limit])}]']
    if grant.role != "client":
        parts.append(f'"refusals": {json.dumps(service.list_refusals(opened.entry.name))}')
    body = f"{{{', '.join(parts)}}}".encode()
    service.spend(request, Load(len(body)))
    return Response(body, media_type="application/json")


async def me(service: Service, request: Request) -> Response:
    """Describe the token and its task."""
    grant = await service.enter(request, "client", "viewer", "admin")
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


def _status(opened: OpenTask, limit: int) -> _Status:
    now, task = opened.board.status(limit), asdict(opened.entry.task)
    fields = {"name": opened.entry.name, "task": task, "version": now.version, "clients": now.clients}
    outliers, pairs = set(now.outliers()), zip(now.shown, now.strangeness, strict=True)
    shown = {m.name: _row(m, score, outlier=m.name in outliers) for m, score in pairs}
    return _Status([f'"{key}": {json.dumps(value)}' for key, value in fields.items()], shown)


def _own_row(opened: OpenTask, made: _Status, client: str) -> dict[str, str]:
    """Return what a client is told of itself: also where it is not among those shown."""
    if client in made.shown:
        return {client: made.shown[client]}
    member = opened.board.find(client)
    return {} if member is None else {client: _row(member, None, outlier=False)}


def _row(member: BoardMember, score: float | None, *, outlier: bool) -> str:
    return json.dumps(member._asdict() | {"strangeness": score, "outlier": outlier})


def _json(document: Any, status: int = 200) -> Response:
    return Response(json.dumps(document), status, media_type="application/json")
