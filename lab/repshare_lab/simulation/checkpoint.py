"""A run's state on disk: clients' states in files of their own, and one manifest that lists those in use.

A state is written under a new name, never over an old one. A checkpoint exists from the moment its manifest has
replaced the one before; whatever happens earlier, the last good one is untouched.
"""

import json
import shutil
import zlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

from repshare.errors import CheckpointError
from repshare.files import write_atomically
from repshare_lab.config import Run, Setting
from repshare_lab.results.records import with_defaults


class SavedState(NamedTuple):
    """A state that was written: after which round, how long it is, and its checksum."""

    round: int
    size: int
    crc: int


class States:
    """Clients' states below a folder. Safe for several processes, as long as each has its own clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, client: str | int, round: int, state: bytes) -> SavedState:
        """Keep this state of the client's."""
        path = self._path(client, round)
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            write_atomically(path, state)
        except OSError as error:
            raise CheckpointError(
                f"{path.name} could not be written: {error.strerror}; the last checkpoint is untouched"
            ) from error
        return SavedState(round, len(state), zlib.crc32(state))

    def read(self, client: str | int, version: SavedState) -> bytes:
        """Return the state of this version, or CheckpointError if it is not what was written."""
        path = self._path(client, version.round)
        try:
            state = path.read_bytes()
        except OSError as error:
            raise CheckpointError(f"the checkpoint is damaged: {path} cannot be read: {error.strerror}") from error
        if (len(state), zlib.crc32(state)) != (version.size, version.crc):
            raise CheckpointError(
                f"the checkpoint is damaged: {path} has {len(state)} bytes, not the {version.size} that were written; "
                f"remove {self.folder} to begin this method and seed again"
            )
        return state

    def remove(self, client: str | int, version: SavedState) -> None:
        """Forget this version."""
        self._path(client, version.round).unlink(missing_ok=True)

    def clear(self) -> None:
        """Forget everything."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def _path(self, client: str | int, round: int) -> Path:
        shelf = f"{client // 1000:04d}" if isinstance(client, int) else "server"
        return self.folder / shelf / f"{client}-{round}.state"


class Manifest(NamedTuple):
    """The list of a checkpoint's parts."""

    round: int
    server: SavedState | None
    clients: dict[int, SavedState]


def _describe(run: Run[Setting]) -> dict[str, Any]:
    described = {"method": run.method, "seed": run.seed, "setting": asdict(run.setting)}
    return with_defaults(json.loads(json.dumps(described)))


class Checkpoint:
    """The checkpoint of one run in a folder."""

    def __init__(self, folder: Path, run: Run[Setting]) -> None:
        self.folder, self.states = folder, States(folder)
        self._run = _describe(run)
        self._path = folder / "manifest.json"
        self.manifest = self._read()

    def commit(self, round: int, server: bytes | None, written: Mapping[int, SavedState]) -> None:
        """Make these states, and those of the clients that have not changed, the checkpoint."""
        before = self.manifest
        kept = None if server is None else self.states.write("server", round, server)
        self.manifest = Manifest(round, kept, {**before.clients, **written})
        clients = {str(client): version for client, version in self.manifest.clients.items()}
        write_atomically(
            self._path, json.dumps({"run": self._run, "round": round, "server": kept, "clients": clients}) + "\n"
        )
        if before.server is not None:
            self.states.remove("server", before.server)
        for client in written:
            if client in before.clients and before.clients[client].round != written[client].round:
                self.states.remove(client, before.clients[client])

    def _read(self) -> Manifest:
        try:
            held: dict[str, Any] = json.loads(self._path.read_text())
            versions = {int(client): SavedState(*version) for client, version in held["clients"].items()}
            server = SavedState(*held["server"]) if held["server"] else None
            round, run = int(held["round"]), with_defaults(held["run"])
        except FileNotFoundError:
            self.states.clear()  # states that no manifest lists
            return Manifest(0, None, {})
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"the checkpoint {self._path} is damaged: {error}; "
                f"remove {self.folder} to begin this method and seed again"
            ) from error
        if run != self._run:
            raise CheckpointError(
                f"{self.folder} holds a checkpoint of another run ({run.get('method')}, seed {run.get('seed')}), "
                f"not of {self._run['method']}, seed {self._run['seed']} with this setting"
            )
        return Manifest(round, server, versions)
