"""Membership inference on sequences of releases of a common space: who is in the sum, from what the relay sees?

The attacker knows the space, images of the same kind (never those of clients), and the label of each candidate. With
squared loss it also knows how much a sample counts: a sample's weight α is what the classifier that its client
improved is wrong by, and both the classifier before a release (the total) and the one after it (the release) are
seen. So a sample in a sum has the part z = α ⊗ (ψ, 1) in it, known for any candidate. All of a release's rows
together, less what the public images' parts let expect, are a sum of n independent parts z − E z. The score is the
likelihood ratio of a sum with the candidate's part in it and one without, for Gaussians with the public parts'
covariance: no score is better where parts are Gaussian. Its AUC is then Φ(√(D / 2n)), with D numbers that vary.

Several releases are rows of the same parts, with more α. What tells them apart is small, and is known up to what fp16
rounds, so that directions of α that hardly vary are left out.

Where rows are too long for such a covariance, or members of a group have classifiers of their own that nobody sees,
other attacks are better: each release by itself, or what needs no α at all. The best is chosen on other draws.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, stats

from repshare.sharing.parts import Part
from repshare.space.solution import START, Solution, SolutionKey, solve

Array = NDArray[np.float64]
Labels = NDArray[np.int64]

MOST_NUMBERS = 2600  # the largest covariance that is estimated as a whole
ROUNDED = 2.0**-11 / math.sqrt(6)  # of a number, by fp16, on average
WEAK = 1e-3  # of the mean variance, added to each: what public samples say of the weakest directions is mostly chance
BETTER = 0.9  # another guess of the momentum must lower the squared error to this share


class Points(NamedTuple):
    """Points in the space, with their labels."""

    vectors: Array  # (m, d)
    labels: Labels  # (m,)

    def part(self, which: NDArray[np.bool_] | slice) -> "Points":
        """Return some of them."""
        return Points(self.vectors[which], self.labels[which])


class Seen(NamedTuple):
    """What the relay sees of a client, or of a group's total, from release to release."""

    rows: Array  # (R, C, d + 1)  Σ α (ψ, 1) over the samples behind it
    centre: Array  # (d,)  Σ ψ
    counts: Array  # (C,)  samples of each class
    totals: tuple[Part | None, ...]  # all clients' total, as collected before each release
    everyone: int  # samples of all clients
    share: float  # one client's share of them

    @property
    def samples(self) -> float:
        """The samples behind what is seen."""
        return float(self.counts.sum())

    def until(self, releases: int) -> "Seen":
        """Return the first releases."""
        return self._replace(rows=self.rows[:releases], totals=self.totals[:releases])


class Attack(NamedTuple):
    """A way to score candidates."""

    kind: str
    """"joint": the likelihood of all rows together; "last": of those of the last release; "added": of each release's
    rows as if they did not depend on each other, added up; "row": the direction of the rows of the candidate's class,
    whatever it weighs in them; "span": the directions that all rows span; "loss": how little a candidate weighs in the
    first release."""
    kept: float = 1.0
    """joint: the least variance of a direction of α that is used, of the largest. added: how far guessed weights are
    believed. span: the share of directions."""


ATTACKS = (
    Attack("joint", 0.1),
    Attack("added", 0.3),
    Attack("row"),
    Attack("span", 0.3),
    Attack("span"),
    Attack("loss"),
    Attack("joint", 1e-3),
    Attack("last", 0.1),
)
FIRST = ATTACKS[:6]  # those that differ after one release
KNOWING = ATTACKS[:2]  # those that can make use of known members


class Public:
    """What the attacker knows of samples in the space, from samples that are nobody's."""

    def __init__(self, samples: Points, classes: int) -> None:
        self.samples, self.classes = samples, classes
        self.means = np.stack([_mean(samples.vectors[samples.labels == label]) for label in range(classes)])  # (C, d)
        rest = samples.vectors - self.means[samples.labels]
        self.whitening = _whiten(rest.T @ rest / len(rest))  # (d, d) of the scatter within classes

    def rest(self, points: Points) -> Array:
        """Whitened differences of points from the means of their classes (m, d)."""
        return (points.vectors - self.means[points.labels]) @ self.whitening


def area(members: Array, strangers: Array) -> float:
    """The share of pairs in which a member scores above a stranger; ties count half."""
    above = stats.mannwhitneyu(members, strangers).statistic
    return float(above / (len(members) * len(strangers)))


