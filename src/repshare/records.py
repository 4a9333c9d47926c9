"""The folder of a piece of work: run.json (its description) and records.jsonl (lines about it)."""

import json
import math
import platform
from collections.abc import Iterable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

from repshare.errors import ConfigError
from repshare.files import explain_errors, lock, open_private, write_atomically

Line = dict[str, Any]
Description = dict[str, Any]
LOCK = ".lock"


class Journal:
    """A file of lines that can be added to. A line is whole or absent: what a crash cut off is never read."""

    def __init__(self, path: Path, *, private: bool = False) -> None:
        """`private`: only the owner of the file may read it."""
        self.path, self.private = path, private

    def read(self) -> list[Line]:
        """All whole lines."""
        if not self.path.exists():
            return []
        lines = []
        for number, text in enumerate(self.path.read_text().splitlines(keepends=True), start=1):
            if not text.endswith("\n"):
                break
            try:
                lines.append(json.loads(text))
            except ValueError as error:
                raise ConfigError(f"{self.path} is damaged in line {number}: {error}") from error
        return lines

    def keep_only(self, lines: Iterable[Line]) -> None:
        """Replace the lines by these."""
        write_atomically(self.path, "".join(to_json(line) for line in lines), private=self.private)

    def add(self, lines: Iterable[Line]) -> None:
        """Append lines."""
        with open_private(self.path, "a") if self.private else self.path.open("a") as file:
            file.write("".join(to_json(line) for line in lines))


class Folder:
    """A folder that holds one described piece of work, and records of it."""

    def __init__(
        self, path: Path, description: Mapping[str, Any], *, resume: bool, option: str = "--name", private: bool = False
    ) -> None:
        """`option` is how a command line chooses the folder. `private`: only its owner may read what is in it."""
        self.path, self.records, self.option = path, Journal(path / "records.jsonl", private=private), option
        described = json.loads(json.dumps(description))
        with explain_errors(f"{path} cannot be used"):
            if path.exists() and any(file.name != LOCK for file in path.iterdir()):
                self._recognise(described, resume=resume)
            path.mkdir(mode=0o700 if private else 0o777, parents=True, exist_ok=True)
            if not (path / "run.json").exists():
                self.describe({**described, "made_with": _versions()}, private=private)

    def describe(self, description: Mapping[str, Any], *, private: bool = False) -> None:
        """Write run.json."""
        write_atomically(self.path / "run.json", json.dumps(description, indent=2) + "\n", private=private)

    def __enter__(self) -> Self:
        """Keep other processes out until the block ends."""
        self._lock = (self.path / LOCK).open("a")
        with explain_errors(f"{self.path} cannot be locked"):
            locked = lock(self._lock, wait=False)
        if not locked:
            self._lock.close()
            raise ConfigError(
                f"{self.path} is being written by another process: wait for it, or choose another {self.option}"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.close()

    def compare(self, held: Description, wanted: Description) -> tuple[Description, Description]:
        """The description there and the one here as they are to be compared: they must be equal."""
        return held, wanted

    def explain(self, difference: str) -> str:
        """The option that continues the work in spite of a difference, and a separator; nothing if none does."""
        return ""

    def _recognise(self, description: Description, *, resume: bool) -> None:
        described = self.path / "run.json"
        if not described.exists():
            raise ConfigError(f"{self.path} already holds other files: choose another {self.option}")
        try:
            held = json.loads(described.read_text())
        except ValueError as error:
            raise ConfigError(f"{described} is damaged: {error}") from error
        held.pop("made_with", None)
        held, wanted = self.compare(held, description)
        if held != wanted:
            where = _first_difference(held, wanted)
            way = self.explain(where)
            raise ConfigError(f"{self.path} already holds another run ({where}): {way}choose another {self.option}")
        if not resume:
            raise ConfigError(
                f"{self.path} already holds this run: continue it with --resume, or choose another {self.option}"
            )


def to_json(line: Line) -> str:
    """A line as it is in a file; JSON has no word for NaN and infinity."""
    return json.dumps(_finite(line), allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    match value:
        case dict():
            return {key: _finite(each) for key, each in value.items()}
        case list() | tuple():
            return [_finite(each) for each in value]
        case float():
            return value if math.isfinite(value) else None
    return value


def _first_difference(held: Any, wanted: Any, path: str = "") -> str:
    if isinstance(held, dict) and isinstance(wanted, dict):
        for key in {**held, **wanted}:
            if held.get(key) != wanted.get(key):
                return _first_difference(held.get(key), wanted.get(key), key)
    return f"{path} {held!r} there, {wanted!r} here"


def _versions() -> dict[str, str]:
    from repshare import __version__

    installed = {name: version(name) for name in ("torch", "numpy")}
    return {"repshare": __version__, "python": platform.python_version(), **installed}
