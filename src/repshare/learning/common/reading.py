"""A total, as a client reads it: the common classifier that it makes, and what a client's own step needs of it.

Clients of one process that got the same total read it alike, so that what follows from it is computed once, not once a
client: to the same bits, since it is computed in the same way for any one of them.
"""

import math
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.sharing.parts import SHRINKAGES, Part
from repshare.spaces import algebra
from repshare.spaces.algebra import Array

if TYPE_CHECKING:
    from torch import Tensor

START = 1e-4  # ρ / n before anyone knows n: close to what votes come to with a thousand samples
UNIT = 0.03  # ρ that weights are shared for: so small that, for any ρ, they are at most 3 α
ROUNDED = 0.02  # by how much fp16 may change a shrinkage
FEWEST = 0.01  # of d: τ is at least so much, also where all vectors are alike


class Linear(NamedTuple):
    """A linear classifier in a space: of tensors, or of arrays where there is no PyTorch."""

    weights: "Tensor"  # (C, d)
    centre: "Tensor"  # (d,)
    offset: "Tensor"  # (C,)

    def __call__(self, vectors: "Tensor") -> "Tensor":
        """Map vectors (n, d) to scores (n, C)."""
        return vectors @ self.weights.T + (self.offset - self.weights @ self.centre)


class Reading(NamedTuple):
    """A client's knowledge of all samples: from the total, or from its own samples alone."""

    samples: int  # n, with this client's
    shrinkage: float | None  # ρ by vote; None: there has been none
    wanted: float  # ρ, by vote or not
    unit: float  # ρ that weights are shared for
    scale: float  # ρ τ
    used: float  # the same for the total in hand, which may have been made for another ρ
    length: float  # of the centre, squared
    linear: Linear
    is_finite: bool  # whether all numbers of the classifier are


class Asked(NamedTuple):
    """All that a client's reading of a total depends on, besides the total."""

    samples: int  # of all clients, with this one's
    fixed: float | None  # ρ / n, where it is not voted on
    testing: bool = False  # whether the classifier is to be used as it is; else this client is about to improve it


_last: tuple[Part | None, dict[Hashable, Any]] = None, {}  # the total that was read last, and what was made of it


def read_shared(total: Part, asked: Asked, like: Array) -> Reading:
    """Return the reading of a total that other clients of this process may have, too. `like`: a client's vectors."""
    global _last  # replaced as a whole: another thread's may be another total
    last = _last
    if last[0] is not total:
        last = _last = total, {}
    made, place = last[1], algebra.place(like)

    def once(key: Hashable, make: Callable[[], Any]) -> Any:
        if (place, key) not in made:
            made[place, key] = make()
        return made[place, key]

    def make() -> Reading:
        reading = _elect_and_read(total, asked, like)
        linear = once(reading.used, lambda: reading.linear)  # most questions lead to the same one
        return reading._replace(linear=linear)

    reading: Reading = once(asked, make)
    return reading


def read_own(own: Part, asked: Asked, vote: float | None, like: Array, *, alone: bool) -> Reading:
    """Return the reading of a client's own part, while nobody else has shared any; `vote`: ρ that it was made for."""
    if alone or vote is not None or asked.fixed is not None:
        return _elect_and_read(own, asked, like)
    wanted = START * asked.samples
    return _read(own, asked, like, None, wanted, wanted, wanted)


def _elect_and_read(total: Part, asked: Asked, like: Array) -> Reading:
    if asked.fixed is not None:
        fixed = asked.fixed * asked.samples
        return _read(total, asked, like, fixed, fixed, fixed, fixed)
    wanted = SHRINKAGES[_elect(total.hits.sum(axis=0), total.samples * (1 - total.repeated))]
    return _read(total, asked, like, wanted, wanted, UNIT, _reconcile(total, asked, wanted))


def _read(
    total: Part, asked: Asked, like: Array, vote: float | None, wanted: float, unit: float, used: float
) -> Reading:
    dimension = like.shape[1]
    centre = algebra.like(total.centre, like, copy=True)  # products depend on how memory is aligned
    length = square_length(centre)
    spread = max(dimension - length, FEWEST * dimension)  # τ: all are √d long
    offset = algebra.double(algebra.like(total.shares, like))
    sums = algebra.double(algebra.like(total.vectors, like))
    weights = sums - algebra.like(total.weights, sums)[:, None] * algebra.double(centre)
    weights *= total.samples / (used * spread)
    linear = Linear(algebra.like(weights, like), centre, algebra.like(offset, like))
    is_finite = all(map(algebra.is_finite, linear))
    return Reading(
        asked.samples, vote, wanted, unit, wanted * spread, used * spread, length, linear, is_finite=is_finite
    )


def _reconcile(total: Part, asked: Asked, wanted: float) -> float:
    """Return the ρ to scale a total by, some of whose parts may be first releases.

    First releases alone are an average of clients' own classifiers, and are read as such. Among others, they count no
    more than that: a W that is too small does no harm.
    """
    before = START * total.first * total.samples
    if total.first > 1 - ROUNDED:
        return before if asked.testing else max(wanted, before)
    return UNIT if total.first < ROUNDED else max(UNIT, before)


def _elect(shares: NDArray[np.floating], voters: float) -> int:
    """Return the largest shrinkage whose hits are not clearly below the best: (candidates,) shares of all voters."""
    most = float(shares.max())
    error = math.sqrt(max(most * (1 - most), 0.0) / max(voters, 1)) / 2  # of a difference on the same samples, roughly
    return int(np.flatnonzero(shares >= most - error)[-1])


def square_length(vector: Array) -> float:
    """Return the square of a vector's length, in fp64."""
    return float(algebra.square(algebra.double(vector)).sum())
