"""The learner of CS: a client's samples in a space, and the classifier that all clients make together. It is NumPy.

Some samples are held out: they never leave in any form, and tell the client whether the others help it. A coin of
each sample decides, from its own bytes and a secret of the client's. So no sample's part in what leaves depends on
which others there are, or how many: with a budget, that is what makes ε true.
"""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from repshare.config import Policy
from repshare.errors import ConfigError, DataError
from repshare.learner import Learner
from repshare.measures import Description, Doubles, Record, Score, View, count_hits
from repshare.randomness import derive
from repshare.sharing import wire
from repshare.sharing.parts import BESIDE
from repshare.sharing.representations import Floats, Integers, Release, may_share, nothing
from repshare.sharing.sums import lift
from repshare.sharing.task import Task
from repshare.space import choose
from repshare.space.agreement import Agreement
from repshare.space.discriminant import Discriminant
from repshare.space.dual import Dual
from repshare.space.exposure import Exposure
from repshare.space.inspection import Findings, check, inspect
from repshare.space.model import OWN_MIX, Hits, Linear, SpaceModel, as_probabilities
from repshare.space.own_mix import expect_own
from repshare.space.space import as_array

if TYPE_CHECKING:
    from repshare.samples import Setup

FEWEST_HELD = 10  # fewer held-out samples tell nothing
MOST_LEFT_OUT = 1000  # samples of which each is left out in turn, where fewer are held out
TOGETHER, ALONE = "together", "alone"  # the classifier in use: everybody's, or the client's own
CERTAIN = 1.64  # standard deviations: one-sided, 5 %
READ_AT_ONCE = 250  # samples
FILE = "classifier.safetensors"


