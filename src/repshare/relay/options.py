"""The options of a relay."""

import ipaddress
from dataclasses import dataclass
from pathlib import Path

from repshare.errors import ConfigError
from repshare.fields import check_least


@dataclass(frozen=True)
class Address:
    """The address at which a relay listens."""

    host: str = "127.0.0.1"
    """Address to listen on. 0.0.0.0 means all addresses of this machine, and needs TLS or a proxy that does it."""
    port: int = 8000
    """Port to listen on. 0 takes a free one and prints it."""
    certificate: Path | None = None
    """TLS: the certificate, with all intermediate ones (PEM)."""
    key: Path | None = None
    """TLS: the private key of --certificate (PEM)."""
    client_ca: Path | None = None
    """TLS: require a client certificate of this authority (PEM), in addition to the token."""
    behind_proxy: bool = False
    """A proxy in front of the relay does TLS. Client addresses are taken from its X-Forwarded-For header."""

    def check(self, *, insecure: bool) -> None:
        """Raise ConfigError where tokens would travel in the clear, or there are none and others can reach it."""
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port must be from 0 to 65535, not {self.port}")
        if (self.certificate is None) != (self.key is None):
            raise ConfigError("TLS needs both --certificate and --key")
        if self.client_ca is not None and self.certificate is None:
            raise ConfigError("--client-ca needs TLS: give --certificate and --key, too")
        for path in (self.certificate, self.key, self.client_ca):
            if path is not None and not path.is_file():
                raise ConfigError(f"there is no file {path}")
        if is_loopback(self.host):
            return
        if insecure:
            raise ConfigError(f"--insecure is for this machine only: listen on 127.0.0.1, not on {self.host}")
        if self.certificate is None and not self.behind_proxy:
            raise ConfigError(
                f"on {self.host} tokens would travel in the clear: give --certificate and --key, or say "
                "--behind-proxy if a proxy in front does TLS"
            )


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach this address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class RelayOptions:
    """The limits of a relay, and whom it serves."""

    insecure: bool = False
    """Use no tokens: everyone may do everything. For trying it out on this machine only."""
    rate: float = 100.0
    """Requests per second that each token may make on average, with bursts of twice as many. 0 means no limit."""
    max_bytes: int = 16_000_000
    """Maximum size of a release in bytes."""
    body_seconds: float = 30.0
    """Maximum time for the body of a request to arrive."""
    head_seconds: float = 10.0
    """Maximum time for the headers of a request to arrive. For the first, it starts with the connection."""
    read_seconds: float = 300.0
    """Maximum time that a response may wait while the client reads nothing of it."""
    connections: int = 5000
    """Maximum number of open connections. Beyond it, the address with the most connections loses its oldest."""
    public_page: bool = False
    """Show the relay's page to everyone who can reach it, without a token."""
    public_metrics: bool = False
    """Show /metrics to everyone who can reach the relay. Otherwise it needs a viewer's token."""
    away_seconds: float = 120.0
    """Silence after which the page shows a client as away."""

    def __post_init__(self) -> None:
        check_least(self, rate=0, max_bytes=1, connections=1)
        check_least(self, body_seconds=0.001, head_seconds=0.001, read_seconds=0.001, away_seconds=0.001)
