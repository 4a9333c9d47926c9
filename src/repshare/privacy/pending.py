"""The charged release that was not acknowledged yet: sent again, byte for byte, until it is.

It is written before its charge, together with that charge. So whenever a process ends, either nothing was charged, or
the bytes that were paid for are there: a charge that is missing is added when the file is opened again. Sending the
same bytes again reveals nothing new, and costs nothing.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from repshare.errors import CheckpointError
from repshare.files import sync_folder, write_atomically
from repshare.privacy.ledger import Entry, Ledger, Mark


class Pending:
    """One release at most. With a path it outlives the process, and remembers how far the ledger had come."""

    def __init__(self, path: Path | None = None, *, repeat: bool = True) -> None:
        """`repeat`: bytes that may have been sent by an earlier process are sent again."""
        self.path, self.repeat = path, repeat
        self.body: bytes | None = None
        """The bytes that were charged and not acknowledged; None: there is nothing to send again."""
        self._kept: tuple[bytes, Entry | None, int | None] = b"", None, None  # bytes, charge, round of acknowledgement
        self._mark: Mark | None = None

    def open(self, ledger: Ledger) -> None:
        """Continue from disk, with a ledger that must have all it had then. Adds a charge that is missing."""
        if self.path is None:
            return
        if not self.path.exists():
            self._mark = ledger.mark
            self._write(b"", None)
            return
        header, body = _read(self.path)
        self._mark, entry, acknowledged = Mark(*header["mark"]), header["entry"], header["acknowledged"]
        self._kept = body, entry, acknowledged
        if entry is not None and ledger.next_mark(entry) == self._mark:
            ledger.add(entry)
        ledger.check(self._mark, self.path)
        self.body = body if body and acknowledged is None and self.repeat else None

    def charge(self, ledger: Ledger, entry: Entry, body: bytes) -> None:
        """Keep these bytes, then charge them. From now on they are what is sent."""

        def keep(mark: Mark) -> None:
            self._mark = mark
            self._write(body, entry)

        ledger.add(entry, keep)
        self.body = body

    def acknowledge(self, round: int) -> None:
        """Note that it has arrived in this round of the client's."""
        if self.body is not None:
            body, entry, _ = self._kept
            self._write(body, entry, round)
            self.body = None

    @property
    def last(self) -> bytes:
        """The bytes that were charged last, acknowledged or not; none, if nothing was."""
        return self._kept[0]

    def resume(self, round: int) -> None:
        """Resume after this round. If a later one was acknowledged, its bytes are sent once more."""
        body, _, acknowledged = self._kept
        if body and self.repeat and acknowledged is not None and acknowledged > round:
            self.body = body

    def drop(self) -> None:
        """Give it up: it was withdrawn. Its charge stays."""
        self._write(b"", None)
        self.body = None

    def _write(self, body: bytes, entry: Entry | None, acknowledged: int | None = None) -> None:
        self._kept = body, entry, acknowledged
        if self.path is None or self._mark is None:
            return
        digest = hashlib.sha256(body).hexdigest()
        header = {"mark": self._mark, "sha256": digest, "entry": entry, "acknowledged": acknowledged}
        try:
            write_atomically(self.path, json.dumps(header).encode() + b"\n" + body, private=True)
            sync_folder(self.path.parent)
        except OSError as error:
            raise CheckpointError(f"{self.path} cannot be used: {error.strerror}; nothing may be released") from error


def _read(path: Path) -> tuple[dict[str, Any], bytes]:
    """The file's description of the release, and the release."""
    try:
        head, _, body = path.read_bytes().partition(b"\n")
        header = json.loads(head)
        entries, chain = header["mark"]
        known = [(entries, int), (chain, str), (header["entry"], dict | None), (header["acknowledged"], int | None)]
        if not all(isinstance(value, kind) for value, kind in known):
            raise TypeError("it says nothing of a ledger")
        if hashlib.sha256(body).hexdigest() != header["sha256"]:
            raise ValueError("it does not fit its hash")
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(
            f"{path} is damaged: {error}. Put a good copy back, or remove it and give up the last release, whose "
            "charge stays"
        ) from error
    return header, body
