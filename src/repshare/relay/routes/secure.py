"""Endpoints for groups that meet here for a secure sum: the relay keeps what they say, and can read only the total."""

from enum import Enum

from fastapi import FastAPI, Request, Response

from repshare.relay.auth import Grant, is_client_name
from repshare.relay.problems import Problem
from repshare.relay.routes.clients import BODY, TAKING, check_client, parse_seconds, parse_whole
from repshare.relay.schemas import BYTES, CLIENT, GUARDED, TASK, MeetingNumber, Nothing, answers, describe_number
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
        summary="Send a message in a meeting",
        description="Bytes that the relay does not read. A step ends when all members of the step before it "
        "have sent a message, or `patience` seconds after the first did.",
        responses={200: {"model": Nothing}, **answers(*GUARDED, *TAKING, "malformed", "invalid")},
        openapi_extra={"parameters": [TASK, *PLACE, CLIENT, MEMBERS, PATIENCE], "requestBody": BODY},
    )
    async def put(request: Request) -> Response:
        path = request.path_params
        grant = await service.enter(request, ("client",), path["task"])
        there = await service.open(path["task"])
        check_client(service, grant, path["client"])
        patience = parse_seconds("patience", request.query_params.get("patience", "60"), LONGEST_PATIENCE_SECONDS)
        members, (number, step) = _members(service, request, grant), _place(path)
        service.check_size(len(members) * _vector(there.entry.task), "a smaller group can meet")
        async with service.receive(request, there, _longest(there.entry.task, members, step)) as body:
            await service.run(there.meetings.put, members, number, step, path["client"], body, patience)
        return Response(b"{}", media_type="application/json")

    @app.get(
        "/v1/tasks/{task}/meetings/{number}/{step}",
        tags=TAGS,
        summary="Read the messages of a meeting",
        description="Safetensors bytes, as `repshare.sharing.wire.decode_items` reads them: each member's message.",
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
        place = _place(path)

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
    """Return the bytes that a message in this step may have: see `masking`."""
    return (_vector(task) if step == VECTORS else 0) + MEMBER_BYTES * len(members)


def _vector(task: Task) -> int:
    """Return the bytes of a masked total."""
    return 8 * task.classes * (task.dimension + 3)


def _place(path: dict[str, str]) -> tuple[int, int]:
    return parse_whole("number", path["number"], 0, MOST_NUMBER), parse_whole("step", path["step"], 0, STEPS - 1)


PLACE = [
    {**describe_number("number", MOST_NUMBER, "the meeting's"), "in": "path", "required": True},
    {**describe_number("step", STEPS - 1, "of the meeting"), "in": "path", "required": True},
]
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
PATIENCE = describe_number(
    "patience",
    LONGEST_PATIENCE_SECONDS,
    "seconds until a step ends without the missing members; set by the first member",
    60,
)
