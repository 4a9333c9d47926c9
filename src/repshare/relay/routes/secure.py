"""Endpoints for a task's masked group: the relay keeps its members' messages, and can read only the total."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from repshare.relay.problems import Problem
from repshare.relay.routes.schemas import CallQuery, StepQuery, parse_query
from repshare.relay.service import Service
from repshare.relay.tasks import OpenTask
from repshare.secure import MOST_MEMBERS, Called, Meetings
from repshare.sharing import wire

MESSAGE_BYTES = 2048  # beside the numbers: keys and signatures take a tenth of that


async def call(service: Service, request: Request) -> Response:
    """Ask whom to meet.

    For a client of a task with `group_members` that is ready to meet. Until enough are, the answer has no members: ask
    again with the same `call`.
    """
    opened, client = (await service.enter_task(request, "client", own=True)).opened, request.path_params["client"]
    asked, group = parse_query(CallQuery, request), _group(opened)

    def answer() -> Called:
        invited = [] if group.has_met() else _invited(service, opened)
        given = asked.key, asked.call, asked.base, asked.company, asked.fault
        return group.call(client, *given, invited=invited, patience=asked.patience)

    return JSONResponse((await service.run(answer))._asdict())


async def put(service: Service, request: Request) -> Response:
    """Send a message in a meeting.

    Bytes that the relay does not read. A step ends when all members have sent a message; where one has not
    `patience` seconds after the first did, the meeting is over.
    """
    opened, client = (await service.enter_task(request, "client", own=True)).opened, request.path_params["client"]
    place, group, longest = parse_query(StepQuery, request), _group(opened), _longest(opened)
    service.check_size(min(MOST_MEMBERS, opened.entry.task.group_members) * longest, "a smaller group can meet")
    async with service.receive(request, opened, longest) as body:
        await service.run(group.put, client, place.number, place.step, body)
    return Response(b"{}", media_type="application/json")


async def get(service: Service, request: Request) -> Response:
    """Read the messages of a meeting.

    Safetensors bytes, as `repshare.sharing.wire.decode_items` reads them: each member's message.
    """
    opened, client = (await service.enter_task(request, "client", own=True)).opened, request.path_params["client"]
    place, group = parse_query(StepQuery, request), _group(opened)

    def read() -> bytes | None:
        messages = group.get(client, place.number, place.step)
        return None if messages is None else wire.encode_items(messages)

    body = await service.run_alone(read)
    if body is None:
        return Response(status_code=204)
    service.reserve(request, len(body))
    return Response(body, media_type="application/octet-stream")


async def members(service: Service, request: Request) -> Response:
    """List the members of a masked group."""
    _, opened = await service.enter_task(request)
    group, invited = _group(opened), await service.run(_invited, service, opened)
    ready, keys = await service.run(group.ready), await service.run(group.keys)
    faults = await service.run(group.faults)
    return JSONResponse({"invited": invited, "ready": ready, "keys": keys, "left_out": faults})


def _group(opened: OpenTask) -> Meetings:
    if not opened.entry.task.group_members:
        raise Problem("refused", f"the task {opened.entry.name} has no masked group: see --group-members")
    return opened.meetings


def _invited(service: Service, opened: OpenTask) -> list[str]:
    """Return the names of the clients that have a token; a relay without tokens knows of none."""
    grants = [entry.grant for entry in service.access.entries()]
    return sorted({grant.name for grant in grants if grant.task == opened.entry.name and grant.role == "client"})


def _longest(opened: OpenTask) -> int:
    """Return the bytes of the longest message: a masked release."""
    return 8 * opened.entry.task.totals_size + MESSAGE_BYTES