class SpaceLearner(Learner):
    """A client's samples in the space, and its part in the classifier."""

    samples: Any  # `Samples`, or anything like them: see `__init__`
    secret: bytes
    norm_bound = math.inf  # vectors of a space are never longer than √d

    def __init__(
        self,
        samples: Any,
        policy: Policy,
        agreement: Agreement,
        *,
        classes: int | None = None,
        name: str = "client",
        seed: int = 0,
        alone: bool = False,
        secret: bytes | None = None,
        options: Any = None,
        weights: Doubles | None = None,
    ) -> None:
        """`samples` are `Samples`, or anything with their labels (n,), length, `batch` and `in_order`.

        `secret` decides which samples are held out. Default: it follows from the seed and the name. `classes`: by
        default as many as the agreement names, else as there are labels. `weights`: how much each sample counts (n,),
        beside its class; others do not know, so that nothing may leave then.
        """
        self.samples, self.policy, self.agreement, self.name, self.options = samples, policy, agreement, name, options
        labels = as_array(samples.labels)
        self.classes = classes or len(agreement.class_names) or int(labels.max()) + 1
        if (wrong := np.flatnonzero((labels < 0) | (labels >= self.classes))).size:
            raise DataError(
                f"sample {wrong[0]} has label {labels[wrong[0]]}; labels must be 0 to {self.classes - 1} (classes)"
            )
        policy.check_chosen(len(labels), self.classes)
        by_class = agreement.scale_weights(self.classes)
        self.weights = weights if by_class is None else by_class[labels] * (1.0 if weights is None else weights)
        self.dimension, self.space_name = agreement.space.dimension, agreement.name
        self.class_names = agreement.class_names
        self.secret = secret or derive(seed, name, "held out").to_bytes(8)
        if agreement.inputs is not None:
            agreement.check_range(*self._find_span(), name)
        # With a budget each sample by itself: the last bits of a vector may depend on the others of its batch.
        vectors, seconds = agreement.embed(samples, at_once=policy.epsilon is None)
        started = time.perf_counter()
        self.used_rows, self.held_rows = self._divide(labels)
        self.held = vectors[self.held_rows], labels[self.held_rows]
        self._to_share = vectors[self.used_rows], labels[self.used_rows], self.used_rows
        self.hidden: frozenset[int] = frozenset()
        self.model = self.make_model(*self._to_share[:2], alone=alone)
        self._holds_out = len(self.held_rows) >= FEWEST_HELD
        left_out = bool(policy.prefer_own) and len(self.used_rows) <= MOST_LEFT_OUT
        tells = not alone and (self._holds_out or left_out)
        self._judged: tuple[Linear, tuple[Hits, Hits]] | None = None
        self._adjusted: tuple[Linear, Linear] | None = None
        self.by_itself: Linear | None = self.model.alone() if tells else None
        self._earlier_seconds = seconds + time.perf_counter() - started
        self.representation = agreement.representation(samples)
        is_safe = alone or agreement.is_simulated or policy.epsilon  # nothing leaves, or not without noise
        if not (is_safe or policy.share_inputs or self.representation.shares_inputs):  # the last is refused anyway
            check(self.inspect(), agreement.space, images=self._sees_images)

    @classmethod
    def open(cls, given: "Setup") -> Self:
        """Make the learner of a client: in the space given, or the usual one for its samples."""
        space = given.space or choose((), next(given.samples.in_order(1))[0], 0)
        agreement = space if isinstance(space, Agreement) else Agreement(space)
        return cls(
            given.samples, agreement.adapt(given.policy), agreement, classes=given.classes, name=given.name,
            seed=given.seed, alone=given.alone, secret=given.secret, options=given.options,
        )  # fmt: skip

    def make_model(self, vectors: Floats, labels: Integers, *, alone: bool) -> SpaceModel:
        """Make the classifier's model of these samples."""
        if self.agreement.loss == "discriminant":
            return Discriminant(vectors, labels, self.classes, personal=not self.policy.sums_only)
        fewest = 1 if alone else self.policy.fewest
        return Dual(
            vectors, labels, self.classes, shrinkage=self.agreement.shrinkage, alone=alone, fewest=fewest,
            weights=None if self.weights is None else self.weights[self.used_rows],
        )  # fmt: skip

    def train(self) -> Record:
        """Improve this client's part against the total that was collected last."""
        linear, labels = self.model.linear(), self.model.labels
        scores = self.model.own_scores(linear).astype(np.float64)
        together, alone = self._judge(linear)
        in_use, self.gains = self.in_use, self.compare_classes()
        gap = self.model.improve()
        seconds, self._earlier_seconds = self._earlier_seconds, 0.0
        is_stuck = gap is not None and not math.isfinite(gap)
        return Record(
            ce=_cross_entropy(scores, labels),
            train_accuracy=float((scores.argmax(axis=1) == labels).mean()),
            gap=gap,
            held_out=None if together is None else float(together.mean()),
            held_out_alone=None if alone is None else float(alone.mean()),
            doubt=self._doubt(together, alone),
            in_use=in_use,
            trouble="1 steps were not finite and left out" if is_stuck else None,
            seconds=seconds,
        )

    def release(self, round: int) -> bytes:
        """This client's part of the classifier, or nothing while it is of too few samples."""
        if self.guard is not None:
            release = self.guard.release(lift(self.model.vectors), self.model.labels, round)
        elif not self.shares_any:
            none = nothing(self.dimension + BESIDE)
            release = Release(round, none, none, space=self.space_name)
        else:
            release = self.model.release(round, self.space_name)
        return wire.encode_release(release, self.policy.precision or "fp16")

    def acknowledge(self) -> None:
        """Note that the last release is in the total from now on."""
        self.model.acknowledge()

    def start_over(self) -> None:
        """Begin anew with a first part: the last ones were left out of the total."""
        self.model.start_over()

    def absorb(self, body: bytes) -> None:
        """Continue from this total."""
        self.model.absorb(self.agreement.read(body, self.classes))

    def marks(self) -> frozenset[bytes]:
        """A mark of each sample that counts in what is shared: a keyed hash, which tells nothing without the key."""
        batches, known = self.samples.in_order(READ_AT_ONCE), [""] * len(self.samples)
        marks = [mark for _, mark in _toss(batches, known, self.secret)]
        return frozenset(marks[row] for row in self.used_rows.tolist())

    @property
    def shares_any(self) -> bool:
        """Whether the classes in the sums have enough samples. If no class has, all train, and nothing leaves."""
        counts = np.bincount(self.model.labels)
        return bool(counts[counts > 0].min() >= self.policy.fewest)

    def left_out_classes(self) -> dict[int, int]:
        """The classes of which no sample takes part, having too few, and how many these are."""
        labels = as_array(self.samples.labels)
        allowed = labels[may_share(labels, self.policy)]
        found, taken = (np.bincount(each, minlength=self.classes) for each in (allowed, labels[self.used_rows]))
        return {label: int(found[label]) for label in np.flatnonzero((found > 0) & (taken == 0)).tolist()}

    def classifier(self) -> Linear:
        """The current classifier: all clients'; with `prefer_own`, this client's own where that is better."""
        if self.by_itself is not None and self.in_use == ALONE:
            return self.by_itself
        return self._expect_own(self.model.linear())

    def _expect_own(self, linear: Linear) -> Linear:
        """With `own_mix`, the same classifier for the client's own class shares, once for each."""
        if not self._expects_own:
            return linear
        if self._adjusted is None or self._adjusted[0] is not linear:
            vectors, labels = self.held if self._holds_out else self._to_share[:2]
            counts = np.bincount(as_array(self.samples.labels), minlength=self.classes)
            self._adjusted = linear, expect_own(linear, counts, vectors, labels)
        return self._adjusted[1]

    @property
    def _expects_own(self) -> bool:
        return self.policy.own_mix and self.model.total is not None

    @property
    def in_use(self) -> str | None:
        """With `prefer_own`, whose classifier the current one is: TOGETHER or ALONE."""
        if not self.policy.prefer_own:
            return None
        alone = self.model.total is None or self._doubt(*self._judge(self.model.linear())) is not None
        return ALONE if alone else TOGETHER

    def hide(self, classes: frozenset[int]) -> bool:
        """Share no sample of these classes from now on, and those of all other classes again."""
        if classes == self.hidden:
            return False
        vectors, labels, rows = self._to_share
        shown = ~np.isin(labels, list(classes))
        if not shown.any():
            raise ConfigError(
                f"{self.name} has samples only of classes that too few others have: nothing may be shared"
            )
        self.hidden, self.used_rows, total = classes, rows[shown], self.model.total
        self.model, self._judged = self.make_model(vectors[shown], labels[shown], alone=False), None
        self.model.absorb(total)
        return True

    def scores(self, samples: Any) -> Floats:
        """The current classifier's score for each of these samples and class (n, C)."""
        return self.agreement.scores(self.classifier(), samples)

    def probabilities(self, scores: Doubles | Floats) -> Doubles:
        """Turn scores into probabilities (n, C). With squared loss they are rough."""
        adjusted = self._expects_own and self.in_use != ALONE
        return as_probabilities(scores, self.agreement.loss, logarithms=adjusted)

    def evaluate(self, samples: Any) -> Score:
        """Count how many of these samples the current classifier gets right."""
        return count_hits(self.scores(samples), as_array(samples.labels))

    def view(self, samples: Any) -> View:
        """These samples' vectors in the space, and the current classifier."""
        linear, (vectors, _) = self.classifier(), self.agreement.embed(samples)
        return View(vectors, linear.weights, linear.offset - linear.weights @ linear.centre)

    def shared_counts(self) -> Integers:
        """The number of samples of each class in the sums (C,)."""
        return np.bincount(self.model.labels, minlength=self.classes)

    def single_samples(self) -> list[int]:
        """None, unless there is one sample: every row is an average over all samples."""
        labels: list[int] = self.model.labels.tolist()
        return labels if len(labels) == 1 and self.policy.fewest == 1 else []

    def files(self, round: int) -> dict[str, bytes]:
        """The current classifier, with its agreement: see `repshare.load_classifier`."""
        total = self.model.total
        samples = len(self.model.labels) if total is None else int(total.samples)
        arrays, agreement = self.classifier()._asdict(), self.agreement.describe()
        in_use = OWN_MIX if self._expects_own and self.in_use != ALONE else self.in_use
        body = wire.encode_classifier(arrays, agreement=agreement, round=round, samples=samples, in_use=in_use)
        return {FILE: body}

    def state(self) -> dict[str, Any]:
        """All that another learner of the same samples needs to continue to the same bits."""
        return {"dual": self.model.state(), "used": self.used_rows, "hidden": sorted(self.hidden)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        self.hide(frozenset(state.get("hidden", ())))
        if not np.array_equal(state.get("used", np.arange(len(self.samples))), self.used_rows):
            raise ValueError("other samples were held out, or there were other samples")
        self.model.load_state(state["dual"])

    def describe(self) -> Description:
        """What it shares. A budget does not cover figures, so that with one there are none."""
        figures = ("test_accuracy", "train_accuracy", "held_out", "held_out_alone", "in_use", "gap")
        linear = self.model.linear()
        return Description(
            self.representation,
            self.policy.precision or "fp16",
            () if self.guard is not None else figures,
            f"the space {self.agreement.space.name}",
            sum(each.size for each in linear),
        )

    def compare_held_out(self) -> tuple[float | None, float | None]:
        """Accuracy on held-out samples of the classifier in hand, and of this client's own."""
        together, alone = self._judge(self.model.linear())
        if together is None or alone is None:
            return None, None
        return float(together.mean()), float(alone.mean())

    @property
    def behind(self) -> float | None:  # type: ignore[override]
        """The samples behind the total in hand, this client's among them."""
        return None if self.model.total is None else float(self.model.total.samples)

    @property
    def enough(self) -> int:  # type: ignore[override]
        """Rounds after which little changes while the others stay the same."""
        return 1 if self.model.total is None else self.model.enough

    def task(self, **values: Any) -> Task:
        """The task of clients with this agreement, which says all of it but how releases are combined."""
        return self.agreement.task(self.classes)

    def exposure(self, behind: Callable[[int], float]) -> Exposure | None:
        """What a release shows to whoever sees it with the releases of so many samples; with a budget, no rule is."""
        if self.guard is not None:
            return None
        sums = self.agreement.loss == "discriminant"
        return Exposure(self.dimension, self.classes, behind(len(self.used_rows)) * self.evenness, sums=sums)

    @property
    def evenness(self) -> float:
        """How many samples of equal weight hide one as well as these do, as a share of their number."""
        if self.weights is None:
            return 1.0
        own = self.weights[self.used_rows]
        return float(own.sum() ** 2 / len(own) / np.square(own).sum())

    def preview(self) -> dict[str, Any]:
        """The agreement, what of it is unusual, and what the space makes of these samples."""
        return {
            "agreement": self.agreement.describe(),
            "unusual": self.unusual(),
            "tried": self.inspect()._asdict(),
            "held_out": len(self.held_rows),
            "left_out": self.left_out_classes(),
        }

    def inspect(self) -> Findings:
        """Try the space on the samples that count in what is shared."""
        take = self.samples.batch
        return inspect(self.model.vectors, self.agreement.vectors, lambda rows: take(self.used_rows[rows])[0])

    def unusual(self) -> dict[str, tuple[Any, Any]]:
        """What of the agreement differs from the package's own choice for these samples."""
        span = (0.0, 0.0) if self.agreement.space.name == "backbone" else self._find_span()
        return self.agreement.unusual(*span, images=self._sees_images)

    @property
    def _sees_images(self) -> bool:
        return np.ndim(self.samples.batch(np.arange(1))[0]) == 4

    def _judge(self, linear: Linear) -> tuple[Hits | None, Hits | None]:
        """Which held-out samples are right together, and which alone; of too few, the same of all samples in turn."""
        if self.by_itself is None or self.model.total is None:
            return None, None
        if not self._holds_out:
            return self._leave_out(linear)
        vectors, labels = self.held
        both = self._expect_own(linear), self.by_itself
        together, alone = (each(vectors).argmax(axis=1) == labels for each in both)
        return together, alone

    def _leave_out(self, linear: Linear) -> tuple[Hits, Hits]:
        if self._judged is None or self._judged[0] is not linear:
            self._judged = linear, self.model.leave_one_out()
        return self._judged[1]

    def compare_classes(self) -> tuple[Score, Score] | None:
        """The own samples that are right together and alone, by class, each left out in turn.

        None: there are no others yet, there are too many samples, or nobody asks for `prefer_own`.
        """
        if not self.policy.prefer_own or self.model.total is None or len(self.used_rows) > MOST_LEFT_OUT:
            return None
        labels, total = self.model.labels, np.bincount(self.model.labels, minlength=self.classes)
        together, alone = self._leave_out(self.model.linear())
        return (
            Score(np.bincount(labels[together], minlength=self.classes), total),
            Score(np.bincount(labels[alone], minlength=self.classes), total),
        )

    def _doubt(self, together: Hits | None, alone: Hits | None) -> str | None:
        """What speaks against the others: more samples lost than gained, beyond chance (McNemar's exact test, 5 %).

        Where samples are left out in turn, classes count the same: who has few samples of a class has most to gain
        there. A single class says nothing, as its classifier alone is always right.
        """
        if together is None or alone is None:
            return None
        lost, gained = alone & ~together, together & ~alone
        if self._holds_out:
            differ = int((lost | gained).sum())
            chances = sum(math.comb(differ, count) for count in range(int(lost.sum()), differ + 1))
            is_worse = 20 * chances < 2**differ  # exact: a few samples would pass a normal distribution too often
        else:
            sizes = np.bincount(self.model.labels)
            weights = 1 / sizes[self.model.labels]
            surplus, spread = weights[lost].sum() - weights[gained].sum(), np.square(weights[lost | gained]).sum()
            is_worse = bool(surplus > CERTAIN * math.sqrt(spread)) and np.count_nonzero(sizes) > 1
        if not is_worse:
            return None
        return (
            f"other clients make it worse: of {len(alone)} {self.judged_on} {100 * together.mean():.1f} % right with "
            f"them, {100 * alone.mean():.1f} % alone"
        )

    @property
    def judged_on(self) -> str:  # type: ignore[override]
        """The samples that tell whether others help."""
        return "held-out samples" if self._holds_out else "samples left out in turn"

    def _find_span(self) -> tuple[float, float]:
        """The least and the largest of the inputs."""
        batches = [inputs for inputs, _ in self.samples.in_order(READ_AT_ONCE)]
        if any(isinstance(inputs, Mapping) for inputs in batches):
            raise DataError(f"the task's inputs are one tensor; those of {self.name} are not")
        return min(float(b.min()) for b in batches), max(float(b.max()) for b in batches)

    def _divide(self, labels: Integers) -> tuple[Integers, Integers]:
        """Choose the samples that count in what is shared, and those that are held out.

        Without a budget, the latter are a fixed number, those with the smallest coins; none, where they are too few to
        tell anything. With a budget, each sample's coin decides by itself: how many there are is nothing to be seen.
        """
        policy, allowed = self.policy, may_share(labels, self.policy)
        count = int(policy.held_out * len(allowed))
        held = np.zeros(len(allowed), bool)
        if policy.held_out and (policy.epsilon is not None or count >= FEWEST_HELD):
            known = [repr((may, None)) for may in allowed.tolist()]  # None: levels of their own, once
            coins = np.array([coin for coin, _ in _toss(self.samples.in_order(READ_AT_ONCE), known, self.secret)])
            held = coins < policy.held_out if policy.epsilon is not None else np.argsort(np.argsort(coins)) < count
        used = np.flatnonzero(allowed & ~held)
        if policy.epsilon is None:  # with a budget, nothing that is shared may depend on their number
            enough = np.bincount(labels[used], minlength=1)[labels[used]] >= policy.fewest
            used = used[enough] if enough.any() else used  # nothing leaves of these: see `shares_any`
        if not len(used):
            raise ConfigError(
                f"{self.name} has no sample that may be shared: "
                "see share_samples, share_classes, held_out, minimum_count"
            )
        return used, np.flatnonzero(held)


def _toss(batches: Iterable[tuple[Any, Any]], known: Sequence[str], secret: bytes) -> Iterator[tuple[float, bytes]]:
    """Yield a coin of each sample, from 0 to 1: of its bytes, its label, what else is known of it, and a secret.

    Beside it stands the hash that it is made of.

    Copies that are alike in all of that have the coins of the first copy, the second and so on, whichever is which:
    one copy more or less is one coin more or less.
    """
    copies, place = Counter[bytes](), 0
    for batch, labels in batches:
        given = [batch[name] for name in sorted(batch)] if isinstance(batch, Mapping) else [batch]
        arrays = [np.ascontiguousarray(as_array(each)) for each in given]
        for row, label in enumerate(labels.tolist()):
            told = hashlib.blake2b(repr((label, known[place])).encode(), key=secret)
            for array in arrays:
                told.update(repr((array.dtype.str, array.shape[1:])).encode() + array[row].tobytes())
            place, own = place + 1, told.digest()
            copies[own] += 1
            coin = hashlib.blake2b(own + copies[own].to_bytes(8), key=secret, digest_size=8).digest()
            yield int.from_bytes(coin) / 2**64, coin


def _cross_entropy(scores: Doubles, labels: Integers) -> float:
    below = scores - scores.max(axis=1, keepdims=True)
    return float((np.log(np.exp(below).sum(axis=1)) - below[np.arange(len(labels)), labels]).mean())
