"""The learner of a common classifier: dual variables of a client's samples in the common space.

Some samples are held out: they never leave in any form, and tell the client whether the others help it. A coin of
each sample decides, from its own bytes and a secret of the client's. So no sample's part in what leaves depends on
which others there are, or how many: with a budget, that is what makes ε true.
"""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import Tensor, nn

from repshare.config import Level, Policy
from repshare.errors import ConfigError, DataError
from repshare.learning.common.discriminant import Discriminant
from repshare.learning.common.dual import Dual, as_probabilities
from repshare.learning.common.reading import Linear
from repshare.learning.features import ROWS, Made, passes_on
from repshare.learning.measures import Losses, Score, View, count_hits
from repshare.learning.models import Network
from repshare.learning.randomness import derive
from repshare.learning.samples import EVALUATION_BATCH, Samples
from repshare.learning.training import Learner
from repshare.sharing.representations import may_share
from repshare.spaces import Backbone
from repshare.spaces.agreement import Common
from repshare.spaces.algebra import to_numpy
from repshare.spaces.inspection import Findings, check, inspect

FEWEST_HELD = 10  # fewer held-out samples tell nothing
SLACK = 1.001  # for what fp32 makes of a length
CERTAIN = 1.64  # standard deviations: one-sided, 5 %

_embedded: "WeakKeyDictionary[Samples, dict[str, Tensor]]" = WeakKeyDictionary()  # test samples, which clients share
_tested: "WeakKeyDictionary[Samples, _Tested]" = WeakKeyDictionary()  # the last classifier that was tested on them


class _Tested(NamedTuple):
    vectors: Tensor
    linear: Linear
    score: Score


