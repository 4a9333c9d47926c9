"""Endpoints for viewers: the page, its data, and clients' reports."""

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from repshare.relay.auth import ROLES
from repshare.relay.limits import Load
from repshare.relay.page import histories, site
from repshare.relay.page.document import make_map, make_view
from repshare.relay.routes.schemas import RoundReport, parse
from repshare.relay.service import Service

MOST_REPORT_BYTES = 4096


async def front(service: Service, _: Request) -> Response:
    """Return the page."""
    needs_token = not (service.options.insecure or service.options.public_page)
    made = await anyio.to_thread.run_sync(lambda: site.make_front(needs_token=needs_token))
    return HTMLResponse(made, headers=site.HEADERS)


async def plotly(_: Service, request: Request) -> Response:
    """Return plotly's own JavaScript."""
    return site.send_plotly(await anyio.to_thread.run_sync(site.find_plotly), request)


async def report(service: Service, request: Request) -> Response:
    """Report a round.

    For the client itself, if it chooses: shown on the page next to what its releases tell. Every field but `round`
    may be left out.
    """
    opened, client = (await service.enter_task(request, "client", own=True)).opened, request.path_params["client"]
    async with service.receive(request, opened, MOST_REPORT_BYTES) as body:
        reported = parse(RoundReport, request, body).model_dump(exclude_none=True)
        await service.run(histories.record, opened.notes, client, reported)
    service.presence.note(opened.entry.name, client)
    return Response(b"{}", media_type="application/json")


async def page(service: Service, request: Request) -> Response:
    """A task as the page shows it.

    For viewers and admins; for everyone with --public-page. A client is shown its own row, and the totals that it
    learns from. At most some seconds old.
    """
    public = service.options.public_page
    grant, opened = await service.enter_task(request, *ROLES, public=public)
    own = grant.name if grant.role == "client" else None
    refusals, away_seconds = service.list_refusals(opened.entry.name), service.options.away_seconds
    made = await service.documents.get(
        ("page" if own is None else f"page/{own}", opened.entry.identity),
        lambda: make_view(opened.entry.name, opened.board, opened.notes, refusals, away_seconds, own),
    )
    return _document(service, request, made)


async def show_map(service: Service, request: Request) -> Response:
    """The map: class means over the rounds as points in a plane.

    For viewers and admins; for everyone with --public-page. points[frame][0] are the global means, points[frame][n]
    those of clients[n - 1], a point or null for each class.
    """
    _, opened = await service.enter_task(request, "viewer", "admin", public=service.options.public_page)
    identity, planes = opened.entry.identity, service.planes

    def make() -> bytes:
        document, planes[identity] = make_map(opened.board.task, opened.notes, planes.get(identity))
        return document

    made = await service.documents.get(("map", identity), make)
    return _document(service, request, made)


def _document(service: Service, request: Request, made: bytes) -> Response:
    service.charge(request, Load(len(made)))
    return site.ChunkedResponse(made, media_type="application/json", headers={"Cache-Control": "no-store"})
