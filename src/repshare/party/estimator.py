"""`CommonSpaceClassifier`: a client of CS in scikit-learn's manner, for tables and vectors, without PyTorch.

It is the learner and the wire of other clients, so that all may share one board.
"""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from repshare.config import FEWEST, Policy
from repshare.errors import ConfigError, DataError
from repshare.sharing.columns import Frame
from repshare.sharing.task import Task
from repshare.space import Fourier
from repshare.space.agreement import Agreement, check_usual, read_agreement
from repshare.space.exposure import Exposure
from repshare.space.fourier import find_reach
from repshare.space.inspection import check
from repshare.space.learner import SpaceLearner
from repshare.space.model import as_probabilities
from repshare.table import read_table

Doubles = NDArray[np.float64]


class Rows(NamedTuple):
    """Labelled rows of a table, as a learner reads them."""

    inputs: Doubles  # (n, k)
    labels: NDArray[np.int64]  # (n,)

    def __len__(self) -> int:
        return len(self.labels)

    def batch(self, indices: NDArray[np.int64]) -> tuple[Doubles, NDArray[np.int64]]:
        """These rows, with their labels."""
        return self.inputs[indices], self.labels[indices]

    def in_order(self, size: int) -> Iterator[tuple[Doubles, NDArray[np.int64]]]:
        """Yield all rows, `size` at a time."""
        for start in range(0, len(self.labels), size):
            yield self.inputs[start : start + size], self.labels[start : start + size]


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
        class_weight: Mapping[Any, float] | Literal["balanced"] | None = None,
        task: Task | None = None,
        accept_space: bool = False,
        precision: Literal["fp32", "fp16"] = "fp16",
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
            class_weight: How much a sample of each class counts, by its label; 1 for those left out. "balanced": by how
                many this party has, for a classifier of its own: nothing leaves. Default: all count the same.
            task: The task of a relay, in place of all arguments above: `RelayExchange(…).describe().agreed`.
            accept_space: Whether the task's space may be another than this package's own choice.
            precision: The number format of releases: "fp16" or "fp32".
            accept_exposure: Whether a release may show who is among the samples: see docs/what-leaves.md.
        """
        self.classes, self.low, self.high, self.features, self.width = classes, low, high, features, width
        self.seed, self.shrinkage, self.task, self.precision = seed, shrinkage, task, precision
        self.accept_space, self.accept_exposure, self.class_weight = accept_space, accept_exposure, class_weight

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from these samples alone. What was exchanged before is forgotten.

        Args:
            X: Rows of numbers (n, k); a DataFrame, where the task names its columns.
            y: Their labels (n,).
            sample_weight: How much each counts (n,), for a classifier of one's own: nothing leaves. Default: the same.
        """
        rows, given = validate_data(self, self._read(X), y, dtype=np.float64)
        check_classification_targets(given)
        weights = None if sample_weight is None else _check_sample_weight(sample_weight, rows)
        if weights is not None:
            if weights.min() < 0 or not weights.any():
                raise ConfigError("no weight of a sample may be below 0, and not all may be 0")
            rows, given, weights = rows[weights > 0], given[weights > 0], weights[weights > 0]
        agreement = self._agree(rows.shape[1])
        agreement.check_range(float(rows.min()), float(rows.max()), "this party")
        if self.task is None and (reach := find_reach(rows, self.low, self.high)) is not None:
            told = f"columns reach {reach:,.4g}, but values count from {self.low} to {self.high}"
            warnings.warn(f"{told}: standardise them alike everywhere, or give low and high", stacklevel=2)
        self.classes_, labels = self._number(given, agreement)
        agreement, weights = self._weigh(agreement, labels, weights)
        self.task_ = self.task or agreement.task(max(2, len(self.classes_)))  # a single class makes no task
        if self.task is not None and not self.accept_space:
            check_usual(agreement.unusual(float(rows.min()), float(rows.max()), images=False))
        # Its inputs are looked at when something is to leave: to learn alone is always possible.
        fewest = 1 if self.accept_exposure else FEWEST  # samples of classes with fewer take no part
        policy = Policy(held_out=0.0, share_inputs=True, precision=self.precision, minimum_count=fewest)
        self._learner = SpaceLearner(Rows(rows, labels), policy, agreement, classes=len(self.classes_), weights=weights)
        self._is_weighted_alone = weights is not None
        self._found, self._linear, self.round_ = self._learner.inspect(), self._learner.model.alone(), 0
        return self

    def partial_release(self) -> bytes:
        """What leaves this party: one step further against the last total, as bytes for an exchange or a board.

        Until the next total, it is the same step again.
        """
        check_is_fitted(self)
        check(self._found, self._learner.agreement.space, images=False)
        if self._is_weighted_alone:
            raise ConfigError("others do not know these weights: agree on class_weight by label, or fit without")
        samples = len(self._learner.used_rows)
        if not self._learner.shares_any:
            raise ConfigError(f"no class here has the {FEWEST} samples that a release needs")
        if not self.accept_exposure:
            behind = samples * self._learner.evenness
            Exposure(self._learner.dimension, len(self.classes_), behind, sums=False).check()
        if samples < self.task_.fewest:
            raise ConfigError(f"a release is of at least {self.task_.fewest} samples here, and there are {samples}")
        self._learner.train()
        self.round_ += 1
        return self._learner.release(self.round_)

    def absorb(self, total: bytes) -> Self:
        """Use everybody's classifier from now on. The last release counts as part of the total.

        Args:
            total: What an exchange or a board returned, after it had accepted the last release.
        """
        check_is_fitted(self)
        self._learner.acknowledge()
        self._learner.absorb(total)
        if self._learner.model.total is not None:
            self._linear = self._learner.classifier()
        return self

    def decision_function(self, X: Any) -> Doubles:
        """A score for each sample and class (n, C); of two classes, the second's less the first's (n,).

        Args:
            X: Rows of numbers (n, k).
        """
        scores = self._scores(X)
        if scores.shape[1] > 2:
            return scores
        return scores[:, 0] if scores.shape[1] == 1 else scores[:, 1] - scores[:, 0]

    def predict_proba(self, X: Any) -> Doubles:
        """Probabilities (n, C). They are rough: scores, cut off below 0, that add up to 1.

        Args:
            X: Rows of numbers (n, k).
        """
        return np.asarray(as_probabilities(self._scores(X), "squared"))

    def predict(self, X: Any) -> NDArray[Any]:
        """The class of each sample (n,).

        Args:
            X: Rows of numbers (n, k).
        """
        chosen = self._scores(X).argmax(axis=1)
        return np.asarray(self.classes_[chosen])

    def _scores(self, X: Any) -> Doubles:
        check_is_fitted(self)
        rows = validate_data(self, self._read(X), dtype=np.float64, reset=False)
        return np.asarray(self._linear(self._learner.agreement.vectors(rows).astype(np.float64)))

    def _read(self, X: Any) -> Any:
        """Return a table as numbers, by the columns of the task, if it names any."""
        columns = read_agreement(self.task.description or "").columns if self.task is not None else ()
        if not columns:
            return X
        if not isinstance(X, Frame):
            raise DataError(f"the task names its {len(columns)} columns: give a DataFrame with their names")
        table = read_table(X, columns)
        if len(table.rows) < len(X):
            raise DataError(f"{table.found.lines()[0]}: leave these rows out, here and in y")
        return table.inputs

    def _agree(self, columns: int) -> Agreement:
        """The parties' agreement: as the task states it, or as the arguments do."""
        if self.task is None:
            bounds = {"low": np.asarray(self.low, float), "high": np.asarray(self.high, float)}
            if wrong := [name for name, each in bounds.items() if each.shape not in ((), (columns,))]:
                raise ConfigError(f"{wrong[0]} must be one number, or one for each of {columns} columns")
            low, high = (np.broadcast_to(each, columns).tolist() for each in bounds.values())
            space = Fourier(tuple(low), tuple(high), self.seed, self.features, self.width)
            names = () if self.classes is None else tuple(map(str, self.classes))
            common = Agreement(space, shrinkage=self.shrinkage, class_names=names)
        else:
            common = read_agreement(self.task.description or "")
        if not isinstance(common.space, Fourier) or common.loss == "discriminant":
            told = f"the space {common.space.name} with the loss {common.loss}"
            raise ConfigError(f"{told} needs PyTorch: take part with `repshare join`, or with Client and the method CS")
        return common

    def _weigh(
        self, common: Agreement, labels: NDArray[np.int64], weights: Doubles | None
    ) -> tuple[Agreement, Doubles | None]:
        """The agreement with weights by class, and what each sample counts beside them (n,), the largest 1."""
        given = self.class_weight
        if given is not None and self.task is not None:
            raise ConfigError("the task says how much classes count: leave class_weight out")
        if isinstance(given, str):
            if given != "balanced":
                raise ConfigError(f'class_weight is {given!r}, neither "balanced" nor weights by label')
            counts = np.bincount(labels, weights)
            weights = (1.0 if weights is None else weights) / counts[labels]
        elif given is not None:
            if strange := [label for label in given if label not in self.classes_.tolist()]:
                raise ConfigError(f"class_weight has {strange[0]!r}, which is none of the classes")
            by_class = tuple(float(given.get(label, 1.0)) for label in self.classes_.tolist())
            common = common._replace(class_weights=by_class if len(by_class) > 1 else ())
        return common, None if weights is None else weights / weights.max()

    def _number(self, labels: NDArray[Any], common: Agreement) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The classes, and the place of each label among them (n,)."""
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
