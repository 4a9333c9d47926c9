"""What a client learns with: a network (`network.learner`), or samples in a space (`space.learner`)."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from repshare.config import Level, Policy
from repshare.measures import Doubles, Losses, Score
from repshare.sharing.representations import Floats, Protection

if TYPE_CHECKING:
    from torch import nn

    from repshare.network.models import Network
    from repshare.samples import Samples
    from repshare.space.agreement import Agreement
    from repshare.space.learner import SpaceLearner


class Representation(NamedTuple):
    """What stands for a sample in what is shared: its length, and the layers and parameters behind it."""

    numbers: int  # d'
    layers: int  # with parameters, before the head
    parameters: int
    is_inputs: bool  # it is the inputs, up to their order and scale
    source: str = ""  # where it is not the client's own network, what it is

    @property
    def shares_inputs(self) -> bool:
        """Whether an average of it is one of the inputs, or of a fixed function of them that hides nothing."""
        return self.is_inputs or not (self.parameters or self.source)

    def __str__(self) -> str:
        if self.is_inputs:
            return f"{self.numbers} numbers: the inputs themselves"
        if self.source and not self.parameters:
            return f"{self.numbers} numbers of {self.source}"
        if not self.parameters:
            return f"{self.numbers} numbers, computed from the inputs without any parameter"
        layers = "1 layer" if self.layers == 1 else f"{self.layers} layers"
        return f"{self.numbers} numbers after {layers} with {self.parameters:,} parameters"


class View(NamedTuple):
    """A client's view of some samples: its features of them, and its linear head."""

    features: Floats  # (n, d')
    weight: Floats  # (C, d')
    bias: Floats  # (C,)  zeros where the head has none


class Description(NamedTuple):
    """What a learner shares, for whoever decides about it. Figures are names of fields of a record."""

    representation: Representation
    precision: str
    """Number format of releases."""
    figures: tuple[str, ...]
    """Those of its rounds that may be reported: none is about single samples."""
    name: str
    """What it learns with: a kind of network, or a space."""
    parameters: int
    size: int
    """Bytes of what it learns, on disk."""


class Setup(NamedTuple):
    """What a client brings to its learner, whichever that is."""

    samples: "Samples"
    policy: Policy
    name: str
    seed: int
    model: "nn.Module | Network | None" = None
    head: str | None = None
    agreement: "Agreement | None" = None
    classes: int | None = None
    alone: bool = False
    """Whether nothing will ever be shared."""
    norm_bound: float = math.inf
    public: "Samples | None" = None
    secret: bytes | None = None
    levels: Sequence[Level] | None = None
    options: Any = None
    """The method's."""


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
