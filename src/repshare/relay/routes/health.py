"""Endpoints for those who run a relay: is it well, and what happens in it."""

import asyncio
import time
from enum import Enum
from typing import Any

from fastapi import FastAPI, Response
from prometheus_client import CONTENT_TYPE_LATEST

from repshare.errors import StoreError
from repshare.relay.schemas import Health, answers
from repshare.relay.service import Service

REMEMBERED_SECONDS = 0.5  # anyone may ask, so asking must not be a way to keep the store busy
TAGS: list[str | Enum] = ["operations"]


def add_routes(app: FastAPI, service: Service) -> None:
    """Add the endpoints. They need no token, and tell no names."""
    checked: tuple[float, StoreError | None] = (0.0, None)  # until when, and with what result
    one_at_a_time = asyncio.Lock()

    @app.get(
        "/healthz",
        tags=TAGS,
        summary="Check that the relay works",
        description="Really writes to the store and reads from it.",
        responses={200: {"model": Health}, **answers()},
    )
    async def healthz() -> Response:
        nonlocal checked
        async with one_at_a_time:
            if time.monotonic() > checked[0]:
                error = None
                try:
                    await service.run(service.database.check)
                except StoreError as found:
                    error = found
                checked = (time.monotonic() + REMEMBERED_SECONDS, error)
        if checked[1] is not None:
            raise StoreError(str(checked[1]))
        return Response(b'{"status": "ok"}', media_type="application/json")

    @app.get("/metrics", tags=TAGS, summary="Counters for Prometheus", response_class=Response, responses=METRICS)
    async def metrics() -> Response:
        return Response(service.metrics.show(), media_type=CONTENT_TYPE_LATEST)


_SHOWN = {"text/plain": {"schema": {"type": "string"}}}
METRICS: dict[int | str, dict[str, Any]] = {200: {"description": "In Prometheus' text format", "content": _SHOWN}}
