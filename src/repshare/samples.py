"""A client's labelled data, checked once, then served in batches."""

import math
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from operator import itemgetter
from typing import Any, NamedTuple, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset

from repshare.batches import Indexed
from repshare.config import Policy
from repshare.errors import ConfigError, DataError
from repshare.sharing.columns import Frame
from repshare.table import Table

Labelled = Table | Dataset[Any] | tuple[Any, Tensor] | tuple[Any, NDArray[Any]]
EVALUATION_BATCH = 250  # samples: measured fastest for LeNet5 among 50, 100, 250 and 1,000
LARGE_EVALUATION_BATCH = 32  # of ResNet9 and ResNet18 on a CPU, among 8 to 256: their features then fit caches


class Samples:
    """Labelled samples in batches: of a pair of tensors or arrays, which is much the fastest, or of a dataset.

    Inputs may be a mapping of tensors. A dataset is map-style, PyTorch's or Hugging Face's.
    """

    def __init__(self, data: Labelled, *, rows: Tensor | None = None, device: str = "cpu") -> None:
        """With `rows`, hold only these samples, without a copy of them."""
        self.table = data if isinstance(data, Table) else None
        if isinstance(data, Table):
            data = data.inputs, data.labels
        _refuse_words(data)
        self.device = torch.device(device)
        if isinstance(data, TensorDataset) and len(data.tensors) == 2:
            data = data.tensors
        self._pair = _as_tensors(*data) if isinstance(data, tuple | list) else None
        self._dataset = Indexed(data) if self._pair is None else None
        self._rows = rows
        if len(self) < 1:
            raise DataError("there is no sample")
        self.labels = self._read_labels()  # (n,)

    def __len__(self) -> int:
        if self._rows is not None:
            return len(self._rows)
        return len(self._pair[1] if self._pair is not None else self._dataset)  # type: ignore[arg-type]

    def batch(self, indices: Tensor) -> tuple[Any, Tensor]:
        """Inputs and labels of these samples, on the device."""
        if self._rows is not None:
            indices = self._rows[indices]
        if self._pair is not None:
            inputs, labels = self._pair
            inputs, labels = change_tensors(inputs, itemgetter(indices)), labels[indices]
        else:
            inputs, labels = self._dataset.read(indices)  # type: ignore[union-attr]
        _check_labels(labels)
        if not isinstance(inputs, Tensor | Mapping):
            raise DataError(f"the inputs of a sample must be a tensor or a mapping, not a {type(inputs).__name__}")
        return change_tensors(inputs, self._place), labels.to(self.device, torch.int64)

    def part(self, rows: Tensor) -> "Samples":
        """These samples only, without a copy of them."""
        part = copy(self)
        part._rows = rows if self._rows is None else self._rows[rows]
        part.labels = self.labels[rows]
        return part

    def in_order(self, size: int) -> Iterator[tuple[Any, Tensor]]:
        """Yield all samples, `size` at a time."""
        yield from map(self.batch, torch.split(torch.arange(len(self)), size))

    def shuffled(self, size: int, generator: torch.Generator) -> Iterator[tuple[Any, Tensor]]:
        """Yield all samples once in random order, `size` at a time."""
        yield from map(self.batch, shuffle(len(self), size, generator))

    def check_labels(self, classes: int) -> None:
        """Refuse labels that are not one of 0 … classes − 1."""
        wrong = ((self.labels < 0) | (self.labels >= classes)).nonzero()
        if len(wrong):
            index = int(wrong[0])
            raise DataError(f"sample {index} has label {self.labels[index]}; labels must be 0 to {classes - 1}")

    def _read_labels(self) -> Tensor:
        labels = []
        for start, (inputs, batch) in enumerate(self.in_order(EVALUATION_BATCH)):
            for tensor in inputs.values() if isinstance(inputs, Mapping) else [inputs]:
                if tensor.is_floating_point() and not tensor.isfinite().all():
                    row = int((~tensor.isfinite()).reshape(len(tensor), -1).any(dim=1).nonzero()[0])
                    raise DataError(f"the inputs of sample {start * EVALUATION_BATCH + row} contain NaN or infinity")
            labels.append(batch.cpu())
        return torch.cat(labels)

    def _place(self, tensor: Tensor) -> Tensor:
        if tensor.ndim == 4:  # images: convolutions are faster with the channels last
            return tensor.to(self.device, memory_format=torch.channels_last)
        return tensor.to(self.device)


