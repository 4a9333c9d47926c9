"""Endpoints for groups that meet here for a secure sum: the relay keeps their messages, and can read only the total."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from repshare.relay.auth import Grant, is_client_name
from repshare.relay.problems import Problem
from repshare.relay.routes.schemas import CallQuery, GroupQuery, MessageQuery, StepQuery, parse_query
from repshare.relay.service import Service
from repshare.relay.tasks import OpenTask
from repshare.secure import MOST_MEMBERS, Called, Roll
from repshare.sharing import wire
from repshare.sharing.task import Task

MEMBER_BYTES = 2048  # in a message, for each member: an announcement and a signature take a tenth of that
VECTORS = 1  # the step in which messages are long: masked totals


async def number(service: Service, request: Request) -> Response:
    """Ask for a group's next meeting."""
    grant, opened = await service.enter_task(request, "client")
    members = _members(service, parse_query(GroupQuery, request), grant)
    found = await service.run(opened.meetings.number, members)
    begun = await service.run(opened.meetings.begun, members)
    return JSONResponse({"number": found, "begun": begun})


async def put(service: Service, request: Request) -> Response:
    """Send a message in a meeting.

    Bytes that the relay does not read. A step ends when all members of the step before it have sent a message, or
    `patience` seconds after the first did.
    """
    opened, client = (await service.enter_task(request, "client", own=True)).opened, request.path_params["client"]
    task = opened.entry.task
    place = parse_query(MessageQuery, request)
    members = _members(service, place, request.scope["grant"])
    service.check_size(len(members) * _vector(task), "a smaller group can meet")
    longest = (_vector(task) if place.step == VECTORS else 0) + MEMBER_BYTES * len(members)  # see `masking`
    async with service.receive(request, opened, longest) as body:
        await service.run(opened.meetings.put, members, place.number, place.step, client, body, place.patience)
    return Response(b"{}", media_type="application/json")


async def get(service: Service, request: Request) -> Response:
    """Read the messages of a meeting.

    Safetensors bytes, as `repshare.sharing.wire.decode_items` reads them: each member's message.
    """
    grant, opened = await service.enter_task(request, "client")
    place = parse_query(StepQuery, request)
    members = _members(service, place, grant)

    def read() -> bytes | None:
        messages = opened.meetings.get(members, place.number, place.step)
        return None if messages is None else wire.encode_items(messages)

    body = await service.run_alone(read)
    if body is None:
        return Response(status_code=204)
    service.reserve(request, len(body))
    return Response(body, media_type="application/octet-stream")


async def call(service: Service, request: Request) -> Response:
    """Ask whom to meet.

    For a client of a task with `group_members` that is ready to meet. Until enough are, the answer has no members: ask
    again with the same `call`.
    """
    opened, client = (await service.enter_task(request, "client", own=True)).opened, request.path_params["client"]
    asked, kept = parse_query(CallQuery, request), _roll(opened)

    def answer() -> Called:
        invited = [] if kept.has_met() else _invited(service, opened)
        given = asked.key, asked.call, asked.base, asked.company
        return kept.call(client, *given, invited=invited, patience=asked.patience)

    return JSONResponse((await service.run(answer))._asdict())


async def roll(service: Service, request: Request) -> Response:
    """List the members of a masked group."""
    _, opened = await service.enter_task(request)
    kept, invited = _roll(opened), await service.run(_invited, service, opened)
    ready, keys = await service.run(kept.ready), await service.run(kept.keys)
    return JSONResponse({"invited": invited, "ready": ready, "keys": keys})


def _roll(opened: OpenTask) -> Roll:
    if not opened.entry.task.group_members:
        raise Problem("refused", f"the task {opened.entry.name} has no masked group: see --group-members")
    return Roll(opened.meetings, opened.entry.task.group_members)


def _invited(service: Service, opened: OpenTask) -> list[str]:
    """Return the names of the clients that have a token; a relay without tokens knows of none."""
    grants = [entry.grant for entry in service.access.entries()]
    return sorted({grant.name for grant in grants if grant.task == opened.entry.name and grant.role == "client"})


def _members(service: Service, asked: GroupQuery, grant: Grant) -> list[str]:
    members = sorted(set(asked.members))
    if len(members) < 2 or not all(map(is_client_name, members)):
        raise Problem("invalid", f"members must be 2 to {MOST_MEMBERS} names of clients")
    if not service.options.insecure and grant.name not in members:
        raise Problem("forbidden", f"{grant.name} is not in the group")
    return members


def _vector(task: Task) -> int:
    """Return the bytes of a masked total."""
    return 8 * task.totals_size
