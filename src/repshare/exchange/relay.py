"""A relay on another machine, over HTTP."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, fields
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import quote

from repshare.errors import ConfigError, Malformed
from repshare.exchange.exchange import Exchange
from repshare.exchange.http import PATIENCE_SECONDS, REPLY_LIMIT, TIMEOUT_SECONDS, Connection, Reply
from repshare.sharing import wire
from repshare.sharing.representations import Wants
from repshare.sharing.task import Task

LONGEST_NAME = 64  # characters, all printable: it becomes part of a path and goes to the terminal
BYTES = "application/octet-stream"
EXAMPLE = asdict(Task(2, 1, max_age=1.0, space="", description="", format="parts"))  # a value of each field's type


class Membership(NamedTuple):
    """A client's identity at a relay, and what its task's clients have agreed on."""

    task: str
    client: str
    agreed: Task


MOST_SHOWN = 100  # clients in a status: of more, a relay without tokens may leave this one out


class RelayExchange(Exchange):
    """A client's connection to a relay: see `Exchange`.

    The token tells the relay who the client is, and its task. Only an open relay, without tokens, needs both names.

    Examples:
        >>> token = Path("alice.token").read_text().strip()
        >>> with RelayExchange("https://relay.example.org", token=token) as exchange:
        ...     for record in Client(model, data, exchange).rounds(20):
        ...         print(record.round, record.trouble)
    """

    def __init__(
        self,
        url: str,
        task: str | None = None,
        *,
        token: str | None = None,
        client: str | None = None,
        ca: Path | None = None,
        cert: tuple[Path, Path] | None = None,
        timeout: float = TIMEOUT_SECONDS,
        patience: float = PATIENCE_SECONDS,
        plain_http: bool = False,
    ) -> None:
        """Prepare the connection; nothing is sent yet.

        Args:
            url: Address of the relay.
            task: The task's name, if the relay uses no tokens.
            token: The token that `repshare relay invite` made.
            client: The client's name, if the relay uses no tokens.
            ca: PEM file with certificates of the relay's authority, if it is not a public one.
            cert: PEM files with the client's certificate and its private key, if the relay asks for one.
            timeout: Seconds to wait for one answer.
            patience: Seconds to keep trying when the relay does not answer.
            plain_http: Send the token over http without TLS, also to other machines.
        """
        if token is None and (task is None or client is None):
            raise ConfigError("without a token, say which client this is and which task it takes part in")
        self.task, self.client = task, client
        self.identity = {"client": client} if token is None else {}  # query parameters of a client without a token
        self.connection = Connection(
            url, token=token, ca=ca, cert=cert, timeout=timeout, patience=patience, plain_http=plain_http
        )
        self._membership: Membership | None = None  # as the relay described it last

    def __repr__(self) -> str:
        return f"RelayExchange({self.connection.url!r}, {self.task!r}, client={self.client!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def publish(self, body: bytes) -> None:
        """Send the bytes; sending them again changes nothing."""
        self.connection.ask("PUT", f"{self._client_path()}/release", body=body, headers={"Content-Type": BYTES})

    def withdraw(self) -> None:
        """Take this client's release back."""
        self.connection.ask("DELETE", f"{self._client_path()}/release")

    def report(self, told: Mapping[str, Any]) -> None:
        """Send figures of a round to the relay's page: see `RoundReport` in relay/routes/schemas.py.

        Args:
            told: The figures by name. None stands for one that is left out.
        """
        body = json.dumps({key: value for key, value in told.items() if value is not None}).encode()
        headers = {"Content-Type": "application/json"}
        self.connection.ask("PUT", f"{self._client_path()}/report", body=body, headers=headers)

    def collect(self, wants: Wants) -> bytes:
        """Ask for a teacher."""
        query, limit = self._query(wants), self._longest_teacher(wants)
        reply = self.connection.ask("GET", f"{self.task_path()}/teacher", query=query, limit=limit)
        reply.check_type(BYTES)
        return reply.body

    def wait(self, since: int, seconds: float) -> int:
        """Return the task's version, once it is not `since` any more or the seconds have passed.

        Args:
            since: The version that is known already.
            seconds: Seconds to wait for another one.
        """
        query = {"since": since, "wait": seconds, **self.identity}
        reply = self.connection.ask("GET", f"{self.task_path()}/news", query=query, wait=seconds)
        return int(reply.value("version", int))

    def others(self) -> int:
        """Return the number of other clients that have a release at the relay."""
        status = self.connection.ask("GET", f"{self.task_path()}/status")
        return max(0, int(status.value("clients", int)) - 1)

    def holds(self) -> bool:
        """Whether the relay has a release of this client. It has none after an older backup was restored."""
        shown = self.connection.ask("GET", f"{self.task_path()}/status").value("shown", list)
        return len(shown) == MOST_SHOWN or any(row.get("name") == self._own_name() for row in shown)

    def describe(self) -> Membership:
        """This client's name, by its token, and its task."""
        reply = self.connection.ask("GET", self.task_path() if self.identity else "/v1/me")
        said = {"task": self.task, "client": self.client} if self.identity else reply.json()
        for name, ours in (("task", self.task), ("client", self.client)):
            given = said.get(name)
            if not isinstance(given, str):
                role = str(said.get("role"))[:30]
                raise ConfigError(f"this token names no {name} (its role is {role!r}): ask for a client's")
            if not given.isprintable() or not 1 <= len(given) <= LONGEST_NAME:
                raise Malformed(f"the relay gave {given[:70]!r} as the name of a {name}")
            if ours is not None and given != ours:
                raise ConfigError(f"the token is for the {name} {given!r}, not for {ours!r}")
        self.task, self.client = str(said["task"]), str(said["client"])
        self._membership = Membership(self.task, self.client, _agreed(reply))
        return self._membership

    def _longest_teacher(self, wants: Wants) -> int:
        """Return the bytes that a teacher takes at most, once the task is known."""
        if self._membership is None:
            return REPLY_LIMIT
        task = self._membership.agreed
        return min(REPLY_LIMIT, wire.longest_message(task.rows * (1 + wants.observations), task.columns))

    def _query(self, wants: Wants) -> dict[str, Any]:
        chosen: dict[str, Any] = {}
        if wants.peers is not None:
            raise ConfigError("a relay hands out nothing by name: leave peers out of the policy")
        if wants.precision != "fp32":
            chosen["precision"] = wants.precision
        return {"observations": wants.observations, "seed": wants.seed, **chosen, **self.identity}

    def task_path(self) -> str:
        """Return the path of the client's task at the relay."""
        name = self.describe().task if self.task is None else self.task
        return f"/v1/tasks/{quote(name, safe='')}"

    def _client_path(self) -> str:
        return f"{self.task_path()}/clients/{quote(self._own_name(), safe='')}"

    def _own_name(self) -> str:
        return self.describe().client if self.client is None else self.client


def _agreed(reply: Reply) -> Task:
    """Return the task that a relay describes. What an older relay leaves out has its default."""
    said, values = reply.json(), dict[str, Any]()
    for field in fields(Task):
        missing = field.name not in said and field.default is not MISSING
        if not missing and not (field.default is None and said.get(field.name) is None):
            values[field.name] = reply.value(field.name, type(EXAMPLE[field.name]))
    try:
        return Task(**values)
    except ConfigError as error:
        raise Malformed(f"the relay's task is not valid: {error}") from error
