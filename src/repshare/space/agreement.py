"""The agreement of clients that learn in a space: the space, the loss, the classes and how inputs are prepared.

A task states all of it. A client that differs in any of it is refused before anything is shared, with both sides named.
"""

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple, get_args

import numpy as np

from repshare.config import Policy, SpaceLoss
from repshare.errors import ConfigError, DataError
from repshare.measures import Doubles, Representation
from repshare.sharing import wire
from repshare.sharing.columns import Column, bound_inputs, read_columns
from repshare.sharing.formats import FormatName
from repshare.sharing.parts import read_total
from repshare.sharing.representations import Floats
from repshare.sharing.sums import Sums, read_sums
from repshare.sharing.task import Task, check_class_names, make_space_task, scale_weights
from repshare.space import choose, read
from repshare.space.inspection import check_ranges
from repshare.space.model import Linear
from repshare.space.solution import Total
from repshare.space.space import Space, as_array, describe, fingerprint

ROUNDED = 0.001  # rounding may add this share of a range to it
EXPECTED = {"patches": (-2.0, 2.0), "backbone": (0.0, 1.0)}  # normalised photographs are about as wide as the first
VERSIONS = {"squared": "-v2"}  # of shared weights, where ρ is voted on: see `solution`
BATCH = 250  # samples that are embedded at a time
SLACK = 1.001  # for what fp32 makes of a length
COLUMNS_WIDTH = 0.25  # of the space of named columns, whose ranges are wider than anybody's data
BOUNDS = ("low", "high")  # the fields of a table's space
NARROW = 0.1  # of the task's range: inputs that use no more of it were scaled otherwise


