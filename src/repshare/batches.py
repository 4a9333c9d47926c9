"""Samples of PyTorch and Hugging Face data sets, read by index: by a DataLoader's workers, if they came in one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler, SequentialSampler, default_collate

from repshare.errors import DataError
from repshare.imports import in_one_line

LABELS = ("label", "labels")  # names under which samples that are dictionaries have their label


class Indexed:
    """A map-style data set whose samples are read by index, in batches."""

    def __init__(self, data: Any) -> None:
        self._collate: Callable[[list[Any]], Any] = default_collate
        self._workers = 0
        if isinstance(data, DataLoader):
            _check_sampler(data)
            self._workers, self._collate, data = data.num_workers, data.collate_fn, data.dataset
        if isinstance(data, IterableDataset) or not hasattr(data, "__getitem__") or not hasattr(data, "__len__"):
            kind = type(data).__name__
            raise DataError(f"a {kind} has no samples by index: give a map-style dataset, or a pair of arrays")
        if is_hugging_face(data) and data.format["type"] is None:
            data = data.with_format("torch")
        self.data = data

    def __len__(self) -> int:
        return len(self.data)

    def read(self, indices: Tensor) -> tuple[Any, Any]:
        """Inputs and labels of these samples."""
        wanted = indices.tolist()
        if hasattr(self.data, "__getitems__"):
            samples = list(self.data.__getitems__(wanted))
        else:
            samples = [self.data[index] for index in wanted]
        return separate(self._put_together(samples))

    def stream(self, parts: Sequence[Tensor]) -> Iterator[tuple[Any, Any]]:
        """Yield inputs and labels of each part."""
        if not self._workers:
            yield from map(self.read, parts)
            return
        batches = [part.tolist() for part in parts]
        loader = DataLoader(self.data, batch_sampler=batches, collate_fn=self._put_together, num_workers=self._workers)
        yield from map(separate, loader)

    def _put_together(self, samples: list[Any]) -> Any:
        try:
            return self._collate(samples)
        except (RuntimeError, TypeError, ValueError) as error:
            raise DataError(
                f"samples cannot be put into one batch ({in_one_line(error)[:200]}): turn them into tensors of one "
                "shape, or give a DataLoader with a collate_fn"
            ) from error


def is_hugging_face(data: Any) -> bool:
    """Whether this is a data set of Hugging Face's `datasets`, without importing it."""
    return hasattr(data, "with_format") and hasattr(data, "column_names") and hasattr(data, "features")


def separate(batch: Any) -> tuple[Any, Any]:
    """Inputs and labels of a batch: of a pair, or of a dictionary that has the labels among its columns.

    Of a dictionary, a single column is given as it is, and columns of one number a sample as a table.
    """
    if isinstance(batch, tuple | list) and len(batch) == 2:
        return batch[0], batch[1]
    if not isinstance(batch, Mapping):
        kind = f"{len(batch)} values" if isinstance(batch, tuple | list) else f"a {type(batch).__name__}"
        raise DataError(f"a sample must be a pair (inputs, label), or a dictionary with a label, not {kind}")
    found = [name for name in LABELS if name in batch]
    if len(found) != 1:
        columns = ", ".join(map(str, batch))
        raise DataError(f"samples are dictionaries of {columns}: one of these must be called label")
    inputs = {str(name): each for name, each in batch.items() if name != found[0]}
    for name, column in inputs.items():
        if not isinstance(column, Tensor):
            raise DataError(
                f"the column {name} is no tensor, but a {type(column).__name__} ({str(column)[:40]}): turn it into "
                f"numbers of one shape, or leave it out (remove_columns({name!r}))"
            )
    if len(inputs) == 1:
        return next(iter(inputs.values())), batch[found[0]]
    if inputs and all(column.ndim == 1 for column in inputs.values()):
        return torch.stack([column.float() for column in inputs.values()], dim=1), batch[found[0]]
    return inputs, batch[found[0]]


def _check_sampler(loader: "DataLoader[Any]") -> None:
    """Refuse a loader that chooses its samples by itself: they would not be the ones that it chooses."""
    usual = isinstance(loader.sampler, SequentialSampler | RandomSampler)
    if usual and isinstance(loader.sampler, RandomSampler):
        usual = not loader.sampler.replacement and loader.sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    if loader.batch_sampler is None or not usual or type(loader.batch_sampler) is not torch.utils.data.BatchSampler:
        kind = type(loader.sampler if not usual else loader.batch_sampler).__name__
        raise DataError(
            f"the DataLoader has a sampler of its own ({kind}), but clients draw their batches themselves: give it a "
            "torch.utils.data.Subset of the samples, and a batch_size"
        )
