"""A task: what the clients of one collaboration agree on, and the check of every release on entry."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, field, fields
from functools import cached_property
from typing import Any, NamedTuple, get_type_hints

import numpy as np
from numpy.typing import NDArray

from repshare.errors import ConfigError, Refused
from repshare.fields import check_least, check_positive, field_helps
from repshare.sharing import fixed_point, wire
from repshare.sharing.formats import FORMATS, USUAL_LENGTHS, Format, FormatName
from repshare.sharing.representations import Release, Representations

MOST_ROUNDS = 2**31 - 1
MOST_OBSERVATIONS = 1000  # for each class of a release: each is a row in the store, and others wait while it is written
MOST_DESCRIPTION = 1 << 16  # characters
STEERING = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)  # of a terminal, a page
LEAST_WEIGHT = 1e-9  # of a class, where the largest is 1
MOST_ROWS = 100_000  # in one release: each takes half a kilobyte of memory besides its numbers


@dataclass(frozen=True)
class Task:
    """One collaboration. The options of `repshare relay tasks create` and the API's schema are made from its fields."""

    classes: int = field(metadata={"ge": 2})
    """Number of classes, C."""
    dimension: int = field(metadata={"ge": 1})
    """Length of a representation, d', or of a vector of the common space."""
    norm_bound: float = field(default=1000.0, metadata={"gt": 0})
    """Representations longer than this are refused. Tanh features are never longer than √d'."""
    minimum_count: int = field(default=1, metadata={"ge": 1})
    """Averages over fewer samples than this are refused."""
    weighted: bool = True
    """A client's class mean counts by its number of samples. If false (--no-weighted), all clients count the same."""
    max_age: float | None = field(default=None, metadata={"gt": 0})
    """Seconds after which a release is deleted if none came again, counted while a relay runs. Default: never."""
    space: str | None = None
    """The common space that vectors are in, by its fingerprint. Default: each client's own."""
    format: FormatName = "features"
    """What a release consists of. features: of each client's own network.
    parts, sums: of a classifier in a common space, or of the samples there."""
    description: str | None = None
    """The common space, the names of the classes and the range of the inputs, as JSON. Default: not stated."""
    group_members: int = field(default=0, metadata={"ge": 0})
    """Let clients share in a masked group only, of at least this many: 3 or more.
    Nobody, the relay neither, sees more than the members' total. Default: 0, no group."""
    class_members: int = field(default=3, metadata={"ge": 1})
    """In a masked group, a class that fewer members have stays hidden: nobody shares samples of it."""

    compared: bool = False
    """In a common space, compare clients' parts: those that are clearly wrong are refused, and their clients named."""
    most_share: float = field(default=0.5, metadata={"gt": 0, "le": 1})
    """With --compared, the largest share of all samples that one client may have, from five clients on."""

    def __post_init__(self) -> None:
        check_least(self, **{each.name: each.metadata["ge"] for each in fields(self) if "ge" in each.metadata})
        check_positive(self, *(each.name for each in fields(self) if "gt" in each.metadata))
        if len(self.description or "") > MOST_DESCRIPTION:
            raise ConfigError(
                f"a description of {len(self.description or ''):,} characters; at most {MOST_DESCRIPTION:,}"
            )

        if self.most_share > 1:
            raise ConfigError(f"most_share must be at most 1, not {self.most_share}")
        if self.compared and (self.format != "parts" or self.group_members):
            raise ConfigError("only parts of a common classifier that are seen one by one can be compared")
        if (self.space is None) != (self.format == "features"):
            where = "each client's own space" if self.space is None else "a common space"
            raise ConfigError(
                f"in {where}, format cannot be {self.format}: parts and sums need a space, and a space needs them "
                "(15ddcbb is the last commit that reads a format in the name of a space)"
            )

    @cached_property
    def layout(self) -> Format:
        """The format of the task's releases."""
        return FORMATS[self.format]

    @cached_property
    def rows(self) -> int:
        """The number of class means in a release."""
        return self.classes + self.layout.rows_beside

    @cached_property
    def columns(self) -> int:
        """The number of numbers in a row of a release."""
        return self.dimension + self.layout.columns_beside

    @cached_property
    def longest_release(self) -> int:
        """The most bytes that a release can have."""
        return wire.longest_message(self.rows * (1 + MOST_OBSERVATIONS), self.columns)

    @cached_property
    def shortest_row(self) -> int:
        """The fewest bytes that a row of a release can have."""
        return self.columns + wire.BESIDE_BYTES

    @cached_property
    def totals_size(self) -> int:
        """The number of numbers in the totals over all clients."""
        return self.rows * (self.columns + fixed_point.BESIDE)

    @cached_property
    def fewest(self) -> int:
        """The least count of a row. Rows of sums count clients, not samples."""
        return self.minimum_count if self.layout.counts_samples else 1

    def check(self, release: Release) -> None:
        """Raise Refused if this release does not belong to the task.

        Args:
            release: What a client wants to share.
        """
        if release.round > MOST_ROUNDS:
            raise Refused(f"round {release.round} is beyond {MOST_ROUNDS}, the last that a client can reach")
        if release.space != self.space:
            there, here = (name or "each client's own space" for name in (self.space, release.space))
            raise Refused(f"the task's vectors are in {there}, this release's in {here}")
        if fault := self.layout.find_fault(release.means, self.classes, self.dimension):
            raise Refused(f"the release has {fault}")
        if (rows := len(release.means.labels) + len(release.observations.labels)) > MOST_ROWS:
            raise Refused(f"{rows:,} means and observations; at most {MOST_ROWS:,} are taken at once")
        self._check(release.observations)
        longest, most = self._check(release.means), int(release.means.counts.max(initial=0))
        if not fixed_point.fits(longest, most) and not fixed_point.fits(_longest(release.means), most):
            raise Refused(f"an average of {most} samples is more than can be summed up")
        if len(set(release.means.labels.tolist())) < len(release.means.labels):
            raise Refused("two means of one class")
        observed = release.observations.labels.tolist()
        if len(observed) > MOST_OBSERVATIONS and (most := max(Counter(observed).values())) > MOST_OBSERVATIONS:
            raise Refused(f"{most:,} observations of one class; at most {MOST_OBSERVATIONS:,} are taken")

    def _check(self, rows: Representations) -> float:
        """Raise Refused if these rows do not belong to the task; return a length that none of them exceeds."""
        if rows.vectors.shape[1] != self.columns:
            raise Refused(f"representations of {rows.vectors.shape[1]} numbers; the task's have {self.columns}")
        if not len(rows.labels):
            return 0.0
        labels, counts = rows.labels.tolist(), rows.counts.tolist()
        for label in (min(labels), max(labels)):
            if not 0 <= label < self.rows:
                raise Refused(f"class {label} is unknown; the task's are 0 to {self.rows - 1}")
        if (fewest := min(counts)) < self.fewest:
            raise Refused(f"an average of {fewest} samples; the task wants {self.fewest}")
        longest = float(np.abs(rows.vectors).max()) * math.sqrt(self.columns)  # no vector is longer
        if not math.isfinite(longest):
            raise Refused("a vector is not finite")
        if longest > self.norm_bound and (longest := _longest(rows)) > self.norm_bound:
            raise Refused(f"a vector of length {longest:.4g}; the task's norm_bound is {self.norm_bound:.4g}")
        return longest


