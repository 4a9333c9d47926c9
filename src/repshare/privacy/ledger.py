"""The ledger of all charges: a line for each release, on disk before the release leaves.

The first line identifies the samples: charges for other samples would be no bound for these. Every line carries a hash
of itself and of all lines before it, so that an edited or a missing line is noticed.
"""

import hashlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from repshare.errors import CheckpointError, ConfigError
from repshare.files import lock, open_private, sync_folder

VERSION = 1
HASH = "chain"
OWN_COINS = {"held_out": "own coins"}  # in an entry: no sample's part in its release depended on other samples
Entry = dict[str, Any]


class Mark(NamedTuple):
    """The end of a ledger: its number of entries, and the hash of its last line."""

    entries: int
    chain: str


class Ledger:
    """Entries that are only ever added to; with a path, each is on disk when `add` returns."""

    def __init__(self, path: Path | None = None, about: Mapping[str, Any] | None = None) -> None:
        """`about` is what must be the same for the entries to mean the same."""
        self.path, self.entries, self._length = path, list[Entry](), 0
        self._chain: list[str] = []  # the hash of each line, the first one's included
        if path is None:
            return
        described = json.loads(json.dumps({"ledger": VERSION, **(about or {})}))
        new = not path.exists()
        with _locked(path) as file:
            whole = _drop_rest(file)
            self._length = len(whole)
            lines, self._chain = _parse(whole, path)
            if not lines:
                self._append(file, described)
        if new:
            sync_folder(path.parent)
        if lines and lines[0] != described:
            raise ConfigError(
                f"{path} is about other samples, another adjacency or mode ({_differences(lines[0], described)}): "
                "continue with those, or keep another ledger; ε of the same samples adds up. 38a6b14d is the last "
                "commit that continues ledgers of averages of features"
            )
        self.entries = lines[1:]

    @property
    def mark(self) -> Mark:
        """Its end so far."""
        return Mark(len(self.entries), self._chain[-1] if self._chain else "")

    def next_mark(self, entry: Entry) -> Mark:
        """Its end with this entry."""
        return Mark(len(self.entries) + 1, _link(self.mark.chain, entry))

    def check(self, mark: Mark, witness: Path | str) -> None:
        """Refuse to continue from a ledger that lacks any of what it had when `witness` was written."""
        if mark.entries < len(self._chain) and self._chain[mark.entries] == mark.chain:
            return
        raise CheckpointError(
            f"{self.path} lacks charges, so nothing may be released: of the {mark.entries} that {witness} knows, not "
            f"all are among its {len(self.entries)}. Put the newest copy back. If there is none, begin in another "
            "folder, and add up the ε of both"
        )

    def add(self, entry: Entry, before: Callable[[Mark], None] | None = None) -> None:
        """Keep this for good. Raises CheckpointError if that cannot be promised; then nothing may be released.

        `before` is called when no other process can add anything, with the mark that the ledger will have.
        """
        if self.path is not None:
            with _locked(self.path) as file:
                if file.seek(0, os.SEEK_END) != self._length:
                    raise CheckpointError(f"{self.path} was changed by another process, so nothing may be released")
                if before is not None:
                    before(self.next_mark(entry))
                self._append(file, entry)
        elif before is not None:
            before(self.next_mark(entry))
        self.entries.append(entry)

    def _append(self, file: IO[bytes], entry: Mapping[str, Any]) -> None:
        chain = _link(self.mark.chain, entry)
        line = (json.dumps({**entry, HASH: chain}) + "\n").encode()
        file.write(line)
        file.flush()
        os.fsync(file.fileno())
        self._length += len(line)
        self._chain.append(chain)


def read_ledger(path: Path) -> tuple[Entry, list[Entry]]:
    """Read what a ledger covers, and its entries, without changing it."""
    try:
        lines, _ = _parse(path.read_bytes(), path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if not lines or lines[0].get("ledger") != VERSION:
        raise ConfigError(f"{path} is no ledger")
    return lines[0], lines[1:]


def count_understated(about: Mapping[str, Any], entries: Sequence[Entry]) -> int:
    """Count the releases that may have cost more than the ledger says.

    Those of class sums in a common space by earlier versions, under add-remove: which samples were held out depended on
    how many there were, so that one more could move a sum by several times what was charged.
    """
    if "space" not in about or about["adjacency"] != "add-remove":
        return 0
    return sum(not OWN_COINS.items() <= entry.items() for entry in entries)


@contextmanager
def _locked(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open_private(path, "a+b") as file:
            lock(file)
            yield file
    except OSError as error:
        raise CheckpointError(f"{path} cannot be used: {error.strerror}; nothing may be released") from error


def _drop_rest(file: IO[bytes]) -> bytes:
    """All whole lines. A last one that a crash cut off never paid for anything, and is dropped."""
    file.seek(0)
    content = file.read()
    whole = content[: content.rfind(b"\n") + 1]
    if whole != content:
        file.truncate(len(whole))
        os.fsync(file.fileno())
    return whole


def _parse(content: bytes, path: Path) -> tuple[list[Entry], list[str]]:
    """The entries, and each one's hash with all before it."""
    lines, chain = list[Entry](), list[str]()
    for number, line in enumerate(content[: content.rfind(b"\n") + 1].splitlines(), start=1):
        try:
            entry = json.loads(line)
            if not isinstance(entry, dict):
                raise ValueError("not an object")
            own = entry.pop(HASH, None)
            link = _link(chain[-1] if chain else "", entry)
            if own is None:
                raise ValueError("it has no hash (15ddcbb is the last commit that reads lines without)")
            if own != link:
                raise ValueError("its hash is not that of it and the lines before it")
        except ValueError as error:
            raise CheckpointError(
                f"{path} is damaged in line {number}, so nothing may be released: {error}. Put a good copy of it back"
            ) from error
        lines.append(entry)
        chain.append(link)
    return lines, chain


def _link(before: str, entry: Mapping[str, Any]) -> str:
    return hashlib.sha256(f"{before}\n{json.dumps(entry)}".encode()).hexdigest()


def _differences(there: Mapping[str, Any], wanted: Mapping[str, Any]) -> str:
    keys = {**there, **wanted}
    return ", ".join(f"{k} {there.get(k)} there, {wanted.get(k)} here" for k in keys if there.get(k) != wanted.get(k))
