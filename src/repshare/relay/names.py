"""What tasks and clients may be called."""

import re

from repshare.errors import ConfigError

PATTERN = r"^[\w .\-]{1,64}$"
_ALLOWED = re.compile(PATTERN.replace("$", r"\Z"))  # Python's $ would let a newline through


def is_name(text: str) -> bool:
    """Whether this may name a task or a client."""
    return _ALLOWED.match(text) is not None and text.strip(" .") != ""


def check_name(kind: str, text: str) -> None:
    """Raise ConfigError if this cannot name a task or a client."""
    if not is_name(text):
        allowed = "1 to 64 letters, digits, spaces, dots, _ and -, not only dots and spaces"
        raise ConfigError(f"{text[:80]!r} cannot name a {kind}: {allowed}")
