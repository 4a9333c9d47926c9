"""Samples of PyTorch and Hugging Face data sets, read by index."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, default_collate

from repshare.errors import DataError
from repshare.imports import in_one_line

LABELS = ("label", "labels")  # names under which samples that are dictionaries have their label


class Indexed:
    """A map-style data set whose samples are read by index, in batches."""

    def __init__(self, data: Any) -> None:
        if isinstance(data, DataLoader):
            raise DataError(
                "clients draw their batches themselves: give the loader's dataset, or a torch.utils.data.Subset of it "
                "(38a6b14d is the last commit that reads through a DataLoader)"
            )
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
        try:
            return separate(default_collate(samples))
        except (RuntimeError, TypeError, ValueError) as error:
            raise DataError(
                f"samples cannot be put into one batch ({in_one_line(error)[:200]}): make them tensors of one shape"
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
