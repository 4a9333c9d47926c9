"""Endpoints for operators: is the relay well, and what happens in it. They tell no names."""

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from repshare.errors import StoreError
from repshare.relay.service import Service


async def healthz(service: Service, _: Request) -> Response:
    """Check that the relay works.

    Really writes to the store and reads from it.
    """

    def check() -> StoreError | None:
        try:
            service.database.check()
        except StoreError as error:
            return error
        return None

    # Anyone may ask, so the result is shared: asking must not be a way to keep the store busy.
    error = await service.health.get(("health", ""), check)
    if error is not None:
        raise StoreError(str(error))
    return Response(b'{"status": "ok"}', media_type="application/json")


async def metrics(service: Service, request: Request) -> Response:
    """Counters for Prometheus.

    For viewers; for everyone with --public-metrics.
    """
    await service.enter(request, "viewer", public=service.options.public_metrics)
    return Response(service.metrics.show(), media_type=CONTENT_TYPE_LATEST)
