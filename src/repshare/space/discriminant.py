"""A linear discriminant in a common space: everybody's class sums, read with a client's own second moments.

One release is enough, so that noise is paid for once. From the sums of all clients follow the classes' means. What is
missing for a classifier, how vectors scatter within a class (Σ), each client takes from its own samples: these are
exact, and never leave. Σ is shrunk towards equal strength in all directions, by d / (d + n / 2) for n own samples.

In each principal direction of Σ, scaled so that samples scatter by 1 within their class, a class mean of n_c samples is
wrong by 1 / n_c for the draw of samples, and by more for noise. A client's own mean of n_o samples has no noise: it
counts for as much of n_o samples as the other's error is noise. So without noise the total is used as it is, and with
very much the own samples alone. What then is left of errors, classes' means are shrunk by towards their common mean,
as far as they differ by no more. The scores are logarithms of the classes' probabilities, but for a constant.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from repshare.errors import Malformed
from repshare.measures import Doubles
from repshare.sharing.representations import Floats, Integers, Release
from repshare.sharing.sums import Sums, add_up, as_release, lift, scales
from repshare.space.model import Hits, Linear

OWN = 0.5  # the weight of an own sample against shrinking Σ
FEWEST = 1.0  # samples of a class in a total: noise may leave none
RAREST = 1e-6  # share of a class of which there seem to be no samples
FOLDS = 10  # of a client's samples, to judge them by classifiers that have not seen them
LEAST = 1e-12  # scatter, so that nothing is divided by 0


class Whitened(NamedTuple):
    """Directions in which a client's own samples scatter by 1 within their class."""

    forward: Doubles  # (d, d)  vectors @ forward are whitened
    back: Doubles  # (d, d)  the inverse
    strength: Doubles  # (d,)  scatter in each direction before


