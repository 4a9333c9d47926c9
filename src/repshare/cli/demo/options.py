"""The options of the demo."""

from dataclasses import dataclass
from typing import Literal

from repshare.fields import check_within

NAMES = ("alice", "bob", "carol", "dave", "erin", "frank", "grace", "heidi", "ivan", "judy", "kim", "niaj")
MALLORY = "mallory"  # the one whose images are noise


@dataclass(frozen=True)
class DemoOptions:
    """The parties of the demo, and what they learn from."""

    clients: int = 4
    """Number of parties, besides mallory."""
    dataset: Literal["digits", "mnist", "fashion_mnist"] = "digits"
    """Dataset to learn from. digits needs no download."""
    samples: int = 60
    """Number of images that each party has. mallory has as many images of noise as all of them together."""
    rounds: int = 50
    """Number of rounds that networks train, alone and in RS."""
    common_rounds: int = 6
    """Number of rounds of CS in each act: without mallory, with it, and without it again."""
    seed: int = 0
    """Seed of the order of the data, the starting weights and all random choices."""
    pace: float = 0.2
    """Minimum duration of a network's round, so that there is something to watch. One of CS takes four times that."""

    def __post_init__(self) -> None:
        check_within(self, 2, len(NAMES), "clients")
        check_within(self, 10, 10_000, "samples")
        check_within(self, 1, 100_000, "rounds")
        check_within(self, 1, 10, "common_rounds")
        check_within(self, 0, 900, "pace")

    @property
    def names(self) -> tuple[str, ...]:
        """The parties' names."""
        return NAMES[: self.clients]
