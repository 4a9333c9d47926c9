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
from starlette.types import Receive, Scope, Send

from repshare.relay.monitoring.metrics import Metrics

Answer = Callable[[Request, Exception], Awaitable[Response]]


class Direct(APIRoute):
    """A route whose endpoint takes a request and gives a response, and needs nothing else."""


class Application(FastAPI):
    """FastAPI, with a short way to direct routes: what their endpoints raise is answered and counted like elsewhere."""

    def take_short_way(self, answer: Answer, metrics: Metrics, check: Callable[[Request], None] | None) -> None:
        """From now on: `answer` makes the response to an error, and `check` raises one where nothing may be done."""
        self._answer, self._metrics, self._check = answer, metrics, check
        self._direct = [route for route in self.routes if isinstance(route, Direct)]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request. What it holds in memory (`scope["held"]`) is let go when the answer has been sent."""
        with ExitStack() as scope["held"]:
            await self._answer_one(scope, receive, send)

    async def _answer_one(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._check and scope["type"] == "http":
            request = Request(scope, receive)
            try:
                self._check(request)
            except Exception as error:
                refusal = await self._answer(request, error)
                await refusal(scope, receive, send)
                return
        route = self._find(scope) if scope["type"] == "http" else None
        if route is None:
            await super().__call__(scope, receive, send)
            return
        begun, request, status = time.perf_counter(), Request(scope, receive), 500
        try:
            try:
                response: Response = await route.endpoint(request)
            except Exception as error:  # whatever it is, whoever asked gets an answer
                response = await self._answer(request, error)
                if response.status_code == 500:  # nobody foresaw it: the log needs to know where
                    logging.getLogger(__name__).exception("an endpoint failed")
            status = response.status_code
            await response(scope, receive, send)
        finally:
            self._metrics.answered(scope["method"], route.path, status, time.perf_counter() - begun)

    def _find(self, scope: Scope) -> Direct | None:
        path, method = scope["path"], scope["method"]
        for route in self._direct:
            if route.methods and method in route.methods and (found := route.path_regex.match(path)):
                scope["app"], scope["path_params"] = self, found.groupdict()
                return route
        return None
