"""`CommonSpaceClassifier`: a client of CS in scikit-learn's manner, for tables and vectors, without PyTorch.

It is the same space, the same dual variables and the same wire as other clients', so that all may share one board.
"""

from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from repshare.config import FEWEST
from repshare.errors import ConfigError
from repshare.learning.common.dual import Dual, as_probabilities
from repshare.sharing import wire
from repshare.sharing.parts import as_release, read_total
from repshare.sharing.task import Task
from repshare.spaces import Fourier
from repshare.spaces.agreement import Common, check_usual, read_common
from repshare.spaces.algebra import to_numpy
from repshare.spaces.exposure import Exposure
from repshare.spaces.inspection import check, inspect

Doubles = NDArray[np.float64]


class CommonSpaceClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier in a common space: of one's own samples after `fit`, of everybody's after releases and totals.

    Parties that give the same arguments, or the same task, learn one classifier together. Of a party's samples, only
    what `partial_release` returns leaves it.

    Examples:
        >>> here = CommonSpaceClassifier(classes=("healthy", "ill"), low=(0, 40), high=(100, 200)).fit(X, y)
        >>> board = Board(here.task_)
        >>> board.accept("here", here.partial_release())
        >>> here.absorb(board.teach("here", Wants(0, 0)))
    """

    def __init__(
        self,
        *,
        classes: Sequence[Any] | None = None,
        low: float | Sequence[float] = -4.0,
        high: float | Sequence[float] = 4.0,
        features: int = 2048,
        width: float = 0.5,
        seed: int = 0,
        shrinkage: float | None = None,
        task: Task | None = None,
        accept_space: bool = False,
        precision: str = "fp16",
        accept_exposure: bool = False,
    ) -> None:
        """Create a classifier. All but `precision` must be the same for all parties.

        Args:
            classes: The labels of all parties, in an order that they agree on. Default: those in y, or the task's.
            low: The least value of each column, or of all: known bounds, not one party's minimum. Default: for columns
                that were standardised alike everywhere.
            high: The largest value of each column, or of all. Values beyond a bound count as the bound.
            features: d: the number of random cosines that a row becomes.
            width: The distance up to which two rows are alike, where 1 is the distance of two random points.
            seed: The seed of the cosines.
            shrinkage: ρ / n, how strongly it is regularised. Default: by the parties' votes.
            task: The task of a relay, in place of all arguments above: `RelayExchange(…).describe().agreed`.
            accept_space: Whether the task's space may be another than this package's own choice.
            precision: The number format of releases: "fp16" or "fp32".
            accept_exposure: Whether a release may show who is among the samples: see docs/what-leaves.md.
        """
        self.classes, self.low, self.high, self.features, self.width = classes, low, high, features, width
        self.seed, self.shrinkage, self.task, self.precision = seed, shrinkage, task, precision
        self.accept_space, self.accept_exposure = accept_space, accept_exposure

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from these samples alone. What was exchanged before is forgotten.

        Args:
            X: Rows of numbers (n, k).
            y: Their labels (n,).
        """
        rows, given = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(given)
        common = self._agree(rows.shape[1])
        common.check_range(float(rows.min()), float(rows.max()), "this party")
        self.classes_, labels = self._number(given, common)
        self.task_ = self.task or common.task(max(2, len(self.classes_)))  # a single class makes no task
        self._common = common
        fewest = 1 if self.accept_exposure else FEWEST
        self._dual: Dual = Dual(
            common.space(rows), labels, len(self.classes_), shrinkage=common.shrinkage, fewest=fewest
        )
        self._linear, self.round_ = self._dual.by_itself(), 0
        if self.task is not None and not self.accept_space:
            check_usual(common.unusual(float(rows.min()), float(rows.max()), images=False))
        space: Any = common.space
        self._found = inspect(to_numpy(self._dual.vectors), space, rows.__getitem__)
        return self

    def partial_release(self) -> bytes:
        """Return what leaves this party: one step further against the last total, as bytes for an exchange or a board.

        Until the next total, it is the same step again.
        """
        check_is_fitted(self)
        check(self._found, self._common.space, images=False)
        if not self.accept_exposure:
            numbers, classes = self._common.space.dimension, len(self.classes_)
            Exposure(numbers, classes, len(self._dual.labels), sums=False).check()
            least = int(np.unique(self._dual.labels, return_counts=True)[1].min())
            if least < FEWEST:
                raise ConfigError(f"there is a class of {least} samples here: leave out those of fewer than {FEWEST}")
        if len(self._dual.labels) < self.task_.fewest:
            raise ConfigError(
                f"a release is of at least {self.task_.fewest} samples here, and there are {len(self._dual.labels)}"
            )
        self._dual.improve()
        self.round_ += 1
        return wire.encode_release(as_release(self._dual.part(), self.round_, self._common.name), self.precision)

    def absorb(self, total: bytes) -> Self:
        """Use everybody's classifier from now on. The last release counts as part of the total.

        Args:
            total: What an exchange or a board returned, after it had accepted the last release.
        """
        check_is_fitted(self)
        teacher, dimension = wire.decode_teacher(total), self._common.space.dimension
        read = read_total(teacher, len(self.classes_), dimension, self._common.name)
        self._dual.publish()
        self._dual.absorb(read)
        if read is not None:
            self._linear = self._dual.linear()
        return self

    def decision_function(self, X: Any) -> Doubles:
        """Return a score for each sample and class (n, C); of two classes, the second's less the first's (n,).

        Args:
            X: Rows of numbers (n, k).
        """
        scores = self._scores(X)
        if scores.shape[1] > 2:
            return scores
        return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]

    def predict_proba(self, X: Any) -> Doubles:
        """Return probabilities (n, C). They are rough: scores, cut off below 0, that add up to 1.

        Args:
            X: Rows of numbers (n, k).
        """
        return np.asarray(as_probabilities(self._scores(X), "squared"))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of each sample (n,).

        Args:
            X: Rows of numbers (n, k).
        """
        chosen = self._scores(X).argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def _scores(self, X: Any) -> Doubles:
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=np.float64, reset=False)
        linear: Any = self._linear  # of arrays
        space: Any = self._common.space
        return np.asarray(linear(space(rows).astype(np.float64)))

    def _agree(self, columns: int) -> Common:
        """Return what parties agree on: as the task states it, or as the arguments do."""
        if self.task is None:
            low, high = (np.broadcast_to(np.asarray(each, float), columns).tolist() for each in (self.low, self.high))
            space = Fourier(tuple(low), tuple(high), self.seed, self.features, self.width)
            names = () if self.classes is None else tuple(map(str, self.classes))
            common = Common(space, shrinkage=self.shrinkage, class_names=names)
        else:
            common = read_common(self.task.description or "")
        if not isinstance(common.space, Fourier) or common.loss == "discriminant":
            told = f"the space {common.space.name} with the loss {common.loss}"
            raise ConfigError(f"{told} needs PyTorch: take part with `repshare join`, or with Client and the method CS")
        return common

    def _number(self, labels: NDArray[Any], common: Common) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Return the classes, and the place of each label among them (n,)."""
        classes = self.classes
        if classes is None and self.task is not None:
            words = labels.dtype.kind in "OUS" and common.class_names
            classes = common.class_names if words else range(self.task.classes)
        if classes is None:
            found, places = np.unique(labels, return_inverse=True)
            return found, places
        listed = np.asarray(classes)
        if self.task is not None and len(listed) != self.task.classes:
            raise ConfigError(f"there are {len(listed)} classes here, and {self.task.classes} in the task")
        place = {label: number for number, label in enumerate(listed.tolist())}
        if strange := [label for label in labels.tolist() if label not in place]:
            raise ConfigError(f"the label {strange[0]!r} is none of the classes {', '.join(map(str, place))}")
        return listed, np.array([place[label] for label in labels.tolist()], np.int64)
