"""The page's own files. Nothing comes from elsewhere."""

from functools import cache
from os import PathLike, stat_result
from pathlib import Path

from starlette.responses import Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

FOLDER = Path(__file__).parent / "static"
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class Files(StaticFiles):
    """Static files, with headers under which a browser runs nothing else."""

    def file_response(
        self, full_path: PathLike[str] | str, stat_result: stat_result, scope: Scope, status_code: int = 200
    ) -> Response:
        """Return a file, or that it has not changed."""
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(HEADERS)
        return response


FILES = Files(directory=FOLDER)


@cache
def make_front(*, needs_token: bool) -> str:
    """Return the page itself, which asks for a token if it needs one."""
    made = (FOLDER / "page.html").read_text("utf-8")
    return made.replace("NEEDS_TOKEN", "yes" if needs_token else "no")
