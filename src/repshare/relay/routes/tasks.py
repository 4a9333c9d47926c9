"""Endpoints about tasks: the list, a description; and who a token is."""

import json
from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from repshare.relay.service import Service


async def list_tasks(service: Service, request: Request) -> Response:
    """List the tasks that the token is for."""
    grant = await service.enter(request, public=service.options.public_page)
    entries = await service.run(service.tasks.entries)
    visible = [entry for entry in entries if grant.task in (None, entry.name)]
    return _json({"tasks": [{"name": entry.name, **asdict(entry.task)} for entry in visible]})


async def describe(service: Service, request: Request) -> Response:
    """Describe a task."""
    _, opened = await service.enter_task(request)
    return _json({"name": opened.entry.name, **asdict(opened.entry.task)})


async def me(service: Service, request: Request) -> Response:
    """Describe the token and its task."""
    grant = await service.enter(request)
    answer: dict[str, Any] = {"role": grant.role, "client": grant.name, "task": grant.task}
    if service.options.insecure:
        answer["client"] = None
    elif grant.task is not None:
        answer |= asdict((await service.open(grant.task)).entry.task)
    return _json(answer)


def _json(document: Any) -> Response:
    return Response(json.dumps(document), media_type="application/json")
