"""A running relay, asked over HTTPS with an admin's token: inviting without a shell on its machine."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from repshare.cli.relay.database import DatabaseOptions
from repshare.errors import ConfigError
from repshare.exchange.http import Connection, Reply
from repshare.relay.auth import check_client_name, check_name

Ask = Callable[..., Reply]


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
    def connect(self, storage: DatabaseOptions, name: str, task: str | None) -> Iterator[Ask]:
        """Yield a function that asks the relay about the clients of a task: method, rest of the path, JSON to send.

        Raises ConfigError if the options do not say which relay and task.
        """
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
        with closing(Connection(str(self.at), token=token, ca=self.ca)) as connection:

            def ask(method: str, rest: str = "", **wanted: Any) -> Reply:
                body = json.dumps({key: value for key, value in wanted.items() if value is not None}).encode()
                headers = {"Content-Type": "application/json"}
                path = f"/v1/tasks/{quote(task, safe='')}/clients{rest}"
                return connection.ask(method, path, body=body if wanted else None, headers=headers if wanted else None)

            yield ask
