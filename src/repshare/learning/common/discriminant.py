"""A linear discriminant in a common space: everybody's class sums, read with a client's own second moments.

One release is enough, so that noise is paid for once. From the sums of all clients follow the classes' means and the
common mean m. What is missing for a classifier, how vectors scatter within a class, each client takes from its own
samples: these are exact, and never leave. With D the class sums less m, M the scatter of all n samples (within classes
by one's own samples, between classes by D, as far as D is not noise), and noise of deviation σ on each number of D, the
classifier is an estimate of D M⁻¹ in each principal direction of M, of strength s:

    D · s / (s² + σ s + σ²)        which is D / s where s is well above the noise, and else near 0

A client with few samples does not see all directions. So M is shrunk towards equal strength in all of them, by
d / (d + n) for n own samples.

Then a client corrects it by its own samples: how far it trusts the common weights, and how much its own samples may add
to them, is what leaves each of its samples, had it not been there, the smallest error. A client that has no sample of
some class of the others does not: its own samples cannot tell where that class is.
"""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from repshare.errors import Malformed
from repshare.learning.common.reading import Linear
from repshare.sharing.representations import Floats
from repshare.sharing.sums import Sums, add_up, lift, scales

TRUSTS = (1.0, 0.7, 0.4, 0.2, 0.0)  # in the common weights
PENALTIES = (1000.0, 30.0, 10.0, 3.0, 1.0, 0.3, 0.1)  # on what a client's own samples add, in mean scatters
CERTAIN = 3.0  # deviations of its noise, from which a count is of real samples
MANY = 5.0  # deviations of the noise: a class of fewer samples counts as one of so many
FEWEST = 1.0  # samples of all clients: noise may leave none


class Discriminant:
    """One client's samples in the space, and the sums of all clients."""

    def __init__(self, vectors: Tensor, labels: Tensor, classes: int, *, personal: bool) -> None:
        """`personal`: correct the common classifier by one's own samples."""
        self.vectors, self.labels, self.classes, self.personal = vectors, labels, classes, personal
        self.targets = torch.nn.functional.one_hot(labels, classes).double()  # (n, C)
        self.total: Sums | None = None
        self._alone: Linear | None = None
        self._kept: Linear | None = None

    def absorb(self, total: Sums | None) -> None:
        """Use this total from now on; None: no other client has shared any. Refuses one that makes no classifier."""
        before, self.total, self._kept = self.total, total, None
        try:
            good = all(bool(tensor.isfinite().all()) for tensor in self.linear())
        except torch.linalg.LinAlgError:  # type: ignore[attr-defined]
            good = False
        if not good:
            self.total, self._kept = before, None
            raise Malformed("the total makes a classifier that is not finite")

    def improve(self) -> None:
        """Do nothing: the sums of a client do not depend on what others share."""

    def publish(self) -> None:
        """Do nothing: no total depends on what this client has shared before."""

    def lifted(self) -> Floats:
        """Return what stands for this client's samples in sums."""
        return lift(self.vectors.cpu().numpy())

    def sums(self) -> "np.ndarray[Any, np.dtype[np.float64]]":
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
            scale, own = self._scaled()
            mean, offset = own.mean(dim=0), self.targets.mean(dim=0)
            nothing = self.targets.new_zeros(self.classes, own.shape[1])
            weights = self._correct(own - mean, offset, nothing, torch.zeros_like(self.targets))
            self._alone = self._linear(weights, mean, offset, scale)
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

    def _read(self, total: Sums) -> Linear:
        scale, own = self._scaled()
        _, constant = scales(own.shape[1])
        sums, counts = (torch.from_numpy(np.array(each)).to(own) for each in total[:2])
        counts = counts.clamp_min(0.0)
        samples = counts.sum().clamp_min(FEWEST)
        mean, offset = sums.sum(dim=0) / samples, counts / samples
        between, centred = sums - counts[:, None] * mean, own - mean  # (C, d) D, and (n, d)
        scatter = self._scatter_within(own) * samples + _scatter_between(between, counts, total.variance)  # (d, d)  M
        shrunk, usual = own.shape[1] / (own.shape[1] + len(own)), scatter.diagonal().mean()
        scatter *= 1 - shrunk
        scatter.diagonal().add_(shrunk * usual)
        strength, directions = torch.linalg.eigh(scatter)
        noise = math.sqrt(total.variance)
        filtered = strength / (strength.square() + noise * strength + noise**2)
        weights = (between @ directions * filtered) @ directions.T  # (C, d)
        unknown = (self.targets.sum(dim=0) == 0) & (counts > CERTAIN * math.sqrt(total.variance) / constant)
        if self.personal and not unknown.any():  # own samples would speak against a class of which there are none
            said = ((centred @ directions).square() * filtered).sum(dim=1, keepdim=True)  # by a sample, of its scores
            without = centred @ weights.T - said * (self.targets - offset)  # as if it had not been in the sums
            weights = self._correct(centred, offset, weights, without)
        return self._linear(weights, mean, offset, scale)

    def _scatter_within(self, own: Tensor) -> Tensor:
        """Return how this client's samples scatter around the means of their classes, for one sample (d, d)."""
        sizes = self.targets.sum(dim=0)
        means = self.targets.T @ own / sizes.clamp_min(1.0)[:, None]
        around = own - means[self.labels]
        return around.T @ around / max(len(own) - int((sizes > 0).sum()), 1)

    def _correct(self, centred: Tensor, offset: Tensor, weights: Tensor, scores: Tensor) -> Tensor:
        """Return weights between the common ones, which give these scores, and the client's own (C, d)."""
        values, vectors = torch.linalg.eigh(centred.T @ centred)
        along, usual = centred @ vectors, float(values.mean().clamp_min(1e-12))
        best, least = weights, math.inf
        for trust in TRUSTS if weights.any() else TRUSTS[-1:]:
            residual = self.targets - offset - trust * scores  # (n, C)
            projected = along.T @ residual
            for penalty in PENALTIES:
                inverse = 1 / (values.clamp_min(0) + penalty * usual)
                added = (projected * inverse[:, None]).T @ vectors.T  # (C, d)
                leverage = (along.square() * inverse).sum(dim=1, keepdim=True).clamp(max=1 - 1e-9)
                error = float(((residual - centred @ added.T) / (1 - leverage)).square().sum())
                if error < least:
                    best, least = trust * weights + added, error
        return best

    def _scaled(self) -> tuple[float, Tensor]:
        """Return the factor by which vectors are shorter in sums, and this client's own as they are there."""
        scale, _ = scales(self.vectors.shape[1])
        return scale, self.vectors.double() * scale

    def _linear(self, weights: Tensor, mean: Tensor, offset: Tensor, scale: float) -> Linear:
        return Linear(*(each.to(self.vectors) for each in (weights * scale, mean / scale, offset)))


def _scatter_between(between: Tensor, counts: Tensor, variance: float) -> Tensor:
    """Return how the classes' means scatter, for all samples, as far as it is more than noise (d, d)."""
    noise = (len(between) - 1) * between.shape[1] * variance
    true = max(0.0, 1 - noise / max(float(between.square().sum()), 1e-12))
    fewest = MANY * max(math.sqrt(variance), 1.0)
    return true * (between / counts.clamp_min(fewest)[:, None]).T @ between
