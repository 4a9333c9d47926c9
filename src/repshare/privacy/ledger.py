"""What was charged, for good: a line for each release, on disk before the release leaves.

A crash between the two wastes what was charged and never overspends. The first line says whose samples these are:
what others have spent would be no bound for them.
"""

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from repshare.errors import CheckpointError, ConfigError

VERSION = 1
Entry = dict[str, Any]


class Ledger:
    """Entries that are only ever added to; with a path, each is on disk when `add` returns."""

    def __init__(self, path: Path | None = None, about: Mapping[str, Any] | None = None) -> None:
        """`about` is what must be the same for the entries to mean the same."""
        self.path, self.entries, self._length = path, list[Entry](), 0
        if path is None:
            return
        described = json.loads(json.dumps({"ledger": VERSION, **(about or {})}))
        new = not path.exists()
        with _locked(path) as file:
            whole = _drop_rest(file)
            self._length = len(whole)
            lines = _parse(whole, path)
            if not lines:
                self._append(file, described)
        if new:  # a file is there for good once its folder says so
            _sync_folder(path.parent)
        if lines and lines[0] != described:
            raise ConfigError(
                f"{path} is of other samples, another adjacency or mode ({_differences(lines[0], described)}): go on "
                "with what it is of, or keep another ledger; ε of the same samples adds up"
            )
        self.entries = lines[1:]

    def add(self, entry: Entry) -> None:
        """Keep this for good. Raises CheckpointError if that cannot be promised; then nothing may be released."""
        if self.path is not None:
            with _locked(self.path) as file:
                if file.seek(0, os.SEEK_END) != self._length:
                    raise CheckpointError(f"{self.path} was changed by another process, so nothing may be released")
                self._append(file, entry)
        self.entries.append(entry)

    def _append(self, file: BinaryIO, entry: Mapping[str, Any]) -> None:
        line = (json.dumps(entry) + "\n").encode()
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
        self._length += len(line)


def read_ledger(path: Path) -> tuple[Entry, list[Entry]]:
    """What a ledger is about, and its entries; only looked at."""
    try:
        lines = _parse(path.read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if not lines or lines[0].get("ledger") != VERSION:
        raise ConfigError(f"{path} is no ledger")
    return lines[0], lines[1:]


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield file
    except OSError as error:
        raise CheckpointError(f"{path} cannot be used: {error.strerror}; nothing may be released") from error


def _drop_rest(file: BinaryIO) -> bytes:
    """All whole lines. A last one that a crash cut off never paid for anything, and goes."""
    file.seek(0)
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        file.truncate(len(whole))
        os.fsync(file.fileno())
    return whole


def _parse(content: bytes, path: Path) -> list[Entry]:
    lines = []
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise ValueError("not an object")
        except ValueError as error:
            raise CheckpointError(f"{path} is damaged in line {number}, so nothing may be released: {error}") from error
        lines.append(entry)
    return lines


def _sync_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _differences(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    keys = {**there, **wanted}
    return ", ".join(f"{k} {there.get(k)} there, {wanted.get(k)} here" for k in keys if there.get(k) != wanted.get(k))
