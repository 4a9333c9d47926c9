"""Endpoints of the page: itself, what it shows, and clients' reports."""

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from repshare.relay.page import activity, site
from repshare.relay.page.document import make_view
from repshare.relay.routes.schemas import parse_report
from repshare.relay.service import Service

MOST_REPORT_BYTES = 4096


async def front(service: Service, _: Request) -> Response:
    """Show the page."""
    needs_token = not (service.options.insecure or service.options.public_page)
    return HTMLResponse(site.make_front(needs_token=needs_token))


async def report(service: Service, request: Request) -> Response:
    """Report a round.

    For the client itself, if it chooses: shown on the page next to what its releases tell. Every field but `round`
    may be left out.
    """
    opened, client = (await service.enter_task(request, "client", own=True)).opened, request.path_params["client"]
    async with service.receive(request, opened, MOST_REPORT_BYTES) as body:
        reported = parse_report(body).model_dump(exclude_none=True)
        await service.run(activity.record, opened.activity, client, reported)
    service.presence.note(opened.entry.name, client)
    return Response(b"{}", media_type="application/json")


async def status(service: Service, request: Request) -> Response:
    """Show a task, as the page does.

    To viewers; to everyone with --public-page. A client is shown its own row, and the totals that it learns from. At
    most some seconds old.
    """
    public = service.options.public_page
    grant, opened = await service.enter_task(request, public=public)
    own = grant.name if grant.role == "client" else None
    name, away_seconds = opened.entry.name, service.options.away_seconds
    refusals, seen = service.list_refusals(name), service.presence.of(name)
    made = await service.documents.get(
        ("page" if own is None else f"page/{own}", opened.entry.identity),
        lambda: make_view(name, opened.board, opened.activity, seen, refusals, away_seconds, own),
    )
    service.charge(request, len(made))
    return Response(made, media_type="application/json")