def score(
    attack: Attack,
    seen: Seen,
    public: Public,
    candidates: Points,
    known: Points | None = None,
    weights: Sequence[Array] | None = None,
    rest: Array | None = None,
) -> Array:
    """Return a number for each candidate (m,): the higher, the more likely it is in the sums.

    Args:
        attack: The attack.
        seen: What the relay sees.
        public: What the attacker knows of such samples.
        candidates: The samples to tell members of.
        known: Points of which the attacker knows that they are in the sums (attacks of KNOWING only).
        weights: As `guess_weights` returns them, where they are known already.
        rest: The same of `Public.rest` of the candidates.
    """
    rest = public.rest(candidates) if rest is None else rest
    if attack.kind == "span":
        return _score_span(attack.kept, seen, public, rest)
    if attack.kind == "row":
        return _score_rows(seen, public, candidates.labels, rest)
    sets = [public.samples, candidates, *([] if known is None else [known])]
    guessed = guess_weights(seen, sets) if weights is None else weights
    weights = [each[:, : len(seen.rows)] for each in guessed]  # each (m, R, C)
    if attack.kind == "loss":
        return np.asarray(-np.square(weights[1][:, 0]).sum(axis=1))
    if attack.kind == "last":
        seen = seen._replace(rows=seen.rows[-1:])
        weights = [each[:, -1:] for each in weights]
    if attack.kind == "added" or (public.classes - 1) * seen.rows.shape[2] + len(seen.centre) > MOST_NUMBERS:
        return _score_each(attack.kept if attack.kind == "added" else 1.0, seen, public, sets, weights, rest)
    return _score_jointly(attack.kept, seen, public, sets, weights)


def guess_weights(seen: Seen, sets: Sequence[Points]) -> list[Array]:
    """Return the weights α (m, R, C) that samples have if they are in the sums, for each set; the first is public.

    A client solves its own problem against the total: α = y − f(ψ) with the classifier f that it reaches, which the
    rows of its release are. Then it extrapolates (Nesterov), by a momentum that follows from the round; if it has just
    started over, by none: of the two the one is taken that fits what public samples let expect. For a group's total,
    whose members each reach a classifier of their own, f is the mean of these.
    """
    (releases, classes, width), count = seen.rows.shape, seen.samples
    d, rows = width - 1, seen.rows / count
    centre = seen.centre / count
    spread = max(d - float(centre @ centre), 0.01 * d)
    first = _less(rows[0], centre) / (START * spread)
    truth = [np.eye(classes)[each.labels] for each in sets]
    reached = [y - seen.counts / count - (each.vectors - centre) @ first.T for y, each in zip(truth, sets, strict=True)]
    weights, before, momentum = [[each] for each in reached], rows[0], _next_momentum(1.0)
    for number in range(1, releases):
        total = seen.totals[number]
        if total is None:
            raise ValueError(f"no total was collected before release {number + 1}")
        view = solve(total, SolutionKey(seen.everyone, None))
        shared, scaled = view.unit / view.wanted, view.scale / view.used
        following = _next_momentum(momentum)
        usual = (momentum - 1) / following * (1 - seen.share)
        tried = [_step(seen, number, view, sets, truth, before, speed) for speed in (usual, 0.0)]
        kept = 1 if tried[1].error < BETTER * tried[0].error else 0
        step, speed = tried[kept], (usual, 0.0)[kept]
        momentum = following if kept == 0 else _next_momentum(1.0)
        for own, now, last in zip(weights, step.weights, reached, strict=True):
            own.append(((1 + speed) * now - speed * last * scaled) * shared)
        reached, before = [each * shared for each in step.weights], step.rows * shared
    return [np.stack(each, axis=1) for each in weights]


class _Step(NamedTuple):
    rows: Array  # (C, d + 1)  before extrapolation, a sample
    weights: list[Array]  # (m, C) of each set
    error: float  # relative to the expectation by public samples


