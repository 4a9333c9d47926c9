"""Errors as `application/problem+json` (RFC 9457)."""

import json
from collections.abc import Mapping
from http import HTTPStatus

from starlette.exceptions import HTTPException
from starlette.responses import Response

from repshare.errors import ConfigError, Damaged, LeftOut, Malformed, Outdated, Refused, RepshareError, StoreError

MEDIA_TYPE = "application/problem+json"
RETRY_SECONDS = 1

# kind of a problem: its status and its title. The kind is the end of the problem's `type`, and a label in /metrics.
KINDS = {
    "malformed": (400, "The body is malformed"),
    "unauthorised": (401, "A valid token is needed"),
    "forbidden": (403, "The token does not allow this"),
    "unknown": (404, "There is nothing here"),
    "method": (405, "This cannot be done here"),
    "too-slow": (408, "The body came too slowly"),
    "outdated": (409, "A newer release exists already"),
    "left-out": (412, "Other clients' parts vote against this one"),
    "too-large": (413, "The body is too large"),
    "refused": (422, "The task does not allow this"),
    "invalid": (422, "A value is not valid"),
    "too-fast": (429, "Too many requests"),
    "unforeseen": (500, "An unexpected error"),
    "busy": (503, "The relay is busy; try again"),
    "damaged": (503, "A stored value is damaged: its operator is told which"),
    "store-away": (503, "The store is unavailable; try again"),
}

CLIENT_ERRORS = {
    Malformed: "malformed",
    Outdated: "outdated",
    LeftOut: "left-out",
    Refused: "refused",
    ConfigError: "invalid",
}


class Problem(Exception):
    """An answer that is no success, raised from wherever it is noticed."""

    def __init__(
        self, kind: str, detail: str, headers: Mapping[str, str] | None = None, *, logged: str | None = None
    ) -> None:
        """`logged`: what the log says instead of the detail, for the operator alone: paths, addresses."""
        super().__init__(detail)
        self.kind, self.detail, self.headers = kind, detail, dict(headers or {})
        self.logged = detail if logged is None else logged

    @property
    def status(self) -> int:
        """The HTTP status."""
        return KINDS[self.kind][0]


def from_error(error: Exception) -> Problem:
    """Any error as the problem that a client is told of."""
    match error:
        case Problem():
            return error
        case Malformed() | Outdated() | Refused() | ConfigError():
            kind = next(kind for each, kind in CLIENT_ERRORS.items() if isinstance(error, each))
            return Problem(kind, str(error))
        case Damaged():
            return Problem("damaged", "the relay cannot read a stored value that this needs", logged=str(error))
        case StoreError():
            headers = {"Retry-After": str(RETRY_SECONDS)}
            return Problem("store-away", "the relay cannot use its store now", headers, logged=str(error))
        case RepshareError():
            return Problem("unforeseen", "see the relay's log", logged=str(error))
        case HTTPException():
            kind = {404: "unknown", 405: "method"}.get(error.status_code, "malformed")
            return Problem(kind, str(error.detail), error.headers)
    return Problem("unforeseen", "see the relay's log")


def respond(problem: Problem) -> Response:
    """A problem as a response."""
    status, title = KINDS[problem.kind]
    body = {
        "type": f"urn:repshare:problem:{problem.kind}",
        "title": title,
        "status": status,
        "detail": problem.detail or HTTPStatus(status).phrase,
    }
    return Response(json.dumps(body), status, problem.headers, MEDIA_TYPE)
