"""How a relay serves."""

from dataclasses import dataclass

from repshare.errors import ConfigError


@dataclass(frozen=True)
class Options:
    """What a relay takes, and from whom."""

    insecure: bool = False
    """No tokens: everyone may do everything. For trying out, on this machine only."""
    rate: float = 100.0
    """Requests a second that each token may make on average, twice as many at once; 0: as many as it likes."""
    max_bytes: int = 16_000_000
    """The longest release that is taken."""
    body_seconds: float = 30.0
    """How long a body may take to arrive."""
    head_seconds: float = 10.0
    """How long a request's head may take to arrive, the first one counted from the connection."""
    read_seconds: float = 300.0
    """How long an answer may wait while none of it is read."""
    connections: int = 5000
    """Connections at the same time. Where there are more, the address with most of them loses its oldest."""
    public_page: bool = False
    """Let everyone who can reach the relay see its page, without a token."""
    away_seconds: float = 30.0
    """Silence after which the page calls a client away; at least three times its usual time between releases."""

    def __post_init__(self) -> None:
        seconds = [(f"{what}_seconds", 0.001) for what in ("body", "head", "read", "away")]
        for name, least in (("rate", 0), ("max_bytes", 1), ("connections", 1), *seconds):
            if not getattr(self, name) >= least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")
