"""The page's own files. Nothing comes from elsewhere."""

from functools import cache
from pathlib import Path

FOLDER = Path(__file__).parent / "static"
HEADERS = (  # in every answer: a browser then runs nothing else, and keeps nothing
    (
        b"content-security-policy",
        b"default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        b"base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


@cache
def make_front(*, needs_token: bool) -> str:
    """The page itself, which asks for a token if it needs one."""
    made = (FOLDER / "page.html").read_text("utf-8")
    return made.replace("NEEDS_TOKEN", "yes" if needs_token else "no")