class Discriminant:
    """One client's samples in the space, and the sums of all clients: the `SpaceModel` that takes one release."""

    enough = 2  # a release depends on own samples only: publish, and read the total

    def __init__(self, vectors: Floats, labels: Integers, classes: int, *, personal: bool) -> None:
        """`personal`: let own samples make up for noise in the total."""
        self.vectors, self.labels, self.classes, self.personal = vectors, labels, classes, personal
        self.total: Sums | None = None
        self._alone: Linear | None = None
        self._linear: Linear | None = None
        self._whitened: Whitened | None = None
        self._is_in_total = False
        self._left_out: tuple[Hits, Hits] | None = None

    def absorb(self, total: Sums | None) -> None:
        """Use this total from now on; None: no other client has shared any. Refuses one that makes no classifier."""
        before, self.total, self._linear, self._left_out = self.total, total, None, None
        with np.errstate(all="ignore"):  # a total's numbers may be anything
            is_finite = self.linear().is_finite
        if not is_finite:
            self.total, self._linear = before, None
            raise Malformed("the total makes a classifier that is not finite")

    def improve(self) -> None:
        """Do nothing: the sums of a client do not depend on what others share."""

    def acknowledge(self) -> None:
        """Note that these samples are in the total from now on."""
        self._is_in_total, self._left_out = True, None

    def start_over(self) -> None:
        """Begin anew: nothing of these samples is in the total."""
        self._is_in_total, self._left_out = False, None

    def sums(self) -> Doubles:
        """Add up this client's samples by class, exactly."""
        return add_up(lift(self.vectors), self.labels, self.classes)

    def release(self, round: int, space: str) -> Release:
        """Release this client's exact sums."""
        return as_release(self.sums(), round, space)

    def linear(self) -> Linear:
        """The current classifier: all clients', or this client's own while there is no other client."""
        if self._linear is None:
            self._linear = self.alone() if self.total is None else self._read(self.total)
        return self._linear

    def own_scores(self, linear: Linear) -> Floats:
        """A classifier's scores of this client's samples (n, C)."""
        return linear(self.vectors)

    def alone(self) -> Linear:
        """The classifier of this client's samples alone, whatever others have shared."""
        if self._alone is None:
            self._alone = self._read(None)
        return self._alone

    def leave_one_out(self) -> tuple[Hits, Hits]:
        """Which own samples (n,) classifiers get right that have not seen them: all clients', and this client's.

        Each is made without a tenth of the samples, as one for each sample would take long.
        """
        if self._left_out is None:
            left, (factor, _) = np.zeros((2, len(self.labels)), bool), scales(self.vectors.shape[1])
            for turn in range(min(FOLDS, len(self.labels)) if len(self.labels) > 1 else 0):
                out = np.arange(len(self.labels)) % FOLDS == turn
                rest = Discriminant(self.vectors[~out], self.labels[~out], self.classes, personal=self.personal)
                total = self.total
                if total is not None and self._is_in_total:
                    shown = add_up(self.vectors[out].astype(np.float64) * factor, self.labels[out], self.classes)
                    counts = np.bincount(self.labels[out], minlength=self.classes)
                    total = total._replace(vectors=total.vectors - shown, counts=total.counts - counts)
                made = rest._read(total), rest.alone()
                for row, linear in zip(left, made, strict=True):
                    row[out] = linear(self.vectors[out]).argmax(axis=1) == self.labels[out]
            self._left_out = left[0], left[1]
        return self._left_out

    def state(self) -> dict[str, Any]:
        """All that a model of the same samples needs to continue to the same bits."""
        return {"total": None if self.total is None else list(self.total), "in_total": self._is_in_total}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        kept, self._linear, self._left_out = state["total"], None, None
        self._is_in_total = bool(state.get("in_total", kept is not None))
        self.total = None if kept is None else Sums(np.asarray(kept[0]), np.asarray(kept[1]), *kept[2:])

    def _read(self, total: Sums | None) -> Linear:
        """Make the classifier of a total; None: of own samples alone."""
        factor, _ = scales(self.vectors.shape[1])
        own, labels = self.vectors.astype(np.float64) * factor, self.labels
        sizes = np.bincount(labels, minlength=self.classes).astype(np.float64)  # (C,)
        white = self._whiten(own, labels, sizes)
        means = add_up(own, labels, self.classes) @ white.forward / np.maximum(sizes, 1.0)[:, None]  # (C, d)
        precision, shares = np.broadcast_to(sizes[:, None], means.shape), sizes / sizes.sum()
        if total is not None:
            told, precise, noisy = _read_means(total, white)
            trust = noisy * sizes[:, None] if self.personal else 0.0 * noisy
            precision = precise + trust
            means = (precise * told + trust * means) / precision
            shares = _read_shares(total, shares if self.personal else None)
        seen = precision > 0
        errors = np.divide(1.0, precision, out=np.full_like(means, math.inf), where=seen)

        shares = shares.clip(RAREST)  # (C,)
        middle = shares @ means / shares.sum()
        apart = means - middle
        excess = np.where(seen, apart**2 - errors, 0.0)  # the differences of means beyond those by errors alone
        real = np.maximum(shares @ excess, LEAST)  # (d,)
        apart *= real / (real + errors)
        weights, offset = apart @ white.forward.T, np.log(shares) - (apart**2).sum(axis=1) / 2
        made = weights * factor, middle @ white.back / factor, offset
        return Linear(*(np.ascontiguousarray(each, np.float32) for each in made))

    def _whiten(self, own: Doubles, labels: Integers, sizes: Doubles) -> Whitened:
        """Find the directions in which this client's samples (n, d) scatter by 1 around their classes' means."""
        if self._whitened is None:
            around = own - (add_up(own, labels, self.classes) / np.maximum(sizes, 1.0)[:, None])[labels]
            count, dimension = own.shape
            scatter = around.T @ around / max(count - int((sizes > 0).sum()), 1)
            usual = float(scatter.diagonal().mean()) or 1 / dimension
            shrunk = dimension / (dimension + OWN * count)
            strength, directions = np.linalg.eigh((1 - shrunk) * scatter + shrunk * usual * np.eye(dimension))
            root = np.sqrt(strength)
            self._whitened = Whitened(directions / root, (directions * root).T, strength)
        return self._whitened


def _read_means(total: Sums, white: Whitened) -> tuple[Doubles, Doubles, Doubles]:
    """The classes' means in whitened directions, their precision, and the share of noise in their errors."""
    _, constant = scales(total.vectors.shape[1])
    counts = np.maximum(total.counts, max(FEWEST, math.sqrt(total.variance) / constant))[:, None]  # (C, 1)
    noise = total.variance / white.strength / counts**2  # (C, d)
    return total.vectors @ white.forward / counts, 1 / (1 / counts + noise), noise / (noise + 1 / counts)


def _read_shares(total: Sums, own: Doubles | None) -> Doubles:
    """The shares of the classes (C,), of own samples as far as counts are noise."""
    counts, (_, constant) = total.counts.clip(0), scales(total.vectors.shape[1])
    told: Doubles = counts / max(counts.sum(), FEWEST)
    if own is None:
        return told
    noise = len(counts) * total.variance / constant**2
    trust = float(noise / (noise + counts.sum() ** 2 + LEAST))
    return (1 - trust) * told + trust * own