def _longest(rows: Representations) -> float:
    return float(np.linalg.norm(rows.vectors.astype(np.float64), axis=1).max(initial=0))


def check_class_names(names: Iterable[str]) -> None:
    """Raise ConfigError if a name of a class would steer a terminal or turn the text around it.

    Args:
        names: The names.
    """
    for name in names:
        if STEERING.search(name):
            raise ConfigError(f"the class name {name[:80]!a} has control characters: use words")


def scale_weights(weights: Any, classes: int) -> NDArray[np.float64] | None:
    """The weights of classes (C,) as a task states them, the largest 1; None: it states none.

    Raises ConfigError if they do not fit.
    """
    if weights is None or weights == () or weights == []:
        return None
    fit = isinstance(weights, list | tuple) and all(type(each) in (int, float) for each in weights)
    if not fit or len(weights) != classes or not 0 < max(weights) * LEAST_WEIGHT <= min(weights) < math.inf:
        told = f"{classes} numbers above 0, one for each class, none 10⁹ times another"
        raise ConfigError(f"the weights of classes must be {told}, not {str(weights)[:80]}")
    scaled: NDArray[np.float64] = np.array(weights, np.float64) / max(weights)
    return scaled


class TaskField(NamedTuple):
    """A field of a task, as one who creates a task at a relay is asked for it."""

    name: str
    kind: Any
    default: Any  # ... if there is none
    help: str


def describe_fields() -> Iterator[TaskField]:
    """Yield the fields of a new task. One at a relay has a tighter norm bound and a larger minimum count."""
    kinds, helps = get_type_hints(Task), field_helps(Task)
    for each in fields(Task):
        kind, help = kinds[each.name], helps.get(each.name, "")
        default = ... if each.default is MISSING else each.default
        if each.name == "norm_bound":
            kind, default, help = kind | None, None, f"{help} Default: {USUAL_LENGTHS:g} √d'."
        elif each.name == "minimum_count":
            default = 2
        elif each.name == "compared":
            kind, default, help = kind | None, None, f"{help} Default: yes for parts, unless in masked groups."
        yield TaskField(each.name, kind, default, help)


def usual_norm_bound(dimension: int, format: FormatName = "features") -> float:
    """The norm bound of a task whose creator does not choose one."""
    return FORMATS[format].norm_bound(dimension)


def make_space_task(
    classes: int, dimension: int, space: str, description: str | None = None, format: FormatName = "parts"
) -> Task:
    """The task of a common classifier with this many classes, in a space of this dimension."""
    bound = usual_norm_bound(dimension, format)
    return Task(classes, dimension, norm_bound=bound, space=space, format=format, description=description)
