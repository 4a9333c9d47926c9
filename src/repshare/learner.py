"""What a client learns with: a network (`network.learner`), or samples in a space (`space.learner`)."""

from typing import TYPE_CHECKING, Any, Protocol

from repshare.config import Policy
from repshare.measures import Description, Doubles, Losses, Score, View
from repshare.sharing.representations import Floats, Protection

if TYPE_CHECKING:
    from repshare.network.models import Network
    from repshare.samples import Samples
    from repshare.space.learner import SpaceLearner


class Learner(Protocol):
    """One client's side of a method. It knows nothing of exchanges and rounds."""

    samples: "Samples"
    policy: Policy
    classes: int  # C
    norm_bound: float  # the longest vector that clients agreed on
    guard: Protection | None  # makes releases private; None: they are exact

    @property
    def dimension(self) -> int:
        """d', the length of what stands for a sample."""

    @property
    def network(self) -> "Network | None":
        """The network that it trains; None: it learns in a space."""

    @property
    def space(self) -> "SpaceLearner | None":
        """This learner, with what one in a space has beside these verbs; None: it trains a network."""

    def train(self) -> Losses:
        """Learn for one round. Training that leaves numbers that are not finite is undone, which the losses say."""

    def release(self, round: int) -> bytes:
        """Make what leaves this client after a round. Raises BudgetExhausted if its noise cannot be paid for."""

    def acknowledge(self) -> None:
        """Note that the last release has arrived."""

    def absorb(self, body: bytes) -> None:
        """Learn from this teacher from now on. Raises Malformed, and keeps the last one, if it does not fit."""

    def scores(self, samples: "Samples") -> Doubles | Floats:
        """Compute a score for each of these samples and class (n, C). The largest one is the class."""

    def probabilities(self, scores: Doubles | Floats) -> Doubles:
        """Turn scores into probabilities (n, C)."""

    def evaluate(self, samples: "Samples") -> Score:
        """Count how many of these samples are classified right."""

    def view(self, samples: "Samples") -> View:
        """Compute these samples' features, with the linear classifier of them."""

    def state(self) -> dict[str, Any]:
        """Collect all that a learner of the same samples needs to continue to the same bits."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""

    def describe(self) -> Description:
        """Describe what it shares."""
