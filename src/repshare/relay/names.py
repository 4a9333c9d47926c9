"""What tasks and clients may be called."""

import re

from repshare.errors import ConfigError

PATTERN = r"^[\w .\-]{1,64}$"
_ALLOWED = re.compile(PATTERN.replace("$", r"\Z"))  # Python's $ would let a newline through
CLIENT_PATTERN = r"^[^/\x00-\x1f\x7f]{1,64}$"  # roughly: what is printable is a longer story than a pattern
LONGEST = 64


def is_name(text: str) -> bool:
    """Whether this may name a task."""
    return _ALLOWED.match(text) is not None and text.strip(" .") != ""


def is_client_name(text: str) -> bool:
    """Whether this may name a client: any printable text that can be a part of a path."""
    return 1 <= len(text) <= LONGEST and text.isprintable() and "/" not in text and text.strip(" .") != ""


def check_name(text: str) -> None:
    """Raise ConfigError if this cannot name a task."""
    if not is_name(text):
        allowed = "1 to 64 letters, digits, spaces, dots, _ and -, not only dots and spaces"
        raise ConfigError(f"{text[:80]!r} cannot name a task: {allowed}")


def check_client_name(text: str) -> None:
    """Raise ConfigError if this cannot name a client."""
    if not is_client_name(text):
        allowed = "1 to 64 printable characters without /, not only dots and spaces"
        raise ConfigError(f"{text[:80]!r} cannot name a client: {allowed}")
