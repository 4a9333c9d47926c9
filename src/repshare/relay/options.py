"""How a relay serves."""

from dataclasses import dataclass

from repshare.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """What a relay takes, and from whom."""

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
    away_seconds: float = 30.0
    """Silence after which the page shows a client as away; at least three times its usual time between releases."""

    def __post_init__(self) -> None:
        seconds = [(f"{what}_seconds", 0.001) for what in ("body", "head", "read", "away")]
        for name, least in (("rate", 0), ("max_bytes", 1), ("connections", 1), *seconds):
            if not getattr(self, name) >= least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")