def _step(
    seen: Seen, number: int, view: Solution, sets: Sequence[Points], truth: Sequence[Array], before: Array, speed: float
) -> _Step:
    """The clients' step in a release, extrapolated by so much."""
    scaled, count = view.scale / view.used, seen.samples
    now, last = seen.rows[number] / count * (view.wanted / view.unit), seen.rows[number - 1] / count * scaled
    rows = (now + speed * before * scaled) / (1 + speed)
    centre, d = np.asarray(view.linear.centre, np.float64), rows.shape[1] - 1
    change = _less(rows - last, centre) * seen.everyone / view.scale
    weights, linear = [], view.linear
    for y, (vectors, _) in zip(truth, sets, strict=True):
        scores = np.asarray(linear(vectors.astype(np.float32)), np.float64)
        weights.append(y - scores - (vectors - centre) @ change.T)
    expected = weights[0].T @ sets[0].vectors / len(sets[0].vectors)
    return _Step(rows, weights, float(np.square(rows[:, :d] - expected).sum()))


def _next_momentum(momentum: float) -> float:
    return (1 + math.sqrt(1 + 4 * momentum**2)) / 2


def _less(rows: Array, centre: Array) -> Array:
    """Return Σ α (ψ − μ) of rows Σ α (ψ, 1)."""
    return rows[:, :-1] - rows[:, -1:] * centre


def _score_jointly(kept: float, seen: Seen, public: Public, sets: Sequence[Points], weights: Sequence[Array]) -> Array:
    """Score by all rows together, in the directions of α in which public samples vary most."""
    rows, own = seen.rows.reshape(-1, seen.rows.shape[2]), [each.reshape(len(each), -1) for each in weights]  # (m, k)
    scatter = own[0].T @ own[0] / len(own[0])
    scatter += np.diag(np.square(rows).mean(axis=1) * ROUNDED**2 / seen.samples)
    room = (MOST_NUMBERS - len(seen.centre)) // rows.shape[1]
    turn = _whiten(scatter, least=kept)[:, -room:]  # (k, q)
    parts = [_multiply(each @ turn, points.vectors) for each, points in zip(own, sets, strict=True)]
    return _likelihood(np.concatenate([(turn.T @ rows).ravel(), seen.centre]), seen, parts, sets)


def _multiply(weights: Array, vectors: Array) -> Array:
    """Return α ⊗ (ψ, 1) and ψ, in a row (m, k (d + 1) + d): many, so in fp32."""
    longer = np.concatenate([vectors, np.ones((len(vectors), 1))], axis=1).astype(np.float32)
    parts = (weights.astype(np.float32)[:, :, None] * longer[:, None]).reshape(len(vectors), -1)
    return np.concatenate([parts, longer[:, :-1]], axis=1)


def _likelihood(found: Array, seen: Seen, parts: Sequence[Array], sets: Sequence[Points]) -> Array:
    """Return the log-likelihood ratios of candidates' parts in a sum: public ones, candidates', known ones."""
    labels = sets[0].labels
    means = np.stack([_mean(parts[0][labels == label]) for label in range(len(seen.counts))])
    public, candidates, *known = (each - means[own.labels] for each, own in zip(parts, sets, strict=True))
    residue = found - seen.counts @ means - sum(each.sum(axis=0) for each in known)
    white = _whiten(public.T @ public / len(public))
    candidates = candidates @ white
    free = seen.samples - sum(map(len, known))
    return np.asarray((candidates @ (residue @ white) - np.square(candidates).sum(axis=1) / 2) / free)


def _score_centre(seen: Seen, public: Public, rest: Array, count: float) -> Array:
    """Score by the mean of all samples, in which each counts alike."""
    residue = (seen.centre - seen.counts @ public.means) @ public.whitening
    return np.asarray((rest @ residue - np.square(rest).sum(axis=1) / 2) / count)


def _score_each(
    belief: float, seen: Seen, public: Public, sets: Sequence[Points], weights: Sequence[Array], rest: Array
) -> Array:
    """Score by each release's rows as if they were all that is seen, and by the centre; the mean of the releases."""
    known = sets[2:]
    free = seen.samples - sum(len(each.labels) for each in known)
    vectors, places = sets[0].vectors, [sets[0].labels == label for label in range(public.classes)]
    centre = seen._replace(
        centre=seen.centre - sum(each.vectors.sum(0) - public.means[each.labels].sum(0) for each in known)
    )
    lengths, found = np.square(rest).sum(axis=1), np.zeros(len(rest))
    for number, rows in enumerate(seen.rows[:, :, :-1]):
        mine = [each[:, number] for each in weights]  # (m, C)
        means = np.stack([mine[0][at].T @ vectors[at] / max(at.sum(), 1) for at in places])  # (C, C, d)
        residue = rows - np.tensordot(seen.counts, means, 1)
        for own, points in zip(mine[2:], known, strict=True):
            residue = residue - own.T @ points.vectors + means[points.labels].sum(axis=0)
        varied = mine[1] / (np.square(mine[0]).mean(axis=0).clip(1e-12) * free)
        found += ((varied @ (residue @ public.whitening)) * rest).sum(axis=1) - (varied * mine[1]).sum(
            axis=1
        ) * lengths / 2
    return found / len(seen.rows) + _score_centre(centre, public, rest, free)