class CommonLearner(Learner):
    """A client's samples in the space, with their dual variables, next to its network."""

    no_loss = "a common classifier is not trained in batches"

    def __init__(
        self,
        model: nn.Module | Network,
        samples: Samples,
        policy: Policy,
        *,
        seed: int,
        common: Common,
        alone: bool = False,
        secret: bytes | None = None,
        levels: Sequence[Level] | None = None,
        **given: Any,
    ) -> None:
        """`secret` decides which samples are held out. Default: it follows from the seed and the name."""
        self.common, self.space_name = common, common.name
        super().__init__(model, samples, policy, seed=seed, **given)
        started = time.perf_counter()
        if common.inputs is not None:
            common.check_range(*_find_span(samples, self.name), self.name)
        # With a budget each sample by itself: the last bits of a vector may depend on the others of its batch.
        vectors, spared = embed(common, samples, EVALUATION_BATCH if policy.epsilon is None else 1)
        labels = samples.labels.to(samples.device)
        self.secret = secret or derive(seed, self.name, "held out").to_bytes(8)
        used, held = _divide(self, levels)

        self.dual = self._begin(vectors[used], labels[used], alone=alone)
        self.held, self.held_rows, self.used_rows = (vectors[held], labels[held]), held, used
        self.by_itself: Linear | None = None  # the classifier of this client's samples alone, where there is a choice
        if not alone and len(held) >= FEWEST_HELD:
            self.by_itself = self.dual.by_itself()
        self.preparation = time.perf_counter() - started + spared
        hidden = alone or common.memory or policy.epsilon  # nothing leaves, or not this machine, or not without noise
        if not (hidden or policy.share_inputs or self.made.shares_inputs):  # the last is refused anyway
            check(self.inspect(), common.space, images=self._sees_images)

    def _equip(self, seed: int) -> None:
        """Do nothing: no network is trained."""

    def _examine(self, samples: Samples) -> Made:
        """Describe what a vector of the space is made of. A backbone is the user's; other maps are this package's."""
        space = self.common.space
        if not isinstance(space, Backbone):
            return Made(space.dimension, 0, 0, is_inputs=False, source=f"the space {space.name}")
        example, _ = samples.batch(torch.arange(min(ROWS, len(samples))))
        layers, parameters = space.size
        return Made(space.dimension, layers, parameters, passes_on(space, example))

    def inspect(self) -> Findings:
        """Return what the space makes of the samples that count in what is shared."""
        common = self.common
        with torch.inference_mode():
            return inspect(
                to_numpy(self.dual.vectors),
                lambda inputs: to_numpy(common.space(common.prepare(inputs))),
                lambda rows: self.samples.batch(self.used_rows[rows])[0],
            )

    def unusual(self) -> dict[str, tuple[Any, Any]]:
        """Return what of the agreement differs from the package's own choice for these samples."""
        span = (0.0, 0.0) if isinstance(self.common.space, Backbone) else _find_span(self.samples, self.name)
        return self.common.unusual(*span, images=self._sees_images)

    @property
    def _sees_images(self) -> bool:
        return np.ndim(self.samples.batch(torch.arange(1))[0]) == 4

    def marks(self) -> frozenset[bytes]:
        """Return a mark of each sample that counts in what is shared: a keyed hash, which tells nothing without it."""
        known = [""] * len(self.samples)
        marks = [mark for _, mark in _toss(self.samples, known, self.secret)]
        return frozenset(marks[row] for row in self.used_rows.tolist())

    @property
    def shares_any(self) -> bool:
        """Return whether each class in the sums has enough samples; where none has, all learn, and nothing leaves."""
        counts = np.bincount(self.dual.labels.cpu().numpy())
        return bool(counts[counts > 0].min() >= self.policy.fewest)

    def left_out_classes(self) -> dict[int, int]:
        """Return the classes of which no sample takes part, having too few, and how many these are."""
        labels, size = self.samples.labels.numpy(), self.network.classes
        allowed = labels[may_share(labels, self.policy)]
        found, taken = (np.bincount(each, minlength=size) for each in (allowed, labels[self.used_rows.numpy()]))
        return {label: int(found[label]) for label in np.flatnonzero((found > 0) & (taken == 0)).tolist()}

    def _begin(self, vectors: Tensor, labels: Tensor, *, alone: bool) -> Dual | Discriminant:
        """Return what learns from these samples."""
        classes = self.network.classes
        if self.common.loss == "discriminant":
            return Discriminant(vectors, labels, classes, personal=not self.policy.common_only)
        fewest = 1 if alone else self.policy.fewest
        return Dual(vectors, labels, classes, shrinkage=self.common.shrinkage, alone=alone, fewest=fewest)

    @property
    def dimension(self) -> int:
        """The length of what this client represents a sample by."""
        return self.common.space.dimension

    def train(self) -> Losses:
        """Improve this client's dual variables against the total that was collected last."""
        linear = self.dual.linear()
        scores = self.dual.scores(linear)
        loss = nn.functional.cross_entropy(scores.double(), self.dual.labels)
        gap = self.dual.improve()
        self.left_out["steps"] += gap is not None and not math.isfinite(gap)
        together, alone = self._judge(linear)
        return Losses(
            ce=float(loss),
            kd=None,
            disc=None,
            bound=None,
            accuracy=float((scores.argmax(1) == self.dual.labels).double().mean()),
            gap=gap,
            held_out=None if together is None else float(together.double().mean()),
            held_out_alone=None if alone is None else float(alone.double().mean()),
            doubt=_doubt(together, alone),
        )

    def snapshot(self) -> Any:
        """Return nothing: a step whose numbers are not finite is not made, see `Dual.improve`."""

    def take_back(self, before: Any) -> bool:
        """Return that nothing had to be undone."""
        return False

    def publish(self) -> None:
        """Note that the part that was shared is in the total from now on."""
        self.dual.publish()

    def classifier(self) -> Linear:
        """Return the current classifier: all clients'; with `keep_to_self`, this client's own where that is better."""
        linear = self.dual.linear()
        if self.policy.keep_to_self and self.by_itself is not None and _doubt(*self._judge(linear)) is not None:
            return self.by_itself
        return linear

    def evaluate(self, samples: Samples) -> Score:
        """Count how many of these samples the current classifier gets right. Clients of one total share it."""
        vectors, linear, last = self.embed_once(samples), self.classifier(), _tested.get(samples)
        if last is None or last.vectors is not vectors or not _same(last.linear, linear):
            score = count_hits(linear(vectors).argmax(1).cpu(), samples.labels, self.network.classes)
            last = _tested[samples] = _Tested(vectors, linear, score)
        return last.score

    def scores(self, samples: Samples) -> Tensor:
        """Return the current classifier's score for each of these samples and class (n, C)."""
        return self.classifier()(self.embed_once(samples)).cpu()

    def as_probabilities(self, scores: Tensor) -> Tensor:
        """Return probabilities (n, C). With squared loss they are rough."""
        return as_probabilities(scores, self.common.loss)

    def look(self, samples: Samples) -> View:
        """Return these samples' vectors in the space, and the current classifier."""
        linear = self.classifier()
        bias = linear.offset - linear.weights @ linear.centre
        tensors = (self.embed_once(samples), linear.weights, bias)
        return View(*(tensor.float().cpu().numpy().copy() for tensor in tensors))

    def state(self) -> dict[str, Any]:
        """Return all that another learner of the same kind needs to continue to the same bits."""
        return {"dual": self.dual.state(), "used": self.used_rows}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        if not torch.equal(state.get("used", torch.arange(len(self.samples))), self.used_rows):
            raise ValueError("other samples were held out, or there were other samples")
        self.dual.load_state(state["dual"])

    def embed_once(self, samples: Samples) -> Tensor:
        """Return the vectors of test samples, which clients of one process share."""
        kept, key = _embedded.setdefault(samples, {}), self.space_name
        if key not in kept:
            kept.clear()  # of another run
            kept[key], _ = embed(self.common, samples)
        return kept[key]

    def judge(self) -> tuple[float | None, float | None]:
        """Return the accuracy on held-out samples of the common classifier in hand, and of this client's own."""
        together, alone = self._judge(self.dual.linear())
        if together is None or alone is None:
            return None, None
        return float(together.double().mean()), float(alone.double().mean())

    def _judge(self, linear: Linear) -> tuple[Tensor | None, Tensor | None]:
        """Return which held-out samples are right together, and which alone."""
        if self.by_itself is None or self.dual.total is None:
            return None, None
        vectors, labels = self.held
        together, alone = (each(vectors).argmax(1) == labels for each in (linear, self.by_itself))
        return together, alone


