"""Endpoints for other relays, which are joined to this one: each publishes its clients' total, and gets the others'."""

import hashlib

from starlette.requests import Request
from starlette.responses import Response

from repshare.board.joining import accept_total, longest_total, read_total
from repshare.relay.background import forget
from repshare.relay.routes.endpoint import BINARY, BODY, BYTES, SUCCESS, TEXT, Endpoints, parameter
from repshare.relay.routes.schemas import TaskVersion
from repshare.relay.service import Service
from repshare.relay.sizes import Load
from repshare.relay.tasks import OpenTask
from repshare.sharing import wire

PATH = "/v1/tasks/{task}/relays/{client}/total"

endpoints = Endpoints("relays")


@endpoints.add(
    "PUT", PATH, TaskVersion, problems=("malformed", "too-slow", "outdated", "too-large", "refused", "busy"), body=BODY
)
async def publish(service: Service, request: Request) -> Response:
    """Publish the total of a relay's clients.

    Safetensors bytes, as `repshare.sharing.wire.encode_total` writes them, in place of the relay's last total.
    """
    opened, client = await _enter(service, request)
    name = opened.entry.name
    async with service.receive(request, opened, longest_total(opened.entry.task)) as body:
        service.spend(request, Load(len(body)))
        version = await service.change(lambda: accept_total(opened.board, opened.entry.number, client, body))
    digest = hashlib.sha256(body).hexdigest()
    service.accepted(request, "publish", task=name, client=client, sha256=digest, bytes=len(body))
    service.metrics.bytes_in.inc(len(body))
    service.presence.note(name, client, up=len(body), published=True)
    service.versions.notify(name)
    return _version(version)


@endpoints.add(
    "GET",
    PATH,
    {
        200: {"description": SUCCESS, "content": BINARY, "headers": {"ETag": TEXT}},
        304: {"description": "The total is the one that the ETag names"},
    },
    problems=["refused", "busy"],
    parameters=[parameter("If-None-Match", "an ETag", TEXT["schema"], "header")],
)
async def fetch(service: Service, request: Request) -> Response:
    """Fetch the total of all clients but this relay's own.

    Safetensors bytes, as `repshare.sharing.wire.decode_total` reads them: exact sums, and nothing of a single client
    unless there is only one.
    """
    opened, client = await _enter(service, request)
    if known := request.headers.get("if-none-match"):
        tag = _tag(opened, await service.run(opened.board.version), client)
        if tag in known:
            service.presence.note(opened.entry.name, client)
            return Response(status_code=304, headers={"ETag": tag})
    service.hold(request, Load(longest_total(opened.entry.task)))
    version, total = await service.run(read_total, opened.board, opened.entry.number, client)
    body = wire.encode_total(total)
    service.metrics.bytes_out.inc(len(body))
    service.presence.note(opened.entry.name, client, down=len(body))
    return Response(body, media_type=BYTES, headers={"ETag": _tag(opened, version, client)})


@endpoints.add("DELETE", PATH, TaskVersion)
async def withdraw(service: Service, request: Request) -> Response:
    """Withdraw a relay's total.

    Without one, nothing changes.
    """
    opened, client = await _enter(service, request)
    version = await service.change(lambda: opened.board.withdraw(client))
    await service.run(forget, opened, [client])
    service.accepted(request, "withdraw", task=opened.entry.name, client=client)
    service.versions.notify(opened.entry.name)
    return _version(version)


async def _enter(service: Service, request: Request) -> tuple[OpenTask, str]:
    grant, opened = await service.enter_task(request, "relay")
    service.check_client(grant, request.path_params["client"])
    return opened, request.path_params["client"]


def _tag(opened: OpenTask, version: int, client: str) -> str:
    asked = repr((opened.entry.identity, version, client)).encode("utf-8", "surrogatepass")
    return f'"{hashlib.blake2b(asked, digest_size=16).hexdigest()}"'


def _version(version: int) -> Response:
    return Response(b'{"version": %d}' % version, media_type="application/json")
