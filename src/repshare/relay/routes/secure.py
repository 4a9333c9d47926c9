"""Endpoints for groups that meet here for a secure sum: the relay keeps what they say, and can read only the total."""

import math
from enum import Enum
from typing import Any

from fastapi import FastAPI, Request, Response

from repshare.relay.auth import Grant, is_client_name
from repshare.relay.problems import Problem
from repshare.relay.routes.clients import BODY, TAKING, check_client
from repshare.relay.schemas import BYTES, CLIENT, GUARDED, TASK, MeetingNumber, Nothing, answers
from repshare.relay.service import Service
from repshare.relay.sizes import Load
from repshare.secure import MOST_MEMBERS, STEPS
from repshare.sharing import wire
from repshare.sharing.task import Task

MOST_NUMBER = 2**53
LONGEST_PATIENCE_SECONDS = 600.0
MEMBER_BYTES = 2048  # in a message, for each member: a share or two with its name takes a quarter of that
VECTORS = 2  # the step in which messages are long: masked totals
TAGS: list[str | Enum] = ["secure sums"]


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints."""

    @app.get(
        "/v1/tasks/{task}/meetings",
        tags=TAGS,
        summary="Ask for a group's next meeting",
        responses={200: {"model": MeetingNumber}, **answers(*GUARDED, "refused", "invalid")},
        openapi_extra={"parameters": [TASK, MEMBERS]},
    )
    async def number(request: Request) -> Response:
        task = request.path_params["task"]
        members = _members(service, request, await service.enter(request, ("client",), task))
        there = await service.open(task)
        found = await service.run(there.meetings.number, members)
        return Response(b'{"number": %d}' % found, media_type="application/json")

    @app.put(
        "/v1/tasks/{task}/meetings/{number}/{step}/clients/{client}",
        tags=TAGS,
        summary="Say something in a meeting",
        description="Bytes that the relay does not look into. A step is over when everyone of the step before has said "
        "something, or `patience` seconds after the first did.",
        responses={200: {"model": Nothing}, **answers(*GUARDED, *TAKING, "malformed", "invalid")},
        openapi_extra={"parameters": [TASK, *PLACE, CLIENT, MEMBERS, PATIENCE], "requestBody": BODY},
    )
    async def put(request: Request) -> Response:
        path = request.path_params
        grant = await service.enter(request, ("client",), path["task"])
        there = await service.open(path["task"])
        check_client(service, grant, path["client"])
        members, patience = _members(service, request, grant), _patience(request)
        number, step = _whole(path["number"], MOST_NUMBER), _whole(path["step"], STEPS - 1)
        service.check_size(len(members) * _vector(there.entry.task), "a smaller group can meet")
        async with service.receive(request, there, _longest(there.entry.task, members, step)) as body:
            await service.run(there.meetings.put, members, number, step, path["client"], body, patience)
        return Response(b"{}", media_type="application/json")

    @app.get(
        "/v1/tasks/{task}/meetings/{number}/{step}",
        tags=TAGS,
        summary="Read what was said in a meeting",
        description="Safetensors bytes, as `repshare.sharing.wire.decode_items` reads them: what each member said.",
        responses={
            200: {"content": {BYTES: {"schema": {"type": "string", "format": "binary"}}}},
            204: {"description": "The step is not over yet"},
            **answers(*GUARDED, "refused", "invalid"),
        },
        response_class=Response,
        openapi_extra={"parameters": [TASK, *PLACE, MEMBERS]},
    )
    async def get(request: Request) -> Response:
        path = request.path_params
        members = _members(service, request, await service.enter(request, ("client",), path["task"]))
        there = await service.open(path["task"])
        place = _whole(path["number"], MOST_NUMBER), _whole(path["step"], STEPS - 1)

        def read() -> bytes | None:
            said = there.meetings.get(members, *place)
            return None if said is None else wire.encode_items(said)

        body = await service.change(read)
        if body is None:
            return Response(status_code=204)
        service.hold(request, Load(len(body)))
        return Response(body, media_type=BYTES)


def _members(service: Service, request: Request, grant: Grant) -> list[str]:
    members = sorted(set(request.query_params.getlist("members")))
    if not 2 <= len(members) <= MOST_MEMBERS or not all(map(is_client_name, members)):
        raise Problem("invalid", f"members must be 2 to {MOST_MEMBERS} names of clients")
    if not service.options.insecure and grant.name not in members:
        raise Problem("forbidden", f"{grant.name} is not in the group")
    return members


def _longest(task: Task, members: list[str], step: int) -> int:
    """Bytes that a message in this step may have: see `masking`."""
    return (_vector(task) if step == VECTORS else 0) + MEMBER_BYTES * len(members)


def _vector(task: Task) -> int:
    """Bytes of a masked total."""
    return 8 * task.classes * (task.dimension + 3)


def _whole(text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= 20 and int(text) <= most):
        raise Problem("invalid", f"{text[:30]!r} must be a whole number from 0 to {most}")
    return int(text)


def _patience(request: Request) -> float:
    text = request.query_params.get("patience", "60")
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= LONGEST_PATIENCE_SECONDS:
        most = f"{LONGEST_PATIENCE_SECONDS:g}"
        raise Problem("invalid", f"patience must be from 0 to {most} seconds, not {text[:30]!r}")
    return seconds


def _place(key: str, most: int, what: str) -> dict[str, Any]:
    schema = {"type": "integer", "minimum": 0, "maximum": most}
    return {"name": key, "in": "path", "required": True, "description": what, "schema": schema}


PLACE = [_place("number", MOST_NUMBER, "the meeting's"), _place("step", STEPS - 1, "of the meeting")]
MEMBERS = {
    "name": "members",
    "in": "query",
    "required": True,
    "description": "the group: all its clients' names",
    "schema": {
        "type": "array",
        "items": CLIENT["schema"],
        "minItems": 2,
        "maxItems": MOST_MEMBERS,
        "uniqueItems": True,
    },
}
PATIENCE = {
    "name": "patience",
    "in": "query",
    "description": "seconds until a step is over without those who are missing; the first to come says how many",
    "schema": {"type": "number", "minimum": 0, "maximum": LONGEST_PATIENCE_SECONDS, "default": 60},
}
