"""How a relay serves."""

from dataclasses import dataclass
from typing import Annotated

import tyro

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
    threads: Annotated[bool, tyro.conf.Suppress] = False
    """Whether the store is asked from threads: worth it where an answer comes over a network."""

    def __post_init__(self) -> None:
        for name, least in (("rate", 0), ("max_bytes", 1), ("body_seconds", 0.001), ("head_seconds", 0.001)):
            if not getattr(self, name) >= least:
                raise ConfigError(f"{name} must be at least {least}, not {getattr(self, name)}")
