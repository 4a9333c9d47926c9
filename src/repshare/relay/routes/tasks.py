"""Endpoints about tasks: create, list, describe and delete them, their status; and who a token is."""

import json
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from repshare.board.state import BoardMember
from repshare.errors import Refused
from repshare.relay.auth import ROLES
from repshare.relay.limits import Load, read_body
from repshare.relay.problems import Problem
from repshare.relay.routes.schemas import MOST_SHOWN, USUALLY_SHOWN, StatusQuery, TaskFields, parse, parse_query
from repshare.relay.service import Service
from repshare.relay.tasks import OpenTask, make_task

MOST_DESCRIPTION_BYTES = 200_000


async def create(service: Service, request: Request) -> Response:
    """Create a task.

    For admins. The same values again change nothing; others are refused.
    """
    name = request.path_params["task"]
    await service.enter(request, "admin")
    body = await read_body(request, MOST_DESCRIPTION_BYTES, service.options.body_seconds)
    task = make_task(parse(TaskFields, request, body).model_dump())
    try:
        new = await service.run(service.tasks.create, name, task)
    except Refused as error:
        raise Problem("exists", str(error)) from error
    if new:
        service.accepted(request, "create", task=name)
    return _json({"name": name, **asdict(task)}, 201 if new else 200)


async def list_tasks(service: Service, request: Request) -> Response:
    """List tasks."""
    grant = await service.enter(request, *ROLES, public=service.options.public_page)
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
    shown = made["shown"] if grant.role != "client" else await service.run(_find_own, opened, made, grant.name)
    document = {**made, "shown": shown[:limit]}
    if grant.role == "client" and not service.options.insecure:
        document["left_out"] = [row for row in made["left_out"] if row["name"] == grant.name]
    if grant.role != "client":
        document["refusals"] = service.list_refusals(opened.entry.name)
    answer = _json(document)
    service.charge(request, Load(len(answer.body)))
    return answer


async def me(service: Service, request: Request) -> Response:
    """Describe the token and its task."""
    grant = await service.enter(request, "client", "viewer", "admin")
    answer: dict[str, Any] = {"role": grant.role, "client": grant.name, "task": grant.task}
    if service.options.insecure:
        answer["client"] = None
    elif grant.task is not None:
        answer |= asdict((await service.open(grant.task)).entry.task)
    return _json(answer)


def _status(opened: OpenTask, limit: int) -> dict[str, Any]:
    now, task = opened.board.status(limit), asdict(opened.entry.task)
    outliers, pairs = set(now.outliers()), zip(now.shown, now.strangeness, strict=True)
    shown = [_row(member, score, outlier=member.name in outliers) for member, score in pairs]
    left_out = [each._asdict() for each in opened.board.named()]
    told = {"name": opened.entry.name, "task": task, "version": now.version, "clients": now.clients}
    return {**told, "shown": shown, "left_out": left_out}


def _find_own(opened: OpenTask, made: dict[str, Any], client: str) -> list[dict[str, Any]]:
    """Return what a client is told of itself: also where it is not among those shown."""
    if shown := [row for row in made["shown"] if row["name"] == client]:
        return shown
    member = opened.board.find(client)
    return [] if member is None else [_row(member, None, outlier=False)]


def _row(member: BoardMember, score: float | None, *, outlier: bool) -> dict[str, Any]:
    return {**member._asdict(), "strangeness": score, "outlier": outlier}


def _json(document: Any, status: int = 200) -> Response:
    return Response(json.dumps(document), status, media_type="application/json")