class Agreement(NamedTuple):
    """What clients agree on that learn in a space, and what they compute alike."""

    space: Space
    """The feature map that all clients compute alike."""
    loss: SpaceLoss = "squared"
    """Loss of the common classifier: "squared", or "discriminant" for sums that are shared once."""
    shrinkage: float | None = None
    """ρ / n, how strongly the classifier is regularised. Default: by clients' votes."""
    class_names: tuple[str, ...] = ()
    """The names of the classes, in the order of their labels. Default: not agreed on."""
    inputs: tuple[float, float] | None = None
    """The least and the largest value of an input, such as (0, 255) for the pixels of a file.
    Default: inputs are normalised already."""
    columns: tuple[Column, ...] = ()
    """The columns of a table, by whose names it is read and by whose ranges it is scaled. Default: inputs are no table
    with names."""
    class_weights: tuple[float, ...] = ()
    """How much a sample of each class counts in the squared loss; only their ratios matter. Default: all the same."""

    @classmethod
    def of_table(
        cls,
        columns: Any,
        class_names: Sequence[str] = (),
        *,
        options: Sequence[str] = (),
        loss: SpaceLoss = "squared",
        shrinkage: float | None = None,
        class_weights: Sequence[float] = (),
    ) -> "Agreement":
        """The agreement of clients with tables of these columns: each range is brought to −1 … 1.

        Args:
            columns: A list with a mapping for each, a DataFrame, or the path of a .csv file: their name, unit, least
                and largest or categories, and missing (see `repshare.sharing.columns.read_columns`).
            class_names: The names of the classes, in the order of their numbers.
            options: Options of the space fourier, such as "features=512".
            loss: The loss of the common classifier.
            shrinkage: How strongly the classifier is regularised. Default: by clients' votes.
            class_weights: How much a sample of each class counts in the loss. Default: all the same.
        """
        agreed = read_columns(columns)
        low, high = bound_inputs(agreed)
        space = choose(("fourier", f"width={COLUMNS_WIDTH}", *options), np.zeros((1, len(low))), 0)
        check_class_names(class_names)
        space = replace(space, low=low, high=high)  # type: ignore[type-var]
        check_ranges(space)
        return cls(space, loss, shrinkage, tuple(class_names), columns=agreed, class_weights=tuple(class_weights))

    @property
    def is_simulated(self) -> bool:
        """Whether no vector leaves this process, so that the space needs no trial on the client's own samples."""
        return False

    @property
    def name(self) -> str:
        """The name that releases and teachers carry, so that only clients that agree learn together."""
        fixed = VERSIONS.get(self.loss, "") if self.shrinkage is None else f"-{self.shrinkage!r}"
        return f"{fingerprint(self.space)}-{self.loss}{fixed}{self._prepared}"

    @property
    def _prepared(self) -> str:
        if not self.class_names and self.inputs is None and not self.columns and not self.class_weights:
            return ""
        columns = [[each.describe() for each in self.columns]] if self.columns else []
        inputs = None if self.inputs is None else [float(each) for each in self.inputs]
        weights = [{"class_weights": [float(each) for each in self.class_weights]}] if self.class_weights else []
        told = json.dumps([self.class_names, inputs, *columns, *weights])
        return f"-{hashlib.sha256(told.encode()).hexdigest()[:8]}"

    def adapt(self, policy: Policy) -> Policy:
        """A client's policy, changed as the loss asks.

        Args:
            policy: The client's.
        """
        if policy.own_mix and self.loss != "squared":
            raise ConfigError("own_mix is for the loss squared: the loss discriminant reads totals by own samples")
        if self.loss == "discriminant":
            return replace(policy, precision="fp32")  # fp16 would add as much as the noise to large sums
        if policy.epsilon is not None:
            raise ConfigError(
                f"with the loss {self.loss} a sample's weight depends on the other samples, so that no noise can hide "
                "it: epsilon needs a common space with the loss discriminant, in a new task of the operator's"
            )
        if policy.noise_shares > 1:
            raise ConfigError("noise_shares needs epsilon, and the loss discriminant")
        return policy

    def task(self, classes: int) -> Task:
        """The task that a board or relay has for these clients.

        Args:
            classes: Number of classes.
        """
        if self.class_names and len(self.class_names) != classes:
            raise ConfigError(f"there are {len(self.class_names)} names for {classes} classes")
        self.scale_weights(classes)
        return make_space_task(classes, self.space.dimension, self.name, json.dumps(self.describe()), self.format)

    def scale_weights(self, classes: int) -> Doubles | None:
        """The weights of classes (C,), the largest 1; None: all are the same. Raises ConfigError if they do not fit.

        Args:
            classes: Number of classes.
        """
        if self.class_weights and self.loss != "squared":
            raise ConfigError("weights of classes are for the loss squared")
        return scale_weights(self.class_weights, classes)

    @property
    def format(self) -> FormatName:
        """The format of the clients' releases."""
        return "sums" if self.loss == "discriminant" else "parts"

    def describe(self) -> dict[str, Any]:
        """What a task says of the agreement, in JSON's types."""
        space, columns = describe(self.space), {}
        if self.columns:  # the bounds follow from them
            space = {key: value for key, value in space.items() if key not in BOUNDS}
            columns = {"columns": [each.describe() for each in self.columns]}
        weights = {"class_weights": list(self.class_weights)} if self.class_weights else {}
        return {
            **space,
            "loss": self.loss,
            "shrinkage": self.shrinkage,
            "class_names": list(self.class_names),
            "inputs": None if self.inputs is None else list(self.inputs),
            **columns,
            **weights,
        }

    def unusual(self, least: float, largest: float, *, images: bool) -> dict[str, tuple[Any, Any]]:
        """The fields that differ from the package's own choice for such inputs: the agreed value, and the usual one.

        A vector may be shorter than usual, and be made without a second layer then. Bounds of a table are usual where
        they are those of its named columns, or all columns have one pair that the client's inputs are in. A backbone
        is the client's own, and identified by a hash.

        Args:
            least: The least of the client's inputs.
            largest: The largest of them.
            images: Whether they are images.
        """
        space = self.space
        if space.name == "backbone":
            return {}
        told = {**describe(space), "shrinkage": self.shrinkage}
        short = ("patches", "components=1") if told.get("components") else ()
        own = self.of_table(self.columns).space if self.columns else choose(short, np.zeros((1, *space.input_shape)), 0)
        usual = {**describe(own), "shrinkage": None}
        if images and space.name == "fourier":
            return {"space": ("fourier", "patches")}
        differ = {key: (told.get(key), usual.get(key)) for key in {**usual, **told} if told.get(key) != usual.get(key)}
        if told.get("components"):
            for name in ("components", "components_of", *(() if told["deep"] else ("deep",))):
                differ.pop(name, None)
        if told.get("features", 0) <= usual.get("features", 0):
            differ.pop("features", None)
        if not self.columns and "low" in told and len({*zip(told["low"], told["high"], strict=True)}) == 1:
            with suppress(DataError):
                self._replace(inputs=(told["low"][0], told["high"][0])).check_range(least, largest, "")
                differ = {key: value for key, value in differ.items() if key not in BOUNDS}
        return differ

    def check_named(self, samples: Any) -> None:
        """Raise DataError if samples were not read by the names of the columns agreed on.

        Args:
            samples: The `Samples`, if any.
        """
        if self.columns and samples is not None and (not samples.table or samples.table.columns != self.columns):
            raise DataError(
                f"the task names its {len(self.columns)} columns, so that no order is guessed: give a table with their "
                'names, Party(data="patients.csv" or a DataFrame, label="…")'
            )

    def prepare(self, inputs: Any) -> Any:
        """Inputs as the space takes them: pixels are brought from the stated range to the one that it expects.

        Args:
            inputs: A batch of inputs.
        """
        if self.inputs is None or self.space.name not in EXPECTED:
            return inputs
        (low, high), (first, last) = self.inputs, EXPECTED[self.space.name]
        return (inputs.float() - low) * ((last - first) / (high - low)) + first

    def vectors(self, inputs: Any) -> Floats:
        """Map a batch of inputs to the space (n, d).

        Args:
            inputs: A batch of inputs.
        """
        return as_array(self.space(self.prepare(inputs)))

    def embed(self, samples: Any, *, at_once: bool = True) -> tuple[Floats, float]:
        """Map samples to the space (n, d); beside them, the seconds that it takes.

        Args:
            samples: The samples.
            at_once: Whether in batches. The last bits of a vector may depend on the others of its batch.
        """
        started = time.perf_counter()
        vectors = self.space.embed(samples, self.prepare, BATCH if at_once else 1)
        return self._checked(vectors), time.perf_counter() - started

    def _checked(self, vectors: Floats) -> Floats:
        """Refuse vectors that are not of the space's length, or longer than √d."""
        name, dimension = self.space.name, self.space.dimension
        if vectors.shape[1] != dimension:
            raise DataError(f"the space {name} gave {vectors.shape[1]} numbers for a sample, not {dimension}")
        longest, bound = float(np.linalg.norm(vectors, axis=1).max()), math.sqrt(dimension)
        if not longest <= bound * SLACK:
            raise DataError(f"the space {name} gave a vector of length {longest:.4g}; its bound is √d = {bound:.4g}")
        return vectors

    def scores(self, linear: Linear, samples: Any) -> Floats:
        """Compute a classifier's score for each sample and class (n, C).

        Args:
            linear: The classifier.
            samples: The samples.
        """
        return linear(self.embed(samples)[0])

    def read(self, body: bytes, classes: int) -> Total | Sums | None:
        """Read all clients' total; None, if no other client has shared anything. Raises Malformed otherwise.

        Args:
            body: A teacher as bytes.
            classes: Number of classes.
        """
        teacher, dimension = wire.decode_teacher(body), self.space.dimension
        if self.format == "sums":
            return read_sums(teacher, classes, dimension, self.name)
        part = read_total(teacher, classes, dimension, self.name)
        if part is None:
            return None
        weights = self.scale_weights(classes)
        return Total(part if weights is None else part._replace(weighted=(weights * part.shares).astype(np.float32)))

    def representation(self, samples: Any) -> Representation:
        """Describe what a vector is made of. A backbone is the user's own; other maps are this package's.

        Args:
            samples: The samples that it is tried on.
        """
        return self.space.examine(self.prepare(samples.batch(np.arange(min(8, len(samples))))[0]))

    def check_range(self, least: float, largest: float, name: str) -> None:
        """Raise DataError, naming both sides, if a client's inputs are not in the range agreed on.

        Args:
            least: The least of them.
            largest: The largest of them.
            name: The client's name.
        """
        if self.inputs is None:
            return
        low, high = self.inputs
        told = f"the task's inputs are from {low:g} to {high:g}, those of {name} from {least:g} to {largest:g}"
        room = ROUNDED * (high - low)
        if least < low - room or largest > high + room:
            raise DataError(told)
        if largest - least < NARROW * (high - low):
            raise DataError(f"{told}: so narrow a range was scaled otherwise")


