"""An admin's endpoints: make and end tokens of a task's clients and viewers, without a shell on the relay's machine."""

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from repshare.errors import ConfigError, Refused
from repshare.relay.auth import Grant
from repshare.relay.problems import Problem
from repshare.relay.routes.schemas import INVITED, Invitation, parse
from repshare.relay.service import Service
from repshare.relay.tasks import OpenTask

MOST_BYTES = 4096
SECRET = {"Cache-Control": "no-store"}


async def invite(service: Service, request: Request) -> Response:
    """Invite a client or a viewer.

    For admins. Only a hash of the token is kept. Admins are invited on the relay's machine only.
    """
    opened = await _enter(service, request)
    async with service.receive(request, opened, MOST_BYTES) as body:
        wanted = parse(Invitation, request, body)
        grant = Grant(wanted.role, wanted.name, opened.entry.name)
        try:
            token = await service.run(
                service.access.invite, grant, renew=wanted.renew, days=wanted.days, instead_of=INVITED
            )
        except Refused as error:
            raise Problem("has-token", str(error)) from error
    about = {"task": grant.task, "client": grant.name, "role": grant.role}
    service.note_action(request, "invite", **about, days=wanted.days, renewed=wanted.renew)
    return JSONResponse({**grant._asdict(), "token": token}, 201, SECRET)


async def revoke(service: Service, request: Request) -> Response:
    """Revoke the token of a client or a viewer.

    For admins. What it published stays until it is withdrawn. Other relays over the same database may accept the token
    for another second.
    """
    opened = await _enter(service, request)
    try:
        grant = await service.run(
            service.access.revoke, request.path_params["client"], opened.entry.name, among=INVITED
        )
    except Refused as error:
        raise Problem("forbidden", str(error)) from error
    except ConfigError as error:
        raise Problem("unknown", str(error)) from error
    service.note_action(request, "revoke", task=grant.task, client=grant.name, role=grant.role)
    return JSONResponse(grant._asdict())


async def _enter(service: Service, request: Request) -> OpenTask:
    _, opened = await service.enter_task(request, "admin")
    if service.options.insecure:  # its tokens would be valid once the same database is served with tokens
        raise Problem("forbidden", "a relay without tokens (--insecure) invites nobody")
    return opened
