"""Endpoints for groups that meet here for a secure sum: the relay keeps their messages, and can read only the total."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from repshare.relay.auth import Grant, is_client_name
from repshare.relay.problems import Problem
from repshare.relay.routes import endpoint
from repshare.relay.routes.clients import BODY_PROBLEMS
from repshare.relay.routes.endpoint import BINARY, BODY, BYTES, CLIENT, SUCCESS, Endpoints, parameter, several
from repshare.relay.routes.schemas import MeetingNumber, Nothing, parse_seconds, parse_whole
from repshare.relay.service import Service
from repshare.relay.sizes import Load
from repshare.secure import MOST_MEMBERS, STEPS
from repshare.sharing import wire
from repshare.sharing.task import Task

MOST_NUMBER = 2**53
LONGEST_PATIENCE_SECONDS = 600.0
MEMBER_BYTES = 2048  # in a message, for each member: a share or two with its name takes a quarter of that
VECTORS = 2  # the step in which messages are long: masked totals
MEETING = "/v1/tasks/{task}/meetings"
STEP = [
    parameter("number", "the meeting's", endpoint.number(MOST_NUMBER), "path", required=True),
    parameter("step", "of the meeting", endpoint.number(STEPS - 1), "path", required=True),
]
GROUP = several(CLIENT["schema"], MOST_MEMBERS, minItems=2, uniqueItems=True)
MEMBERS = parameter("members", "the group: all its clients' names", GROUP, required=True)
PATIENCE = parameter(
    "patience",
    "seconds until a step ends without the missing members; set by the first member",
    endpoint.number(LONGEST_PATIENCE_SECONDS, default=60),
)

endpoints = Endpoints("secure sums")


@endpoints.add("GET", MEETING, MeetingNumber, problems=["refused", "invalid"], parameters=[MEMBERS])
async def number(service: Service, request: Request) -> Response:
    """Ask for a group's next meeting."""
    members = _members(service, request, await service.enter(request, "client"))
    opened = await service.open(request.path_params["task"])
    found = await service.run(opened.meetings.number, members)
    begun = await service.run(opened.meetings.begun, members)
    return JSONResponse({"number": found, "begun": begun})


@endpoints.add(
    "PUT",
    MEETING + "/{number}/{step}/clients/{client}",
    Nothing,
    problems=(*BODY_PROBLEMS, "malformed", "invalid"),
    parameters=[*STEP, MEMBERS, PATIENCE],
    body=BODY,
)
async def put(service: Service, request: Request) -> Response:
    """Send a message in a meeting.

    Bytes that the relay does not read. A step ends when all members of the step before it have sent a message, or
    `patience` seconds after the first did.
    """
    opened, client = await service.enter_own(request)
    task = opened.entry.task
    patience = parse_seconds("patience", request.query_params.get("patience", "60"), LONGEST_PATIENCE_SECONDS)
    members, (number, step) = _members(service, request, request.scope["grant"]), _step(request)
    service.check_size(len(members) * _vector(task), "a smaller group can meet")
    longest = (_vector(task) if step == VECTORS else 0) + MEMBER_BYTES * len(members)  # see `masking`
    async with service.receive(request, opened, longest) as body:
        await service.run(opened.meetings.put, members, number, step, client, body, patience)
    return Response(b"{}", media_type="application/json")


@endpoints.add(
    "GET",
    MEETING + "/{number}/{step}",
    {200: {"description": SUCCESS, "content": BINARY}, 204: {"description": "The step is not over yet"}},
    problems=["refused", "invalid"],
    parameters=[*STEP, MEMBERS],
)
async def get(service: Service, request: Request) -> Response:
    """Read the messages of a meeting.

    Safetensors bytes, as `repshare.sharing.wire.decode_items` reads them: each member's message.
    """
    members = _members(service, request, await service.enter(request, "client"))
    opened = await service.open(request.path_params["task"])
    number, step = _step(request)

    def read() -> bytes | None:
        messages = opened.meetings.get(members, number, step)
        return None if messages is None else wire.encode_items(messages)

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


def _vector(task: Task) -> int:
    """Return the bytes of a masked total."""
    return 8 * task.classes * (task.dimension + 3)


def _step(request: Request) -> tuple[int, int]:
    """Return the number of the meeting, and the step in it."""
    path = request.path_params
    return parse_whole("number", path["number"], MOST_NUMBER), parse_whole("step", path["step"], STEPS - 1)