class Setup(NamedTuple):
    """What a client brings to its learner, whichever that is."""

    samples: Samples
    policy: Policy
    name: str
    seed: int
    model: Any = None  # a `nn.Module` or `Network`
    head: str | None = None
    space: Any = None  # a `Space`, or an `Agreement` about one
    classes: int | None = None
    alone: bool = False
    """Whether nothing will ever be shared."""
    norm_bound: float = math.inf
    secret: bytes | None = None
    options: Any = None
    """The method's."""


def shuffle(count: int, size: int, generator: torch.Generator) -> list[Tensor]:
    """The indices of all samples in random order, `size` at a time; no single one at the end."""
    parts = list(torch.split(torch.randperm(count, generator=generator), size))
    if len(parts) > 1 and len(parts[-1]) == 1:  # batch normalisation cannot train on a single sample
        parts[-2:] = [torch.cat(parts[-2:])]
    return parts


@overload
def as_samples(data: Labelled | Samples, device: str) -> Samples: ...
@overload
def as_samples(data: Labelled | Samples | None, device: str) -> Samples | None: ...
def as_samples(data: Labelled | Samples | None, device: str) -> Samples | None:
    """Serve data in batches, if there are any."""
    return data if data is None or isinstance(data, Samples) else Samples(data, device=device)


def without_labels(inputs: Any, device: str) -> Samples:
    """Serve inputs of which nobody knows the class: it is 0."""
    count = len(next(iter(inputs.values())) if isinstance(inputs, Mapping) else inputs)
    return Samples((inputs, torch.zeros(count, dtype=torch.long)), device=device)


def change_tensors(inputs: Any, change: Callable[[Tensor], Any]) -> Any:
    """A batch's inputs, which may be a mapping, with every tensor changed."""
    if isinstance(inputs, Mapping):
        return {name: change_tensors(each, change) for name, each in inputs.items()}
    return change(inputs)


def _as_tensors(*pair: Any) -> tuple[Any, Tensor]:
    if len(pair) != 2:
        raise DataError(f"data must be a pair, inputs and labels, not {len(pair)} things")
    inputs = change_tensors(pair[0], _as_tensor)
    words = pair[1].tolist() if isinstance(pair[1], np.ndarray) and pair[1].dtype.kind in "OU" else pair[1]
    if isinstance(words, list | tuple) and words and isinstance(words[0], str):
        _check_labels(words)
    labels = _as_tensor(pair[1])
    _check_labels(labels)
    for tensor in inputs.values() if isinstance(inputs, Mapping) else [inputs]:
        if len(tensor) != len(labels):
            raise DataError(f"there are {len(tensor)} inputs but {len(labels)} labels")
    return inputs, labels


def _check_labels(labels: Any) -> None:
    if isinstance(labels, list | tuple) and labels and isinstance(labels[0], str):
        raise DataError(f"labels are words ({labels[0]!r}): number them from 0, in the order of the task's class names")
    if not isinstance(labels, Tensor):
        raise DataError(f"labels must be whole numbers in a row, not {type(labels).__name__}: {str(labels)[:40]}")
    if labels.ndim != 1 or labels.is_floating_point():
        raise DataError(f"labels must be whole numbers in a row, not {labels.dtype} of shape {tuple(labels.shape)}")


def _refuse_words(given: Any) -> None:
    if isinstance(given, Frame):
        raise DataError("a DataFrame is no array: give data=(frame[columns].to_numpy('float32'), labels)")
    if isinstance(given, np.ndarray) and given.dtype.kind in "OUS":
        for place, each in np.ndenumerate(given):
            if isinstance(each, str | bytes):
                raise DataError(f"data are numbers, but {each!r} in row {place[0]}, column {place[-1]} is a word")


def _as_tensor(given: Any) -> Tensor:
    _refuse_words(given)
    if isinstance(given, np.ndarray) and (not given.flags.writeable or min(given.strides, default=0) < 0):
        given = given.copy()  # PyTorch cannot look at these where they are
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"data must be tensors or arrays of numbers: {error}") from error


def choose_device(name: str) -> str:
    """The device of this name; for `auto`, a GPU if there is one, else the CPU. Raises ConfigError if absent."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "mps" if torch.backends.mps.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:  # a message that lists all of PyTorch's devices
        raise ConfigError(f"unknown device {name!r}: use cpu, cuda, mps, or auto") from error
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise ConfigError(f"device {name} is not available here: use cpu, or auto") from error
    return name
