"""`repshare relay uplink`: join a task of this relay to the same task of another, so that both are one."""

import signal
import threading
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

from repshare.cli.relay.database import DatabaseOptions
from repshare.errors import ConfigError
from repshare.exchange.relay import RelayExchange
from repshare.files import explain_errors

PATIENCE_SECONDS = 1.0  # for an answer of the relay upstream: there will be another look


@dataclass(frozen=True)
class UpstreamOptions:
    """The connection to the relay upstream, and the token for it."""

    token_file: Path | None = None
    """File with the token of the role relay that `repshare relay invite` made upstream."""
    name: str | None = None
    """This relay's name upstream, if that relay uses no tokens. Then give --task, too."""
    ca: Path | None = None
    """Certificates of the authority of the relay upstream, if it is not a public one (PEM)."""
    cert: Path | None = None
    """This relay's certificate, if the one upstream asks for it (PEM)."""
    key: Path | None = None
    """The private key of --cert (PEM)."""
    plain_http: bool = False
    """Send the token over http without TLS, also to other machines. Use this only inside a secure network."""

    def connect(self, url: str, task: str | None) -> RelayExchange:
        """Return the connection; nothing is sent yet."""
        if (self.cert is None) != (self.key is None):
            raise ConfigError("--cert and --key belong together: give both")
        if self.token_file is None and (self.name is None or task is None):
            raise ConfigError("give --token-file, or for a relay without tokens --name and --task")
        token = None
        if self.token_file is not None:
            with explain_errors(f"the token file {self.token_file} cannot be read"):
                token = self.token_file.read_text().strip()
        cert = (self.cert, self.key) if self.cert and self.key else None
        return RelayExchange(
            url,
            None if token else task,
            token=token,
            client=self.name,
            ca=self.ca,
            cert=cert,
            patience=PATIENCE_SECONDS,
            plain_http=self.plain_http,
        )


def uplink(
    url: Annotated[str, tyro.conf.Positional],
    storage: DatabaseOptions,
    upstream: UpstreamOptions,
    task: str | None = None,
    least_clients: int = 3,
    every: float = 1.0,
    leave: bool = False,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
) -> None:
    """Join a task of this relay to the same task of another relay, upstream. Ctrl-C or SIGTERM stops it.

    Clients of both then learn from the total of all, as if they were at one relay, to the last bit. Upstream learns
    the total of this relay's clients, never what one of them shared.

    The token is made upstream, by `repshare relay invite leaf1 --task mnist --role relay --out leaf1.token`. Here,
    it runs next to `repshare relay serve`; with --leave, both are apart again:

    repshare relay uplink https://root.example.org --token-file leaf1.token

    repshare relay uplink https://root.example.org --token-file leaf1.token --leave

    Args:
        url: Address of the relay upstream.
        task: The task's name at this relay. Default: the one that the token names, upstream.
        least_clients: A class (in a common space: all of them) that fewer of this relay's clients share is not
            published upstream.
        every: Seconds between two looks at both relays.
        leave: Withdraw at both relays what the other one published, and end.
        log_level: Log messages from this level on, as JSON lines on standard error.
    """
    from repshare.relay.monitoring import logs
    from repshare.relay.uplink import UPSTREAM, Uplink

    if not every > 0 or least_clients < 1:
        raise ConfigError(f"every must be above 0 and least-clients at least 1, not {every} and {least_clients}")
    logs.set_up(log_level)
    stopped = threading.Event()
    for which in (signal.SIGINT, signal.SIGTERM):
        signal.signal(which, lambda *_: stopped.set())
    with storage.open(audited=False) as relay, closing(upstream.connect(url, task)) as exchange:
        if task is None:
            task = exchange.describe().task
        opened = relay.get_task(task)
        if any(entry.grant.name == UPSTREAM and entry.grant.task == task for entry in relay.access.entries()):
            raise ConfigError(f"a client of {task} is called {UPSTREAM}, as the relay upstream would be: revoke it")
        work = Uplink(opened, exchange, least_clients)
        if leave:
            work.leave()
            return
        logs.log_event("joining", task=task, upstream=url)
        while not stopped.is_set():
            work.step()
            stopped.wait(every)
    logs.log_event("stopped")
