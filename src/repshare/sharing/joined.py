"""The total of a relay's clients, as a release to another relay: whole numbers, so that a tree of relays adds exactly.

A row has the weighted sum of a class's means in steps of 2⁻³² (see `fixed_point`), then the sum of the weights, the
samples and the clients behind it: what a board keeps. Beside the rows are the relays whose clients are in them, so that
none is counted twice.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.errors import Malformed
from repshare.sharing import fixed_point
from repshare.sharing.representations import Integers, Representations

BESIDE = 3  # numbers of a row next to its vector: weight, samples, clients
MOST_RELAYS = 10_000  # in one tree

Relays = NDArray[np.uint64]


class Summed(Representations):
    """Means over several clients, with the exact sums that they were made of."""

    sums: Integers  # (n, d + 3)
    relays: Relays  # (m,)


class Total(NamedTuple):
    """All clients of a relay but one, by class."""

    round: int
    labels: Integers  # (n,)
    sums: Integers  # (n, d + 3)
    relays: Relays  # (m,)
    space: str | None = None
    again: int = 0  # makes other bytes of the same total, so that it does not expire

    def part(self, rows: NDArray[np.bool_]) -> "Total":
        """Return some of the rows."""
        return self._replace(labels=self.labels[rows], sums=self.sums[rows])

    def says_the_same(self, other: "Total | None") -> bool:
        """Return whether this is the total of the same clients' same releases."""
        if other is None:
            return False
        pairs = zip((self.labels, self.sums, self.relays), (other.labels, other.sums, other.relays), strict=True)
        return all(np.array_equal(here, there) for here, there in pairs)


def as_means(total: Total) -> Summed:
    """Return the means of a total. Raises Malformed if there can be none."""
    weights, samples, clients = total.sums[:, -3], total.sums[:, -2], total.sums[:, -1]
    if len(total.sums) and min(weights.min(), samples.min(), clients.min()) < 1:
        raise Malformed("a total with weights, samples or clients below 1")
    vectors = fixed_point.mean(total.sums[:, :-BESIDE], total.sums[:, -3:-2]).astype(np.float32)
    made = Summed(vectors, total.labels, samples)
    made.sums, made.relays = total.sums, total.relays
    return made


def find_fault(means: Summed, *, by_samples: bool, fewest: int) -> str | None:
    """Return what keeps these rows from being a total of clients that each shared valid means, or None.

    `by_samples`: a client counts by its samples. `fewest`: the least count of a client's mean.
    """
    weights, samples, clients = means.sums[:, -3], means.sums[:, -2], means.sums[:, -1]
    if len(set(means.relays.tolist())) != len(means.relays) or not 0 < len(means.relays) <= MOST_RELAYS:
        return f"{len(means.relays):,} relays, not from 1 to {MOST_RELAYS:,} that differ"
    if fixed_point.overflows(means.sums):
        return "sums that leave no room for other clients"
    if not np.array_equal(weights, samples if by_samples else clients):
        return f"weights that are not the numbers of {'samples' if by_samples else 'clients'}"
    if (clients > samples // fewest).any():
        return f"means of fewer than {fewest} samples a client"
    return None
