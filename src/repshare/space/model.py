"""The classifier of a space, as a learner uses it: from its own samples and the total of all clients'."""

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from repshare.measures import Doubles
from repshare.sharing.representations import Floats, Integers, Release

OWN_MIX = "own mix"  # the classifier in use is all clients', for one client's class shares
Hits = NDArray[np.bool_]


class Linear(NamedTuple):
    """A linear classifier in a space."""

    weights: Floats  # (C, d)
    centre: Floats  # (d,)
    offset: Floats  # (C,)

    def __call__(self, vectors: Floats) -> Floats:
        """Map vectors (n, d) to scores (n, C)."""
        return vectors @ self.weights.T + (self.offset - self.weights @ self.centre)

    @property
    def is_finite(self) -> bool:
        """Whether all its numbers are."""
        return all(bool(np.isfinite(each).all()) for each in self)


class SpaceModel(Protocol):
    """One client's samples in a space, and the classifier that follows from them and from the total."""

    vectors: Floats  # (n, d)
    labels: Integers  # (n,)
    total: Any
    """What all clients together share, with `samples`, their number; None: no other client has shared anything."""

    @property
    def enough(self) -> int:
        """Rounds after which little changes while the other clients' samples stay the same."""

    def absorb(self, total: Any) -> None:
        """Use this total from now on. Raises Malformed, and keeps the last one, if it makes no finite classifier."""

    def improve(self) -> float | None:
        """Prepare what is shared next, given the total. Returns these samples' part of the duality gap, if any."""

    def release(self, round: int, space: str) -> Release:
        """What leaves this client, without noise."""

    def acknowledge(self) -> None:
        """Note that the last release is in the total from now on."""

    def start_over(self) -> None:
        """Begin anew: nothing of these samples is in the total."""

    def linear(self) -> Linear:
        """The current classifier: all clients', or this client's own while there is no other client."""

    def alone(self) -> Linear:
        """The classifier of this client's samples alone, whatever others have shared."""

    def own_scores(self, linear: Linear) -> Floats:
        """A classifier's scores of this client's samples (n, C)."""

    def leave_one_out(self) -> tuple[Hits, Hits]:
        """Which own samples (n,) classifiers get right that have not seen them: all clients', and this client's."""

    def state(self) -> dict[str, Any]:
        """All that a model of the same samples needs to continue to the same bits."""

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""


def as_probabilities(scores: NDArray[np.floating], loss: str, *, logarithms: bool = False) -> Doubles:
    """Turn scores (n, C) into probabilities. With squared loss they are rough: cut off below 0, they add up to 1.

    `logarithms`: scores are logarithms of probabilities, but for a constant, as with the loss discriminant.
    """
    given = scores.astype(np.float64)
    if logarithms := logarithms or loss == "discriminant":
        given = np.exp(given - given.max(axis=1, keepdims=True))
    positive = given.clip(0 if logarithms else 1e-6, None)
    shares: Doubles = positive / positive.sum(axis=1, keepdims=True)
    return shares
