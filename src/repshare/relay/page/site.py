"""The page's files: ours, and plotly's own JavaScript from the installed package. Nothing comes from elsewhere."""

import gzip
import hashlib
import re
import threading
from functools import cache
from importlib.util import find_spec
from os import PathLike, stat_result
from pathlib import Path
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from repshare.imports import how_to_install
from repshare.relay.problems import Problem

FOLDER = Path(__file__).parent / "static"
# Plotly writes styles through the CSSOM, which is no inline style; its rules are in page.css.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}
YEAR_SECONDS = 31_536_000
CHUNK_BYTES = 65_536
_alone = threading.Lock()


class Files(StaticFiles):
    """Our own files, with headers under which a browser runs nothing else."""

    def file_response(
        self, full_path: PathLike[str] | str, stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Return a file, or that it has not changed."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


FILES = Files(directory=FOLDER)


class Plotly(NamedTuple):
    """Plotly's JavaScript, as it is and packed (gzip), and its version's mark."""

    content: bytes
    packed: bytes
    tag: str


def find_plotly() -> Plotly | None:
    """Return plotly, if it is installed. Packed once: strangers may ask for it."""
    with _alone:  # many who come first at the same time would all read and pack the same
        return _read_plotly()


@cache
def _read_plotly() -> Plotly | None:
    package = find_spec("plotly")  # found, not imported: its Python is large, and nothing here calls it
    for folder in package.submodule_search_locations or () if package else ():
        path = Path(folder) / "package_data" / "plotly.min.js"
        if path.is_file():
            content = path.read_bytes()
            return Plotly(content, gzip.compress(content, 6), hashlib.blake2b(content, digest_size=8).hexdigest())
    return None


@cache
def make_front(*, needs_token: bool) -> str:
    """Return the page itself: told whether to ask for a token, and where this version of plotly is."""
    plotly = find_plotly()
    # Under these ids plotly would add styles for kinds of figures that the page has not: those taken, it does not.
    own = set(re.findall(rb'getElementById\("([0-9a-f]{64})"\)', plotly.content)) if plotly else ()
    made = (FOLDER / "page.html").read_text("utf-8")
    for place, told in {
        "NEEDS_TOKEN": "yes" if needs_token else "no",
        "PLOTLY_VERSION": plotly.tag if plotly else "none",
        "PLOTLY_STYLES": "".join(f'<meta id="{each.decode()}">' for each in sorted(own)),
    }.items():
        made = made.replace(place, told)
    return made


def send_plotly(plotly: Plotly | None, request: Request) -> Response:
    """Return plotly as a response. What is asked for with its version never changes; the rest is asked for again."""
    if plotly is None:
        raise Problem("unknown", f"the page's figures need plotly: {how_to_install('relay')}")
    headers = {**HEADERS, "ETag": f'"{plotly.tag}"', "Vary": "Accept-Encoding"}
    if request.query_params.get("v") == plotly.tag:
        headers["Cache-Control"] = f"public, max-age={YEAR_SECONDS}, immutable"
    if plotly.tag in request.headers.get("if-none-match", ""):
        return Response(status_code=304, headers=headers)
    packed = "gzip" in request.headers.get("accept-encoding", "")
    headers |= {"Content-Encoding": "gzip"} if packed else {}
    return ChunkedResponse(plotly.packed if packed else plotly.content, media_type="text/javascript", headers=headers)


class ChunkedResponse(Response):
    """A response that is sent in chunks, as it is read: a file is in memory once, however many ask for it."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send it."""
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for start in range(0, len(self.body), CHUNK_BYTES):
            chunk = self.body[start : start + CHUNK_BYTES]
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
