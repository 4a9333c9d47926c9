"""A running relay, asked over HTTPS with an admin's token: inviting without a shell on its machine."""

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from repshare.cli.relay.database import DatabaseOptions
from repshare.errors import ConfigError
from repshare.exchange.http import Connection
from repshare.relay.auth import check_client_name, check_name


@dataclass(frozen=True)
class RemoteOptions:
    """A running relay instead of its database."""

    at: str | None = None
    """Ask the running relay at this address, such as https://relay.example.org, with an admin's token."""
    token_file: Path | None = None
    """File with the admin's token, for --at."""
    ca: Path | None = None
    """Certificates of the relay's authority, if it is not a public one (PEM)."""

    @contextmanager
    def connect(self, storage: DatabaseOptions, name: str, task: str | None) -> Iterator["RemoteClients"]:
        """Yield the clients of a task at a relay. Raises ConfigError if the options do not say which."""
        if self.token_file is None or task is None:
            raise ConfigError("--at needs --token-file with an admin's token, and --task")
        if storage != DatabaseOptions():
            raise ConfigError("--at asks a running relay, which has its own database: leave --db out")
        check_name(task)
        check_client_name(name)  # before it becomes a part of a path
        try:
            token = self.token_file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", "not text")
            raise ConfigError(f"the token file {self.token_file} cannot be read: {why}") from error
        connection = Connection(str(self.at), token=token, ca=self.ca)
        with closing(connection):
            yield RemoteClients(connection, f"/v1/tasks/{quote(task, safe='')}/clients")


class RemoteClients:
    """The clients of a task at a relay, as its admin sees them."""

    def __init__(self, connection: Connection, path: str) -> None:
        self._connection, self._path = connection, path

    def invite(self, **wanted: Any) -> str:
        """Return a new token."""
        body = json.dumps({key: value for key, value in wanted.items() if value is not None}).encode()
        reply = self._connection.ask("POST", self._path, body=body, headers={"Content-Type": "application/json"})
        token: str = reply.value("token", str)
        return token

    def revoke(self, name: str) -> str:
        """End a client's or viewer's token: return its role."""
        role: str = self._connection.ask("DELETE", f"{self._path}/{quote(name, safe='')}").value("role", str)
        return role

    def withdraw(self, name: str) -> None:
        """Take a client's release back."""
        self._connection.ask("DELETE", f"{self._path}/{quote(name, safe='')}/release")
