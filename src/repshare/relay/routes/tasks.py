"""Endpoints about tasks: the list, a description, the status; and who a token is."""

import json
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from repshare.board.state import BoardMember
from repshare.relay.service import Service
from repshare.relay.tasks import OpenTask


async def list_tasks(service: Service, request: Request) -> Response:
    """List tasks."""
    grant = await service.enter(request, public=service.options.public_page)
    entries = await service.run(service.tasks.entries)
    visible = [entry for entry in entries if grant.task in (None, entry.name)]
    return _json({"tasks": [{"name": entry.name, **asdict(entry.task)} for entry in visible]})


async def describe(service: Service, request: Request) -> Response:
    """Describe a task."""
    _, opened = await service.enter_task(request)
    return _json({"name": opened.entry.name, **asdict(opened.entry.task)})


async def status(service: Service, request: Request) -> Response:
    """Show the status of a task.

    Its `version`, the number of `clients`, and for each of those `shown` its round, when it published (seconds since
    1970), bytes, samples by class and `strangeness`: how many times farther its means are from the others' than is
    usual; in a space, how many times more often it is wrong about its own samples. A client is told of itself only,
    viewers of the last `refusals`, too. With many clients, at most some seconds old.
    """
    grant, opened = await service.enter_task(request)
    made = await service.statuses.get(("", opened.entry.identity), lambda: _status(opened))
    document = dict(made)
    if grant.role == "client":
        document["shown"] = await service.run(_find_own, opened, made, grant.name)
        if not service.options.insecure:
            document["left_out"] = [row for row in made["left_out"] if row["name"] == grant.name]
    else:
        document["refusals"] = service.list_refusals(opened.entry.name)
    answer = _json(document)
    service.charge(request, len(answer.body))
    return answer


async def me(service: Service, request: Request) -> Response:
    """Describe the token and its task."""
    grant = await service.enter(request)
    answer: dict[str, Any] = {"role": grant.role, "client": grant.name, "task": grant.task}
    if service.options.insecure:
        answer["client"] = None
    elif grant.task is not None:
        answer |= asdict((await service.open(grant.task)).entry.task)
    return _json(answer)


def _status(opened: OpenTask) -> dict[str, Any]:
    now, task = opened.board.status(), asdict(opened.entry.task)
    outliers, pairs = set(now.outliers()), zip(now.shown, now.strangeness, strict=True)
    shown = [_row(member, score, outlier=member.name in outliers) for member, score in pairs]
    left_out = [each._asdict() for each in opened.board.named()]
    told = {"name": opened.entry.name, "task": task, "version": now.version, "clients": now.clients}
    return {**told, "shown": shown, "left_out": left_out}


def _find_own(opened: OpenTask, made: dict[str, Any], client: str) -> list[dict[str, Any]]:
    """A client's own row, also where it is not among those shown."""
    if shown := [row for row in made["shown"] if row["name"] == client]:
        return shown
    member = opened.board.find(client)
    return [] if member is None else [_row(member, None, outlier=False)]


def _row(member: BoardMember, score: float | None, *, outlier: bool) -> dict[str, Any]:
    return {**member._asdict(), "strangeness": score, "outlier": outlier}


def _json(document: Any) -> Response:
    return Response(json.dumps(document), media_type="application/json")
