"""A client's labelled data, checked once, then served in batches."""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset, TensorDataset, default_collate

from repshare.errors import DataError

Labelled = Dataset[Any] | tuple[Tensor, Tensor] | tuple[NDArray[Any], NDArray[Any]]
EVALUATION_BATCH = 250  # samples: measured fastest for LeNet5 among 50, 100, 250 and 1,000


class Samples:
    """Any map-style dataset of (inputs, label), or a pair of tensors or arrays, which is much the fastest."""

    def __init__(self, data: Labelled, *, rows: Tensor | None = None, device: str = "cpu") -> None:
        """With `rows`, hold only these samples, without a copy of them."""
        self.device = torch.device(device)
        self._data = TensorDataset(*_as_tensors(*data)) if isinstance(data, tuple | list) else data
        self._rows = rows
        if len(self) < 1:
            raise DataError("there is no sample")
        self.labels = self._read_labels()  # (n,)

    def __len__(self) -> int:
        return len(self._data if self._rows is None else self._rows)  # type: ignore[arg-type]

    def batch(self, indices: Tensor) -> tuple[Any, Tensor]:
        """Return inputs and labels of these samples, on the device."""
        if self._rows is not None:
            indices = self._rows[indices]
        if isinstance(self._data, TensorDataset):
            inputs, labels = self._data[indices]
        else:
            inputs, labels = default_collate([self._data[int(i)] for i in indices])
        _check_labels(labels)
        return change_tensors(inputs, self._place), labels.to(self.device, torch.int64)

    def part(self, rows: Tensor) -> "Samples":
        """Return only these samples, without a copy of them."""
        part = copy(self)
        part._rows = rows if self._rows is None else self._rows[rows]
        part.labels = self.labels[rows]
        return part

    def in_order(self, size: int) -> Iterator[tuple[Any, Tensor]]:
        """Yield all samples, `size` at a time."""
        for indices in torch.split(torch.arange(len(self)), size):
            yield self.batch(indices)

    def shuffled(self, size: int, generator: torch.Generator) -> Iterator[tuple[Any, Tensor]]:
        """Yield all samples once in random order, `size` at a time."""
        parts = list(torch.split(torch.randperm(len(self), generator=generator), size))
        if len(parts) > 1 and len(parts[-1]) == 1:  # batch normalisation cannot train on a single sample
            parts[-2:] = [torch.cat(parts[-2:])]
        for indices in parts:
            yield self.batch(indices)

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


def change_tensors(inputs: Any, change: Callable[[Tensor], Any]) -> Any:
    """Return a batch's inputs, which may be a mapping, with every tensor changed."""
    if isinstance(inputs, Mapping):
        return {name: change_tensors(each, change) for name, each in inputs.items()}
    return change(inputs)


def _as_tensors(*pair: Any) -> tuple[Tensor, Tensor]:
    if len(pair) != 2:
        raise DataError(f"data must be a pair, inputs and labels, not {len(pair)} things")
    inputs, labels = (_as_tensor(each) for each in pair)
    _check_labels(labels)
    if len(inputs) != len(labels):
        raise DataError(f"there are {len(inputs)} inputs but {len(labels)} labels")
    return inputs, labels


def _check_labels(labels: Any) -> None:
    if not isinstance(labels, Tensor):
        raise DataError(f"labels must be whole numbers in a row, not {type(labels).__name__}: {str(labels)[:40]}")
    if labels.ndim != 1 or labels.is_floating_point():
        raise DataError(f"labels must be whole numbers in a row, not {labels.dtype} of shape {tuple(labels.shape)}")


def _as_tensor(given: Any) -> Tensor:
    if isinstance(given, np.ndarray) and (not given.flags.writeable or min(given.strides, default=0) < 0):
        given = given.copy()  # PyTorch cannot look at these where they are
    try:
        return torch.as_tensor(given)
    except (TypeError, ValueError, RuntimeError) as error:
        raise DataError(f"data must be tensors or arrays of numbers: {error}") from error
