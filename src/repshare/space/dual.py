"""The common classifier: a regularised linear classifier in a common space, on everybody's samples.

It minimises  Σᵢ ‖W (ψᵢ − μ) + b − yᵢ‖² / 2 + ρ τ / 2 · ‖W‖²  over the n samples of all clients. μ is the mean of their
vectors, τ the mean square of their distance from μ, and b follows from the shares of the classes.

The dual problem has a variable αᵢ (C numbers) for each sample, and W = Σᵢ αᵢ (ψᵢ − μ) / (ρ τ), which is the total of
clients' parts (see `parts`). A client holds the α of its own samples, and improves them against the W that it saw
last. This is CoCoA (Jaggi et al. 2014; Ma et al. 2015; Smith et al. 2018): it reaches the classifier of the pooled
data from any split.

A client with nᵤ of the n samples treats its own step as if it counted n / nᵤ times. The inverses of these factors add
up to 1, so that all clients may step at once. For parts of equal size, this is CoCoA's σ′ = number of clients. A step
is one linear solve. Each client extrapolates its own α (Nesterov) before it shares them: the total
stays the total of what was shared, also while others are absent. It does so the less, the larger its share of all
samples: clients that take turns, each of which sees what the others have just done, would otherwise overshoot.

Samples may have weights wᵢ up to 1, by their classes: term i of the sum counts wᵢ, μ and the shares of the classes are
weighted means, and ρ counts the mean weight, so that weights may be multiplied alike. αᵢ / wᵢ is what αᵢ is without.
"""

import math
from collections.abc import Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from repshare.errors import ConfigError, Malformed
from repshare.measures import Doubles
from repshare.sharing.parts import MOST_WEIGHT, SHRINKAGES, Part, as_release, count_samples, weigh_samples
from repshare.sharing.representations import Floats, Integers, Release
from repshare.space.model import Hits, Linear
from repshare.space.moments import Moments, check_room, suits_moments
from repshare.space.solution import Solution, SolutionKey, Total, elect, solve_own

GROWN = 2.0  # times its last value: a gap that grew so much stops momentum. Smaller growth is others' steps
ABSURD = 100.0  # a gap that honest totals do not make: theirs are below 3, and up to 25 just after another vote
VOTERS = 1000  # samples of a client, at most, that vote on shrinkage
ROUNDED = 1e-9  # of a square
FEWEST_ROUNDS = 20  # after a change of who takes part
MOST_ROUNDS = 100  # the same, where the gap does not become small
SMALL_GAP = 0.01  # from which on the classifier gets no better: docs/method.md, "when to stop"
PIECE = 4096  # columns of vectors that are multiplied at a time


class Variables(NamedTuple):
    """The dual variables of a client's samples, and what Nesterov's extrapolation needs."""

    alpha: Doubles  # (n, C)
    reached: Doubles  # (n, C)  the same before it was extrapolated
    shrinkage: float | None = None  # ρ that they were made for; None: they were made before any vote
    momentum: float = 1.0
    gap: float = math.inf  # the client's own gap when they were made


