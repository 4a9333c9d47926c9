"""The page's files: ours, and plotly's own JavaScript from the installed package. Nothing comes from elsewhere."""

import gzip
import hashlib
import re
import threading
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from fastapi import Request, Response
from starlette.types import Receive, Scope, Send

from repshare.relay.problems import Problem

FOLDER = Path(__file__).parent / "static"
PLOTLY = "plotly.js"
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
}
# Plotly writes styles through the CSSOM, which is no inline style; its rules are in page.css.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
YEAR_SECONDS = 31_536_000
PIECE_BYTES = 65_536
_alone = threading.Lock()


class File(NamedTuple):
    """A file to serve."""

    content: bytes
    media_type: str
    tag: str
    packed: bytes | None = None  # gzip, where that is worth it


def find(name: str) -> File | None:
    """A file of the page, by its name."""
    with _alone:  # many who come first at the same time would all read and pack the same
        return _files().get(name)


@cache
def _files() -> dict[str, File]:
    """All files by name. Not one by one: strangers can ask for any number of names."""
    ours = {path.name: as_file(path.read_bytes(), path.suffix) for path in FOLDER.iterdir() if path.suffix in TYPES}
    plotly = _plotly()
    return {**ours, PLOTLY: plotly} if plotly else ours


@cache
def front(*, needs_token: bool) -> File:
    """The page itself: told whether to ask for a token, and where this version of plotly is."""
    plotly = find(PLOTLY)
    made = (FOLDER / "page.html").read_text()
    for place, told in {
        "NEEDS_TOKEN": "yes" if needs_token else "no",
        "PLOTLY_VERSION": plotly.tag if plotly else "none",
        "PLOTLY_STYLES": "".join(f'<meta id="{each}">' for each in _own_styles(plotly.content)) if plotly else "",
    }.items():
        made = made.replace(place, told)
    return as_file(made.encode(), ".html")


def respond(file: File, request: Request) -> Response:
    """A file as a response. What is asked for with its version never changes; the rest is asked for again."""
    versioned = request.query_params.get("v") == file.tag
    cached = f"public, max-age={YEAR_SECONDS}, immutable" if versioned else "no-cache"
    headers = {**HEADERS, "ETag": f'"{file.tag}"', "Cache-Control": cached, "Vary": "Accept-Encoding"}
    if file.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    if file.packed is not None and "gzip" in request.headers.get("accept-encoding", ""):
        return Pieces(file.packed, media_type=file.media_type, headers={**headers, "Content-Encoding": "gzip"})
    return Pieces(file.content, media_type=file.media_type, headers=headers)


class Pieces(Response):
    """One that goes piece by piece, as it is read: a file is in memory once, however many ask for it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, len(self.body), PIECE_BYTES):
            piece = self.body[start : start + PIECE_BYTES]
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def missing(name: str) -> Problem:
    """What to say of a file that is not there."""
    if name == PLOTLY:
        return Problem("unknown", "the page's figures need plotly: pip install 'repshare[relay]'")
    return Problem("unknown", f"there is no file {name[:80]!r}")


def _plotly() -> File | None:
    package = find_spec("plotly")  # found, not imported: its Python is large, and nothing here calls it
    for folder in package.submodule_search_locations or () if package else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            content = path.read_bytes()
            return as_file(content, ".js")._replace(packed=gzip.compress(content, 6))
    return None


def _own_styles(script: bytes) -> list[str]:
    """Under which ids plotly would add styles for kinds of figures that the page has not: those taken, it does not."""
    return sorted({found.decode() for found in re.findall(rb'getElementById\("([0-9a-f]{64})"\)', script)})


def as_file(content: bytes, suffix: str) -> File:
    """Content of a kind that a suffix names, as a file to serve."""
    return File(content, TYPES[suffix], hashlib.blake2b(content, digest_size=8).hexdigest())
