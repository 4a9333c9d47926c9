"""The short way to the endpoints that nearly all requests are for.

FastAPI describes these routes like all others. But the layers through which it leads a request take as long as making a
teacher does, and these endpoints need none of them: they read their requests by hand.
"""

import logging
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.types import Message, Receive, Scope, Send

from repshare.relay.monitoring.metrics import Metrics

Answer = Callable[[Request, Exception], Awaitable[Response]]


class Direct(APIRoute):
    """A route whose endpoint takes a request and gives a response, and needs nothing else."""


class Application(FastAPI):
    """FastAPI, with a short way to direct routes: what their endpoints raise is answered and counted like elsewhere."""

    def take_short_way(self, answer: Answer, metrics: Metrics, check: Callable[[Request], None] | None) -> None:
        """Answer directly from now on: `answer` answers an error, and `check` raises one where nothing may be done."""
        self._answer, self._metrics, self._check = answer, metrics, check
        self._direct = [route for route in self.routes if isinstance(route, Direct)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, and count it. What it holds in memory (`scope["held"]`) is released when that is sent."""
        if scope["type"] != "http":
            await super().__call__(scope, receive, send)
            return
        status, begun = 500, time.perf_counter()

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            with ExitStack() as scope["held"]:
                await self._answer_one(scope, receive, note)
        finally:
            # Methods and routes from the outside are not made labels: anyone could invent a million of them.
            known = getattr(scope.get("route"), "path", "none")
            method = scope["method"] if known != "none" else "none"
            self._metrics.answered(method, known, status, time.perf_counter() - begun)

    async def _answer_one(self, scope: Scope, receive: Receive, send: Send) -> None:
        route, request, response = self._find(scope), Request(scope, receive), None
        try:
            if self._check is not None:
                self._check(request)
            if route is not None:
                response = await route.endpoint(request)
        except Exception as error:  # whatever it is, the client gets an answer
            response = await self._answer(request, error)
            if response.status_code == 500:  # unexpected: the log needs to know where
                logging.getLogger(__name__).exception("an endpoint failed")
        await (super().__call__ if response is None else response)(scope, receive, send)

    def _find(self, scope: Scope) -> Direct | None:
        path, method = scope["path"], scope["method"]
        for route in self._direct:
            if route.methods and method in route.methods and (found := route.path_regex.match(path)):
                scope["app"], scope["route"], scope["path_params"] = self, route, found.groupdict()
                return route
        return None
