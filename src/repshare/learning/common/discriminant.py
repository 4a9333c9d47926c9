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
import torch
from numpy.typing import NDArray
from torch import Tensor

from repshare.errors import Malformed
from repshare.learning.common.reading import Linear
from repshare.sharing.representations import Floats
from repshare.sharing.sums import Sums, add_up, lift, scales

OWN = 0.5  # of a sample: what each own sample counts against shrinking Σ
FEWEST = 1.0  # samples of a class in a total: noise may leave none
RAREST = 1e-6  # share of a class of which there seem to be no samples
LEAST = 1e-12  # scatter, so that nothing is divided by 0

Array = NDArray[np.float64]


class Whitened(NamedTuple):
    """Directions in which a client's own samples scatter by 1 within their class."""

    forward: Array  # (d, d)  vectors @ forward are whitened
    back: Array  # (d, d)  the inverse
    strength: Array  # (d,)  scatter in each direction before


class Discriminant:
    """One client's samples in the space, and the sums of all clients."""

    def __init__(self, vectors: Tensor, labels: Tensor, classes: int, *, personal: bool) -> None:
        """`personal`: let own samples make up for noise in the total."""
        self.vectors, self.labels, self.classes, self.personal = vectors, labels, classes, personal
        self.total: Sums | None = None
        self._alone: Linear | None = None
        self._kept: Linear | None = None
        self._whitened: Whitened | None = None

    def absorb(self, total: Sums | None) -> None:
        """Use this total from now on; None: no other client has shared any. Refuses one that makes no classifier."""
        before, self.total, self._kept = self.total, total, None
        with np.errstate(all="ignore"):  # its numbers may be anything
            linear = self.linear()
        if not all(bool(tensor.isfinite().all()) for tensor in linear):
            self.total, self._kept = before, None
            raise Malformed("the total makes a classifier that is not finite")

    def improve(self) -> None:
        """Do nothing: the sums of a client do not depend on what others share."""

    def publish(self) -> None:
        """Do nothing: no total depends on what this client has shared before."""

    def lifted(self) -> Floats:
        """Return what stands for this client's samples in sums."""
        return lift(self.vectors.cpu().numpy())

    def sums(self) -> Array:
        """Return this client's exact sums."""
        return add_up(self.lifted(), self.labels.cpu().numpy(), self.classes)

    def linear(self) -> Linear:
        """Return the current classifier: all clients', or this client's own while there is no other client."""
        if self._kept is None:
            self._kept = self.by_itself() if self.total is None else self._read(self.total)
        return self._kept

    def scores(self, linear: Linear) -> Tensor:
        """Return a classifier's scores of this client's samples (n, C)."""
        return linear(self.vectors)

    def by_itself(self) -> Linear:
        """Return the classifier of this client's samples alone, whatever others have shared."""
        if self._alone is None:
            self._alone = self._read(None)
        return self._alone

    def state(self) -> dict[str, Any]:
        """Return what another of the same samples needs to continue to the same bits."""
        total = None
        if self.total is not None:
            total = [*(torch.from_numpy(np.array(array)) for array in self.total[:2]), *self.total[2:]]
        return {"total": total}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        total, self._kept = state["total"], None
        self.total = None if total is None else Sums(total[0].numpy(), total[1].numpy(), *total[2:])

    def _read(self, total: Sums | None) -> Linear:
        """Return the classifier of a total; None: of own samples alone."""
        factor, _ = scales(self.vectors.shape[1])
        own, labels = self.vectors.cpu().double().numpy() * factor, self.labels.cpu().numpy()
        sizes = np.bincount(labels, minlength=self.classes).astype(np.float64)  # (C,)
        white = self._whiten(own, labels, sizes)
        means = self._add(own, labels) @ white.forward / np.maximum(sizes, 1.0)[:, None]  # (C, d)
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
        excess = np.where(seen, apart**2 - errors, 0.0)  # of how means differ, over what errors alone would do
        real = np.maximum(shares @ excess, LEAST)  # (d,)
        apart *= real / (real + errors)
        weights, offset = apart @ white.forward.T, np.log(shares) - (apart**2).sum(axis=1) / 2
        made = weights * factor, middle @ white.back / factor, offset
        return Linear(*(torch.from_numpy(np.ascontiguousarray(each)).to(self.vectors) for each in made))

    def _whiten(self, own: Array, labels: NDArray[np.int64], sizes: Array) -> Whitened:
        """Return the directions in which this client's samples (n, d) scatter by 1 around their classes' means."""
        if self._whitened is None:
            around = own - (self._add(own, labels) / np.maximum(sizes, 1.0)[:, None])[labels]
            count, dimension = own.shape
            scatter = around.T @ around / max(count - int((sizes > 0).sum()), 1)
            usual = float(scatter.diagonal().mean()) or 1 / dimension
            shrunk = dimension / (dimension + OWN * count)
            strength, directions = np.linalg.eigh((1 - shrunk) * scatter + shrunk * usual * np.eye(dimension))
            root = np.sqrt(strength)
            self._whitened = Whitened(directions / root, (directions * root).T, strength)
        return self._whitened

    def _add(self, own: Array, labels: NDArray[np.int64]) -> Array:
        """Return own samples added up by class (C, d)."""
        sums = np.zeros((self.classes, own.shape[1]))
        np.add.at(sums, labels, own)
        return sums


def _read_means(total: Sums, white: Whitened) -> tuple[Array, Array, Array]:
    """Return the classes' means in whitened directions, their precision, and the share of noise in their errors."""
    _, constant = scales(total.vectors.shape[1])
    counts = np.maximum(total.counts, max(FEWEST, math.sqrt(total.variance) / constant))[:, None]  # (C, 1)
    noise = total.variance / white.strength / counts**2  # (C, d)
    return total.vectors @ white.forward / counts, 1 / (1 / counts + noise), noise / (noise + 1 / counts)


def _read_shares(total: Sums, own: Array | None) -> Array:
    """Return the shares of the classes (C,), of own samples as far as counts are noise."""
    counts, (_, constant) = total.counts.clip(0), scales(total.vectors.shape[1])
    told: Array = counts / max(counts.sum(), FEWEST)
    if own is None:
        return told
    noise = len(counts) * total.variance / constant**2
    trust = float(noise / (noise + counts.sum() ** 2 + LEAST))
    return (1 - trust) * told + trust * own