class Dual:
    """One client's samples in the space, and their dual variables: the `SpaceModel` of squared loss."""

    def __init__(
        self, vectors: Floats, labels: Integers, classes: int, *, shrinkage: float | None = None, alone: bool = False,
        fewest: int = 1, weights: Doubles | None = None,
    ) -> None:  # fmt: skip
        """Begin with α of 0 for vectors (n, d), none longer than √d, and their labels (n,).

        `shrinkage` is ρ / n; without one it is voted on. `alone`: no other client will share anything.
        `fewest`: no sample has more than 1 / fewest of the squared weights of a row. `weights` are the samples' in the
        loss (n,), above 0 and none above 1. Default: all are 1.
        """
        if shrinkage is not None and not 0 < shrinkage < math.inf:
            raise ConfigError(f"shrinkage must be above 0 and finite, not {shrinkage}")
        self.vectors, self.labels, self.fixed, self.is_alone, self.fewest = vectors, labels, shrinkage, alone, fewest
        self.targets = np.eye(classes)[labels]  # (n, C)
        self._given, self.weights = weights, np.ones((len(labels), 1)) if weights is None else weights[:, None]
        self._roots = np.sqrt(self.weights)  # (n, 1)
        zeros = np.zeros_like(self.targets)
        self.published = Variables(zeros, zeros)  # the variables in totals: every step begins here
        self.improved = self.published  # the variables that would be published next
        self.total: Total | None = None
        check_room(*vectors.shape)
        self._moments = Moments(vectors, weights) if suits_moments(*vectors.shape) else None
        paired = vectors if self._moments is None else vectors[:VOTERS]
        gram = _multiply(paired, paired)  # (n, n), or of voters only
        self._hits = self._vote(gram[:VOTERS, :VOTERS], SHRINKAGES)  # (n, len(SHRINKAGES))
        self._alone_hits: Hits | None = None
        self._gram: Doubles | None = gram if self._moments is None else None
        self._factor: tuple[tuple[float, float], Doubles] | None = None
        self._scored: tuple[Linear, Floats] | None = None
        self._counted: Part | None = None  # the fields of this client's part that do not depend on α

    def absorb(self, total: Total | None) -> None:
        """Use this total from now on; None: no other client has shared any. Refuses one that makes no classifier."""
        before, self.total = self.total, total
        with np.errstate(all="ignore"):  # a total's numbers may be anything
            is_finite = total is None or self._read(self.improved, testing=True).linear.is_finite
        if not is_finite:
            self.total = before
            raise Malformed("the total makes a classifier that is not finite")

    def improve(self) -> float:
        """Improve this client's α against the total. Returns its samples' part of the duality gap before, a sample.

        The step begins at the α that were published, which are those in the total: one that is never published is
        taken again. Where none can be made in floating-point numbers, α stay as they are, and the gap is infinite.
        If the total is implausible, α is reset to 0: adapting to a poisoned total would outlast the attacker.
        The first step uses these samples alone, even where there is a total: so first parts can be compared.
        """
        if self.total is not None and self._is_new:
            total, self.total = self.total, None
            try:
                gap = self.improve()
            finally:
                self.total = total
            if self.improved.alpha.any():  # else there is one class, which alone has nothing to tell apart
                return gap
        solution = self._read(self.published)
        alpha, before, _, momentum, last = self.published
        if solution.scale != solution.used:
            alpha, before = (each * (solution.scale / solution.used) for each in (alpha, before))  # the same part of W
        scores = self.own_scores(solution.linear).astype(np.float64)
        gap = self._gap(scores, alpha)
        if gap > ABSURD:
            zeros = np.zeros_like(self.targets)
            self.improved = Variables(zeros, zeros, solution.shrinkage and solution.unit, gap=gap)
            return gap
        try:
            reached = self._solve(solution, scores, alpha)
        except LinAlgError:
            reached = alpha + math.nan
        following = (1 + math.sqrt(1 + 4 * momentum**2)) / 2
        speed = (momentum - 1) / following * (1 - len(self.labels) / solution.samples)  # see the head of this file
        if gap > GROWN * last or float(((alpha - reached) * (reached - before)).sum()) > 0:
            following, speed = 1.0, 0.0  # momentum leads back or astray: start over
        extrapolated = _within_bounds(reached + speed * (reached - before))
        if solution.unit != solution.wanted:  # a release must mean the same after another vote
            extrapolated, reached = (each * (solution.unit / solution.wanted) for each in (extrapolated, reached))
            extrapolated = _within_bounds(extrapolated)
        if self.fewest > 1:
            extrapolated = _share_rows(extrapolated, self.fewest)
        if not (np.isfinite(extrapolated).all() and math.isfinite(gap)):
            self.improved = self.published
            return math.inf
        self.improved = Variables(extrapolated, reached, solution.shrinkage and solution.unit, following, gap)
        return gap

    @property
    def enough(self) -> int:
        """FEWEST_ROUNDS; more, where the gap does not become small."""
        return FEWEST_ROUNDS if self.improved.gap <= SMALL_GAP else MOST_ROUNDS

    def part(self) -> Part:
        """Average this client's samples, with the weights that `improve` found."""
        return self._average(self.improved)

    def release(self, round: int, space: str) -> Release:
        """Release this client's part; `acknowledge` says that it has arrived."""
        return as_release(self.part(), round, space)

    def acknowledge(self) -> None:
        """Note that the part is in the total from now on."""
        self.published = self.improved

    def start_over(self) -> None:
        """Begin anew: nothing of these samples is in the total."""
        zeros = np.zeros_like(self.targets)
        self.published = self.improved = Variables(zeros, zeros)

    @property
    def _is_new(self) -> bool:
        """Whether nothing of these samples has been published."""
        return self.published.shrinkage is None and not self.published.alpha.any()

    def linear(self) -> Linear:
        """The current classifier: all clients', or this client's own while there is no other client."""
        return self._read(self.improved, testing=True).linear

    def own_scores(self, linear: Linear) -> Floats:
        """A classifier's scores of this client's samples (n, C). Those of a total's are remembered."""
        if self.total is None:  # not shared with other clients, so not cached
            return linear(self.vectors)
        if self._scored is None or self._scored[0] is not linear:
            self._scored = linear, linear(self.vectors)
        return self._scored[1]

    def alone(self) -> Linear:
        """The classifier of this client's samples alone, whatever others have shared."""
        alone, zeros = copy(self), np.zeros_like(self.targets)  # the Gram matrix is the same
        alone.is_alone, alone.total, alone.published, alone.fewest = True, None, Variables(zeros, zeros), 1
        alone.improve()
        return alone.linear()

    def leave_one_out(self) -> tuple[Hits, Hits]:
        """Which own samples (n,) classifiers get right that have not seen them: all clients', and this client's.

        The others' parts stay as they are, and this client's is the best one for the rest of its samples.
        """
        if self._alone_hits is None:
            total = self.weights.sum()
            every, voters = (self.weights * self._hits).sum(axis=0) / total, total**2 / np.square(self.weights).sum()
            ρ = SHRINKAGES[elect(every, voters)] if self.fixed is None else self.fixed * len(self.labels)
            gram = _multiply(self.vectors, self.vectors) if self._gram is None else self._gram
            self._alone_hits = self._vote(gram, (ρ,))[:, 0]
        solution, alpha = self._read(self.published, testing=True), self.published.alpha
        scores = self.own_scores(solution.linear).astype(np.float64)
        if alpha.any():  # otherwise the total has no part of these samples
            kernel = self._centred(solution) * (len(self.labels) / solution.samples)
            inverse = np.linalg.inv(np.diag(1 / self.weights[:, 0]) + kernel)
            others = scores - kernel @ (alpha * (solution.scale / solution.used))
            scores = self.targets - inverse @ (self.targets - others) / inverse.diagonal()[:, None]
        return scores.argmax(axis=1) == self.labels, self._alone_hits

    def state(self) -> dict[str, Any]:
        """All that a model of the same samples needs to continue to the same bits."""
        total = None if self.total is None else list(self.total.part)
        return {"published": tuple(self.published), "improved": tuple(self.improved), "total": total}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        self.published, self.improved = (
            Variables(np.asarray(alpha), np.asarray(reached), *rest)
            for alpha, reached, *rest in (state["published"], state["improved"])
        )
        self.total = None
        if (kept := state["total"]) is not None:
            vectors, weights, shares, hits, centre = (np.asarray(each) for each in kept[:5])
            self.total = Total(Part(vectors, weights, shares, hits, centre, *kept[5:]))

    def _average(self, variables: Variables) -> Part:
        if self._counted is None:
            voters = min(len(self.labels), VOTERS)
            self._counted = count_samples(
                self.vectors, self.labels, self._hits, self.targets.shape[1], voters, self._given
            )
        return weigh_samples(self._counted, self.vectors, variables.alpha, variables.shrinkage)

    def _read(self, variables: Variables, *, testing: bool = False) -> Solution:
        """Solve the total in hand for a step from these variables or, with `testing`, for a test."""
        if self.total is None:
            own = self._average(variables)
            return solve_own(
                own, SolutionKey(own.samples, self.fixed, testing), variables.shrinkage, alone=self.is_alone
            )
        samples = self.total.samples + len(self.labels) * self._is_new
        return self.total.solution(SolutionKey(samples, self.fixed, testing))

    def _solve(self, solution: Solution, scores: Doubles, start: Doubles) -> Doubles:
        """Find the α that this client's samples would have, if all clients stepped alike."""
        right = self._residual(scores, start)
        if self._moments is not None:
            return start + self._roots * self._moments.solve(solution, right)
        solved: Doubles = cho_solve((self._factorise(solution), True), right, check_finite=False)
        return start + self._roots * solved

    def _residual(self, scores: Doubles, alpha: Doubles) -> Doubles:
        """How far each α is from the best for its scores, in units of the roots of weights (n, C)."""
        return self._roots * (self.targets - scores) - alpha / self._roots

    def _factorise(self, solution: Solution) -> Doubles:
        """Factorise I + gram, weighted (Cholesky). It changes when clients join, leave or change data."""
        key = solution.scale / solution.samples, solution.length
        if self._factor is None or self._factor[0] != key:
            matrix = self._centred(solution)
            matrix *= self._roots
            matrix *= self._roots.T
            matrix[np.diag_indices_from(matrix)] += 1.0
            factor, _ = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
            if self.is_alone:  # one step is all: leave the memory to other clients
                self._gram = None
                return np.asarray(factor)
            self._factor = key, np.asarray(factor)
        return self._factor[1]

    def _centred(self, solution: Solution) -> Doubles:
        """Inner products of this client's vectors, less the common centre, scaled for a step (n, n)."""
        beside = _multiply(self.vectors, solution.linear.centre[None])
        centred: Doubles = (_multiply(self.vectors, self.vectors) if self._gram is None else self._gram) - beside
        centred -= beside.T
        centred += solution.length
        centred *= solution.samples / len(self.labels) / solution.scale
        return centred

    def _gap(self, scores: Doubles, alpha: Doubles) -> float:
        """The gap of Fenchel and Young: 0 where each α is the best for its scores."""
        return float(np.square(self._residual(scores, alpha)).sum() / 2 / self.weights.sum())

    def _vote(self, gram: Doubles, candidates: Sequence[float]) -> Hits:
        """Which samples a classifier made without them gets right, for each candidate of shrinkage (n, candidates).

        Each sample is left out by itself. Beyond VOTERS samples, each one repeats the vote of one of the first VOTERS.
        """
        count = len(gram)
        spread = max(float(gram.diagonal().mean() - gram.mean()), 1e-9)
        roots = self._roots[:count]
        if self._given is not None:
            shares = self.weights[:count, 0] / self.weights[:count].sum()
            spread = max(float(shares @ gram.diagonal() - shares @ gram @ shares), 1e-9) * self.weights[:count].mean()
            gram = gram * roots * roots.T
        values, vectors = np.linalg.eigh(gram)
        hits = np.zeros((count, len(candidates)), np.bool_)
        for place, shrinkage in enumerate(candidates if count > 1 else ()):
            inverse = (vectors / (values.clip(0, None) + shrinkage * spread)) @ vectors.T
            inverse *= roots
            inverse *= roots.T
            ones = inverse.sum(axis=1, keepdims=True)
            inverse -= ones @ ones.T / ones.sum()  # the intercept is not shrunk
            alpha = inverse @ self.targets[:count]
            scores = self.targets[:count] - alpha / inverse.diagonal()[:, None].clip(1e-12, None)
            hits[:, place] = scores.argmax(axis=1) == self.labels[:count]
        return hits[np.arange(len(self.labels)) % count]


