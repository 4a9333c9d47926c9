"""The process that serves a relay: listening, TLS, time limits for connections, and a shutdown that loses nothing."""

import asyncio
import logging
import signal
import socket
import ssl
import sys
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import Any

import uvicorn

from repshare.files import explain_errors
from repshare.relay.app import make_app
from repshare.relay.connections import GuardedConnection
from repshare.relay.monitoring import logs
from repshare.relay.monitoring.audit_log import AuditLog
from repshare.relay.options import Address, RelayOptions
from repshare.relay.service import Service
from repshare.stores import Database

IDLE_SECONDS = 75  # between requests; proxies keep connections open for about a minute
LAST_SECONDS = 0.5  # at a stop, for requests that are on their way over connections that look idle
STOP_SECONDS = 40  # for requests under way; longer than a body may take
BACKLOG = 2048
MOST_FILES = 65_536
SPARE_FILES = 64  # for the store, the log and what is imported late
SWITCH_SECONDS = 0.0005  # between threads: those with little to do need not wait for one that makes a large answer


def serve(database: Database, options: RelayOptions, address: Address, audit: AuditLog | None = None) -> None:
    """Serve until SIGTERM or SIGINT; then finish what is under way and return."""
    address.check(insecure=options.insecure)
    sys.setswitchinterval(SWITCH_SECONDS)
    options = _within_files(options)
    listener = _listen(address)
    app = make_app(database, options, audit)
    config = uvicorn.Config(
        app,
        http=GuardedConnection,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=STOP_SECONDS,
        backlog=BACKLOG,
        proxy_headers=address.behind_proxy,
        forwarded_allow_ips="*" if address.behind_proxy else None,
        **_tls(address),
    )
    for file in filter(None, (address.certificate, address.client_ca)):
        with explain_errors(f"the certificate {file} cannot be used"):
            ssl.create_default_context(cafile=file)
    with explain_errors(f"{address.key} cannot be used as the key of {address.certificate}"):
        config.load()
    RelayServer(config, app.state.service, _url(address, listener)).run(sockets=[listener])
    logs.log_event("stopped")


class RelayServer(uvicorn.Server):
    """A uvicorn.Server that logs its address, and answers long polls before it shuts down."""

    def __init__(self, config: uvicorn.Config, service: Service, url: str) -> None:
        super().__init__(config)
        self._service, self._url = service, url

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, and log the address: from now on a signal stops the relay without losing data."""
        await super().startup(sockets)
        logs.log_event("listening", url=self._url)
        print(f"repshare relay at {self._url} (Ctrl-C stops it)", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Finish what is under way."""
        logs.log_event("stopping")
        self._service.versions.stop()  # answers say from now on that the connection ends with them
        for listener in (*self.servers, *(sockets or ())):  # a loop gives up a socket before it is closed
            listener.close()
        await asyncio.sleep(LAST_SECONDS)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second Ctrl-C stops at once. Unlike uvicorn, end with exit code 0: stopping was asked for."""
        self.force_exit = self.should_exit and sig == signal.SIGINT
        self.should_exit = True


def _listen(address: Address) -> socket.socket:
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with explain_errors(f"cannot listen on {address.host} port {address.port}"):
        return socket.create_server((address.host, address.port), family=family, backlog=BACKLOG)


def _url(address: Address, listener: socket.socket) -> str:
    scheme = "https" if address.certificate else "http"
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{scheme}://{host}:{listener.getsockname()[1]}"


def _tls(address: Address) -> dict[str, Any]:
    if address.certificate is None:
        return {}
    files = {"ssl_certfile": str(address.certificate), "ssl_keyfile": str(address.key)}
    if address.client_ca is None:
        return files
    return {**files, "ssl_ca_certs": str(address.client_ca), "ssl_cert_reqs": ssl.CERT_REQUIRED}


def _within_files(options: RelayOptions) -> RelayOptions:
    """Raise the limit on files as far as the system allows: the usual 1,024 are few for a server.

    No more connections than there can be files, and some to spare: what needs one then would fail without a word.
    """
    try:
        import resource
    except ModuleNotFoundError:  # Windows has no such limit
        return options

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, MOST_FILES) if hard != resource.RLIM_INFINITY else MOST_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(ValueError, OSError):  # macOS has another limit below the one that it tells
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    if soft == resource.RLIM_INFINITY or options.connections <= soft - SPARE_FILES:
        return options
    connections = max(1, soft - SPARE_FILES)
    logs.log_event("fewer connections than wanted", logging.WARNING, connections=connections, files=soft)
    return replace(options, connections=connections)
