"""A space: a fixed feature map ψ that all clients of a task compute alike.

A map is a frozen dataclass: its fields are its description, which is all that a task says of it. Nothing in a map is
learnt, and none of it comes from any client's data or from the relay.
"""

import hashlib
import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from repshare.errors import ConfigError
from repshare.measures import Representation
from repshare.sharing.representations import Floats

LATER = {"later": True}  # a field added later: its default is left out, so that spaces keep their names


class Space(Protocol):
    """Maps inputs to vectors of `dimension` numbers, none longer than √`dimension`, so that numbers are about 1."""

    name: ClassVar[str]

    @property
    def dimension(self) -> int:
        """d, the length of a vector in numbers."""

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of an input; none, if it is not known."""
        return ()

    @property
    def tolerance(self) -> float:
        """How far two computations of the map may be apart, as a share of a vector's length."""
        return 1e-3

    def __call__(self, inputs: Any) -> Any:
        """Map a batch (n, …) to vectors (n, d) in fp32: a tensor on its device, or an array.

        Raises DataError where it does not fit.
        """

    def examine(self, inputs: Any) -> Representation:
        """Describe what a vector is made of, for inputs like these.

        Args:
            inputs: A batch.
        """
        return Representation(self.dimension, 0, 0, is_inputs=False, source=f"the space {self.name}")

    def extent(self) -> dict[str, int]:
        """The numbers that memory and time grow with, by the names of `inspection.MOST`."""
        return {"dimensions": self.dimension}

    def embed(self, samples: Any, prepare: Callable[[Any], Any], size: int) -> Floats:
        """Map all samples to vectors (n, d).

        Args:
            samples: The samples.
            prepare: What is done with a batch of inputs before.
            size: Number of samples in a batch.
        """
        return np.concatenate([as_array(self(prepare(inputs))) for inputs, _ in samples.in_order(size)])

    def attended(self, *, cache: Path | None = None, watch: Callable[[int, int], None] | None = None) -> "Space":
        """The same map with a folder that keeps vectors, where it is slow, and with somebody who watches it.

        Args:
            cache: The folder.
            watch: Gets the number of samples that were mapped, and of all.
        """
        return self

    def graph(self) -> Callable[[Any], Any] | None:
        """The same map of tensors as one graph of any batch size, for ONNX; None: there is none."""
        return None


def as_array(values: Any) -> NDArray[Any]:
    """Take a tensor or an array as an array."""
    return values if isinstance(values, np.ndarray) else values.detach().cpu().numpy()


def describe(space: Space) -> dict[str, Any]:
    """What a task says of the space, in JSON's types: equal descriptions, equal vectors.

    Args:
        space: The space.
    """
    told = {}
    for field in fields(space):  # type: ignore[arg-type]
        value = getattr(space, field.name)
        if field.compare and not (field.metadata == LATER and value == field.default):
            told[field.name] = _as_json(value)
    return {"space": space.name, **told}


def _as_json(value: Any) -> Any:
    """Make 1 and 1.0 the same which are equal as a setting."""
    if isinstance(value, tuple):
        return [_as_json(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def fingerprint(space: Space) -> str:
    """The space's name and 16 digits of its description: what releases and teachers carry.

    Args:
        space: The space.
    """
    digest = hashlib.sha256(json.dumps(describe(space), sort_keys=True).encode()).hexdigest()
    return f"{space.name}-{digest[:16]}"


def compare(there: dict[str, Any], here: dict[str, Any]) -> None:
    """Raise ConfigError, naming both sides, unless two descriptions are of the same space.

    Args:
        there: The task's description.
        here: This client's description.
    """
    for key in {**there, **here}:
        one, other = there.get(key), here.get(key)
        if one == other:
            continue
        if isinstance(one, list) and isinstance(other, list) and len(one) == len(other) and key == "columns":
            one, other = next((each, mine) for each, mine in zip(one, other, strict=True) if each != mine)
        raise ConfigError(f"the task's space has {key} {one!r:.300}, this client's {other!r:.300}")
