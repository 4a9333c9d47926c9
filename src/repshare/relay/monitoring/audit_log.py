"""The audit log: who did what. Accepted actions, one JSON object a line, apart from the log of refusals.

It names tasks and clients, and never holds a token or anything of what was published but its digest.
"""

import getpass
import json
import logging
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from repshare.files import OWNER_ONLY, explain_errors

Action = Literal["create", "delete", "backup", "restore", "invite", "revoke", "publish", "withdraw", "leave-out"]

STANDARD_OUTPUT = "-"


class AuditLog:
    """A log in a file, on standard output, or nowhere. Several processes may write to one file."""

    def __init__(self, place: str | None = None, clock: Callable[[], float] = time.time) -> None:
        """`place`: a file's path; `-` for standard output; None for nowhere."""
        self._place, self._clock, self.kept = place, clock, place is not None
        if place not in (None, STANDARD_OUTPUT):
            with explain_errors(f"the audit log {place} cannot be written"):
                _append(Path(str(place)), b"")

    def note(self, action: Action, role: str, name: str, /, **about: Any) -> None:
        """Write down that this was done, and by whom."""
        if self._place is None:
            return
        now = self._clock()
        told = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1000):03d}Z"
        line = json.dumps({"time": told, "action": action, "by": {"role": role, "name": name}, **about}) + "\n"
        if self._place == STANDARD_OUTPUT:
            print(line, end="", flush=True)
            return
        try:
            _append(Path(self._place), line.encode())
        except OSError as error:  # the action is done: the other log must say that this one is incomplete
            logging.getLogger(__name__).error("the audit log cannot be written (%s): %s", error, line.strip())

    def note_operator(self, action: Action, /, **about: Any) -> None:
        """Write down what was done by a command on this machine."""
        try:
            name = getpass.getuser()
        except (KeyError, OSError, ImportError):  # a user id without a name; a service of Windows
            name = str(os.getuid()) if hasattr(os, "getuid") else ""
        self.note(action, "operator", name, **about)


def _append(path: Path, line: bytes) -> None:
    """Add a line in one write: processes may share a file, and another program may rename it at any moment."""
    with open(path, "ab", buffering=0, opener=lambda name, flags: os.open(name, flags, OWNER_ONLY)) as file:
        file.write(line)