def _multiply(a: Floats, b: Floats) -> Doubles:
    """Compute a bᵀ in fp64, by pieces of columns in fp32: exact enough, and half the time.

    NumPy computes each product of a matrix with itself once.
    """
    product = np.zeros((len(a), len(b)))
    for start in range(0, a.shape[1], PIECE):
        product += a[:, start : start + PIECE] @ b[:, start : start + PIECE].T
    return product


def _within_bounds(alpha: Doubles) -> Doubles:
    """Bound α: no weight is above the most that may leave."""
    return alpha.clip(-MOST_WEIGHT, MOST_WEIGHT)


def _share_rows(alpha: Doubles, fewest: int) -> Doubles:
    """Bound α (n, C) so that no sample has more than 1 / fewest of the squares of its row of a part."""
    if len(alpha) < fewest:  # nothing leaves of these
        return alpha
    squares = np.sort(np.square(alpha), axis=0)[::-1]  # (n, C), the largest first
    above = squares[: fewest - 1]  # squares that may be cut
    rest = squares.sum(axis=0) - np.concatenate([np.zeros((1, alpha.shape[1])), above.cumsum(axis=0)])  # (fewest, C)
    levels = rest / (fewest - np.arange(len(rest)))[:, None]  # the level of squares if so many are cut to it
    fits = squares[: len(levels)] <= levels * (1 + ROUNDED)
    cut = np.where(fits.any(axis=0), fits.argmax(axis=0), len(levels) - 1)
    most = np.sqrt(np.take_along_axis(levels.clip(0), cut[None], axis=0)[0])  # (C,)
    return alpha.clip(-most, most)