def tell_unusual(unusual: Mapping[str, tuple[Any, Any]]) -> str:
    """The findings of `Agreement.unusual` in words."""
    return ", ".join(f"{name} {str(here)[:40]} (usual: {str(usual)[:40]})" for name, (here, usual) in unusual.items())


def check_usual(unusual: Mapping[str, tuple[Any, Any]]) -> None:
    """Raise ConfigError if an agreement that nobody here has looked at differs from the package's own choice.

    Args:
        unusual: What `Agreement.unusual` found.
    """
    if unusual:
        raise ConfigError(
            f"the task's space is not this package's own choice for your inputs: {tell_unusual(unusual)}. Whoever "
            "chooses it can choose one that shows more of your data: ask why, and keep a copy of the agreement "
            "(--agreement), or say --accept-space"
        )


def read_agreement(description: str, *, module: str = "") -> Agreement:
    """The agreement that a task states. Raises ConfigError where it is none.

    Args:
        description: The task's description.
        module: For a backbone, the client's own module as file.py:function.
    """
    try:
        told = json.loads(description)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise ConfigError("the task's description is not a JSON object")
    loss, shrinkage = told.pop("loss", None), told.pop("shrinkage", None)
    names, inputs = told.pop("class_names", []), told.pop("inputs", None)
    if loss == "logistic":
        raise ConfigError("the task's loss is logistic: c528c6c is the last commit that reads it")
    if loss not in get_args(SpaceLoss):
        raise ConfigError(f"the task's loss is {loss!r}; this version knows {', '.join(get_args(SpaceLoss))}")
    if shrinkage is not None and not _is_number(shrinkage):
        raise ConfigError(f"the task's shrinkage is {shrinkage!r}, not a number")
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise ConfigError(f"the task's class names are {str(names)[:80]}, not a list of words")
    check_class_names(names)
    if inputs is not None and not _is_range(inputs):
        raise ConfigError(f"the task's inputs are {str(inputs)[:80]}, not a least and a largest number")
    bounds = None if inputs is None else (inputs[0], inputs[1])
    weights = told.pop("class_weights", [])
    scale_weights(weights, len(weights) if isinstance(weights, list) else 0)
    columns: tuple[Column, ...] = ()
    if "columns" in told:
        if told.get("space") != "fourier" or not isinstance(told["columns"], list) or told.keys() & {*BOUNDS}:
            raise ConfigError("the task's columns are no list, or not of a table whose bounds follow from them")
        columns = read_columns(told.pop("columns"))
        told |= {name: list(each) for name, each in zip(BOUNDS, bound_inputs(columns), strict=True)}
    space = read(told, module=module)
    return Agreement(
        space, loss, shrinkage, class_names=tuple(names), inputs=bounds, columns=columns, class_weights=tuple(weights)
    )


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_range(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value)) and value[0] < value[1]
