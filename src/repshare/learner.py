"""What a client learns with: a network (`network.learner`), or samples in a space (`space.learner`)."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.measures import Description, Doubles, Record, Score, View
from repshare.sharing.representations import Floats, Integers, Release
from repshare.sharing.task import Task

Samples = Any  # `repshare.samples.Samples`, or rows of a table: a party with a table has no PyTorch
NO_ROWS: Integers = np.zeros(0, np.int64)


class Protection(Protocol):
    """Makes a release of class sums with noise, and charges it for good before it exists: `privacy.guard`."""

    def release(self, vectors: Floats, labels: Integers, round: int) -> Release:
        """Release sums of these samples. Raises BudgetExhausted where the budget does not pay for it."""


class Learner(Protocol):
    """One client's side of a method. It knows nothing of exchanges and rounds.

    The verbs up to `files` are every learner's own; those that follow have defaults.
    """

    samples: Samples
    policy: Policy
    classes: int  # C
    dimension: int  # d', the length of what stands for a sample
    norm_bound: float  # the longest vector that clients agreed on
    guard: Protection | None = None  # makes sums private; None: what leaves is exact
    secret: bytes | None = None  # decides which samples are held out; None: none are
    held_rows: Integers = NO_ROWS  # the samples of which nothing is ever shared
    judged_on: str = "samples"  # the samples that tell whether others help, in words
    class_names: Sequence[str] = ()  # as clients agreed on them
    trained: Sequence[Any] = ()  # the tensors that an optimizer changes
    behind: float | None = None  # samples behind what it learns from; None: no other client has shared anything
    gains: tuple[Score, Score] | None = None  # own samples right together and alone, each left out in turn
    enough: int | None = None  # rounds after which little changes while the others stay the same; None: it always may

    def train(self) -> Record:
        """Learn for one round, and account for it. Steps that are not finite are left out.

        Seconds in the record are of work before the round, bytes are of training that sends and receives.
        """

    def release(self, round: int) -> bytes:
        """Make what leaves this client after a round. Raises BudgetExhausted if its noise cannot be paid for."""

    def absorb(self, body: bytes) -> None:
        """Learn from this teacher from now on. Raises Malformed, and keeps the last one, if it does not fit."""

    def scores(self, samples: Samples) -> Doubles | Floats:
        """Compute a score for each of these samples and class (n, C). The largest one is the class."""

    def probabilities(self, scores: Doubles | Floats) -> Doubles:
        """Turn scores into probabilities (n, C)."""

    def evaluate(self, samples: Samples) -> Score:
        """Count how many of these samples are classified right."""

    def view(self, samples: Samples) -> View:
        """Compute these samples' features, with the linear classifier of them."""

    def state(self) -> dict[str, Any]:
        """Collect all that a learner of the same samples needs to continue to the same bits."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""

    def describe(self) -> Description:
        """Describe what it shares."""

    def shared_counts(self) -> Integers:
        """The number of samples of each class that count in what is shared (C,)."""

    def single_samples(self) -> list[int]:
        """The classes of which an average of one sample leaves, if any does."""

    def files(self, round: int) -> dict[str, bytes]:
        """What it has learned as files for other programs, by name."""

    def acknowledge(self) -> None:
        """Note that the last release has arrived. Default: no release depends on which ones have."""

    def start_over(self) -> None:
        """Begin anew: what was shared is left out. Default: no release depends on the one before."""

    def task(self, **values: Any) -> Task:
        """The task of clients that learn like this one, with these values."""
        return Task(self.classes, self.dimension, **values)

    def exposure(self, behind: Callable[[int], float]) -> Any:
        """What a release shows, given the samples behind what is seen of it. Default: no rule is known."""
        return None

    def hide(self, classes: frozenset[int]) -> bool:
        """Share no sample of these classes from now on; say whether that is a change. Default: the exchange does it."""
        return False

    def identity(self) -> dict[str, Any]:
        """What must be the same for a saved state to be of use, beside the task, the data and the seed."""
        return {}

    @property
    def module(self) -> Any:
        """The model that was given, in evaluation mode. Raises ConfigError where there is none."""
        raise ConfigError("there is no model: what is learned is the classifier of a space")

    def marks(self) -> frozenset[bytes]:
        """A mark of each sample that counts in what is shared, where it matters which samples change."""
        return frozenset()

    def compare_classes(self) -> tuple[Score, Score] | None:
        """What `gains` is now. Default: not known."""
        return None

    def compare_held_out(self) -> tuple[float | None, float | None]:
        """Accuracy on held-out samples, with the others and without them. Default: none are held out."""
        return None, None

    def unusual(self) -> dict[str, tuple[Any, Any]]:
        """What was agreed on, and is not this package's own choice for these samples: what it is, and the choice."""
        return {}

    def preview(self) -> dict[str, Any]:
        """What a party should know of the agreement before it takes part. Default: there is none."""
        return {}