def _same(one: Linear, other: Linear) -> bool:
    return one is other or all(map(torch.equal, one, other))


def _find_span(samples: Samples, name: str) -> tuple[float, float]:
    """Return the least and the largest of the inputs."""
    batches = [inputs for inputs, _ in samples.in_order(EVALUATION_BATCH)]
    if not all(isinstance(inputs, Tensor) for inputs in batches):
        raise DataError(f"the task's inputs are one tensor; those of {name} are not")
    return min(float(b.min()) for b in batches), max(float(b.max()) for b in batches)


def embed(common: Common, samples: Samples, size: int = EVALUATION_BATCH) -> tuple[Tensor, float]:
    """Return the samples' vectors (n, d), `size` at a time, and the seconds that a memory of them has spared."""
    space, memory, spared, pieces = common.space, common.memory if size > 1 else None, 0.0, []
    with torch.inference_mode():
        for batch, _ in samples.in_order(size):
            inputs = common.prepare(batch)
            pieces.append(space(inputs) if memory is None else memory.embed(space, inputs))
            spared += 0.0 if memory is None else memory.spared
    vectors = torch.cat(pieces)
    if vectors.shape[1] != space.dimension:
        raise DataError(f"the space {space.name} gave {vectors.shape[1]} numbers for a sample, not {space.dimension}")
    longest, bound = float(vectors.norm(dim=1).max()), math.sqrt(space.dimension)
    if not longest <= bound * SLACK:
        raise DataError(f"the space {space.name} gave a vector of length {longest:.4g}; its bound is √d = {bound:.4g}")
    return vectors.clone(), spared  # an ordinary tensor again


def _divide(learner: CommonLearner, levels: Sequence[Level] | None) -> tuple[Tensor, Tensor]:
    """Return which samples count in what is shared, and which are held out.

    Without a budget, these are a fixed number, those with the smallest coins; none, where they are too few to tell
    anything. With a budget, each sample's coin decides by itself: how many there are is nothing to be seen.
    """
    policy, allowed = learner.policy, may_share(learner.samples.labels.numpy(), learner.policy)
    count = int(policy.held_out * len(allowed))
    held = np.zeros(len(allowed), bool)
    if policy.held_out and (policy.epsilon is not None or count >= FEWEST_HELD):
        known = [*map(repr, zip_longest(allowed.tolist(), levels or ()))]
        coins = np.array([coin for coin, _ in _toss(learner.samples, known, learner.secret)])
        held = coins < policy.held_out if policy.epsilon is not None else np.argsort(np.argsort(coins)) < count
    used = np.flatnonzero(allowed & ~held)
    if policy.epsilon is None:  # with a budget, how many there are is nothing to go by
        labels = learner.samples.labels.numpy()[used]
        enough = np.bincount(labels, minlength=1)[labels] >= policy.fewest
        used = used[enough] if enough.any() else used  # of which nothing leaves: see `shares_any`
    if not len(used):
        raise ConfigError(
            f"{learner.name} has no sample that may be shared: "
            "see share_samples, share_classes, held_out, minimum_count"
        )
    return torch.from_numpy(used), torch.from_numpy(np.flatnonzero(held))


def _toss(samples: Samples, known: Sequence[str], secret: bytes) -> Iterator[tuple[float, bytes]]:
    """Yield a coin of each sample, from 0 to 1: of its bytes, its label, what else is known of it, and a secret.

    Beside it stands the hash that it is made of.

    Copies that are alike in all of that have the coins of the first copy, the second and so on, whichever is which:
    one copy more or less is one coin more or less.
    """
    copies, place = Counter[bytes](), 0
    for batch, labels in samples.in_order(EVALUATION_BATCH):
        tensors = [batch] if isinstance(batch, Tensor) else [batch[name] for name in sorted(batch)]
        arrays = [each.cpu().contiguous().numpy() for each in tensors]
        for row, label in enumerate(labels.tolist()):
            told = hashlib.blake2b(repr((label, known[place])).encode(), key=secret)
            for array in arrays:
                told.update(repr((array.dtype.str, array.shape[1:])).encode() + array[row].tobytes())
            place, own = place + 1, told.digest()
            copies[own] += 1
            coin = hashlib.blake2b(own + copies[own].to_bytes(8), key=secret, digest_size=8).digest()
            yield int.from_bytes(coin) / 2**64, coin


def _doubt(together: Tensor | None, alone: Tensor | None) -> str | None:
    """Return what speaks against the others: more held-out samples lost than gained, beyond chance (McNemar)."""
    if together is None or alone is None:
        return None
    lost, gained = int((alone & ~together).sum()), int((together & ~alone).sum())
    if lost - gained <= CERTAIN * math.sqrt(lost + gained):
        return None
    shares = (100 * float(each.double().mean()) for each in (together, alone))
    return "other clients make it worse: of {} held-out samples {:.1f} % right with them, {:.1f} % alone".format(
        len(alone), *shares
    )
