"""The options of the demo."""

from dataclasses import dataclass
from typing import Literal

from repshare.fields import check_within

NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "mallory", "niaj")


@dataclass(frozen=True)
class DemoOptions:
    """The clients of the demo, and what they learn from."""

    clients: int = 4
    """Number of clients. Each is a process."""
    dataset: Literal["digits", "mnist", "fashion_mnist"] = "digits"
    """Dataset to learn from. digits needs no download."""
    samples: int = 50
    """Number of images that each client has."""
    rounds: int = 60
    """Number of rounds that each client takes part in."""
    seed: int = 0
    """Seed of the order of the data, the starting weights and all random choices."""
    pace: float = 0.2
    """Minimum duration of a round, so that there is something to watch."""

    def __post_init__(self) -> None:
        check_within(self, 2, len(NAMES), "clients")
        check_within(self, 1, 10_000, "samples")
        check_within(self, 1, 100_000, "rounds")
        check_within(self, 0, 3600, "pace")

    @property
    def names(self) -> tuple[str, ...]:
        """The clients' names."""
        return NAMES[: self.clients]