def _score_rows(seen: Seen, public: Public, labels: Labels, rest: Array) -> Array:
    """Score by the direction of the rows of each candidate's class, beside those of class means, and by the centre.

    It needs no α, which nobody knows where many members each have a classifier of their own.
    """
    usual, _ = np.linalg.qr((public.means @ public.whitening).T)  # (d, C)
    beside, found = rest - (rest @ usual) @ usual.T, np.zeros(len(rest))
    for rows in seen.rows[:, :, :-1]:
        white = rows @ public.whitening
        white -= (white @ usual) @ usual.T
        found += (beside * white[labels]).sum(axis=1) / np.linalg.norm(white).clip(1e-12)
    centre = rest @ ((seen.centre - seen.counts @ public.means) @ public.whitening)
    return np.asarray(found / found.std().clip(1e-12) + centre / centre.std().clip(1e-12))


def _score_span(share: float, seen: Seen, public: Public, rest: Array) -> Array:
    """Score by how much of a whitened vector, less its class's mean, lies in the leading directions of all rows."""
    rows = np.concatenate([seen.rows[:, :, :-1].reshape(-1, len(seen.centre)), seen.centre[None]])
    rows /= np.linalg.norm(rows, axis=1, keepdims=True).clip(1e-12)
    axes = np.linalg.svd(rows @ public.whitening, full_matrices=False)[2]
    leading = axes[: max(1, int(share * len(axes)))]
    return np.asarray(np.square(rest @ leading.T).sum(axis=1) / np.square(rest).sum(axis=1))


def score_means(
    sums: Array, counts: Array, variance: float, public: Public, candidates: Points, *, drawn: bool = False
) -> Array:
    """Score candidates by sums of vectors of one class each: class means, observations, or sums with noise.

    Args:
        sums: The sums (k, d) for each class, (C, k, d).
        counts: Points in each, (C, k); 0: there is none.
        variance: Of the noise on each number.
        public: What the attacker knows of such samples.
        candidates: The samples to tell members of.
        drawn: Each sum is of samples drawn at random: a candidate need not be in it.
    """
    found = np.zeros(len(candidates.labels))
    for label in range(public.classes):
        at, own = candidates.labels == label, public.samples.vectors[public.samples.labels == label]
        rest, ratios = own - public.means[label], []
        scatter = rest.T @ rest / max(len(rest), 1)
        for each, count in zip(sums[label], counts[label], strict=True):
            if count:
                white = _whiten(count * scatter + variance * np.eye(len(scatter)))
                parts = (candidates.vectors[at] - public.means[label]) @ white
                residue = (each - count * public.means[label]) @ white
                ratios.append(parts @ residue - np.square(parts).sum(axis=1) / 2)
        if ratios:
            found[at] = np.logaddexp(0, np.stack(ratios)).sum(axis=0) if drawn else np.sum(ratios, axis=0)
    return found


def _mean(vectors: Array) -> Array:
    return vectors.mean(axis=0) if len(vectors) else np.zeros(vectors.shape[1])


def _whiten(scatter: Array, least: float | None = None) -> Array:
    """Return a map (d, q) to numbers that vary by 1 each, independently: all, or directions of at least this variance.

    Each number of the scatter counts alike, unless it hardly varies at all.
    """
    sizes = np.sqrt(np.diag(scatter).astype(np.float64))
    sizes = sizes.clip(WEAK * sizes.max(), None)
    alike = scatter / sizes[:, None] / sizes
    if least is None:
        np.fill_diagonal(alike, np.diag(alike) + WEAK)
        lower = linalg.cholesky(alike, lower=True)
        return np.asarray(linalg.solve_triangular(lower, np.eye(len(lower)), lower=True).T / sizes[:, None])
    values, axes = np.linalg.eigh(alike)
    axes, values = axes[:, values > least * values[-1]], values[values > least * values[-1]]
    return np.asarray(axes / np.sqrt(values) / sizes[:, None])
