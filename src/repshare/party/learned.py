"""A party's state folder, read for use: its model, a common classifier, or both; and predictions."""

import csv
import json
import math
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn

from repshare.errors import ConfigError
from repshare.imports import in_one_line
from repshare.network.learner import FILE as MODEL
from repshare.network.models import split
from repshare.party.classifier import SpaceClassifier, load_classifier
from repshare.party.party import Party, load_party, read_data
from repshare.randomness import derive
from repshare.samples import EVALUATION_BATCH, Samples
from repshare.sharing.columns import Column
from repshare.space.learner import FILE as CLASSIFIER
from repshare.table import read_table


class Learned:
    """The state folder of `join` or `peer`, read for use: nothing in it is changed."""

    def __init__(self, folder: Path, reference: str | None = None) -> None:
        """`reference` names the party's function, file.py:function, as for `join`."""
        self.folder, self.described = folder, _read_json(folder / "run.json")
        if not {"client", "task", "seed"} <= self.described.keys():
            raise ConfigError(f"{folder} is no state folder of join or peer: its run.json names no client and task")
        if not self.has_model and not self.has_classifier:
            raise ConfigError(f"{folder} has no model yet: no round was done there")
        seed = derive(self.described["seed"], self.described["client"], "model")
        self.party: Party | None = None if reference is None else load_party(reference, seed)

    @property
    def has_model(self) -> bool:
        """Whether a model of the party's own was trained."""
        return (self.folder / MODEL).exists()

    @property
    def has_classifier(self) -> bool:
        """Whether there is a common classifier."""
        return (self.folder / CLASSIFIER).exists()

    @property
    def class_names(self) -> Sequence[str]:
        """The names of the classes; none if they are not known."""
        agreed = self.classifier.agreement.class_names if self.has_classifier else ()
        return agreed or (() if self.party is None else self.party.class_names)

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        """The weights of the model, by their names in its state_dict."""
        try:
            weights = safetensors.torch.load_file(self.folder / MODEL)
        except (OSError, safetensors.SafetensorError) as error:
            raise ConfigError(f"{self.folder / MODEL} cannot be read: {in_one_line(error)}") from error
        if strange := [name for name, tensor in weights.items() if not tensor.isfinite().all()]:
            raise ConfigError(f"{self.folder / MODEL} has numbers that are not finite in {strange[0]}")
        return weights

    @cached_property
    def model(self) -> nn.Module:
        """The party's model with its weights, in evaluation mode."""
        if self.party is None:
            raise ConfigError("the folder has weights, and no code of the model: give --party file.py:function")
        model = self.party.model
        if model is None:
            raise ConfigError("the folder has weights, and the party no model: Party(model=…, data=…)")
        try:
            model.load_state_dict(self.weights)
        except RuntimeError as error:
            kind = type(model).__name__
            raise ConfigError(f"the weights in {self.folder} are not of {kind}: {in_one_line(error)[:300]}") from error
        return model.eval()

    @cached_property
    def classifier(self) -> SpaceClassifier:
        """The common classifier."""
        return load_classifier(self.folder / CLASSIFIER, backbone="" if self.party is None else self.party.backbone)

    def samples(self) -> Samples:
        """The party's test data; without any, its training data."""
        if self.party is None:
            raise ConfigError("give --party file.py:function, whose data are used")
        data, test = read_data(self.party, self.classifier.agreement if self.has_classifier else None)
        return Samples(data if test is None else test)

    def probabilities(self, samples: Samples) -> Tensor:
        """The probability of each class for each of these samples (n, C), by what the party is tested by."""
        if self.has_classifier and self.has_model:
            raise ConfigError(
                f"{self.folder} has a network beside a common classifier: the last version that reads it is 055caf8"
            )
        if self.has_classifier:
            found = [self.classifier.probabilities(batch) for batch, _ in samples.in_order(EVALUATION_BATCH)]
            return torch.cat(found).double()
        return self._logits(samples).double().softmax(dim=1)

    def _logits(self, samples: Samples) -> Tensor:
        model, head = self.model, None if self.party is None else self.party.head
        network = split(model, samples.batch(torch.arange(1))[0], head)
        with torch.inference_mode():
            return torch.cat([network(inputs)[1].float() for inputs, _ in samples.in_order(EVALUATION_BATCH)])


def read_named(path: Path, columns: Sequence[Column]) -> Samples:
    """Return the inputs in a .csv file with named columns. Columns that are not agreed on are ignored."""
    if path.suffix != ".csv":
        raise ConfigError(f"{path} has no names of columns, by which the task's tables are read: give a .csv file")
    return Samples(read_table(path, columns, ignored=None))


def read_inputs(path: Path, example: Any) -> Samples:
    """The inputs in an .npy or .csv file, in the form of the example: one sample of the party's data.

    In a .csv, a row is a sample, all its numbers one after the other; a first row of names is skipped.
    """
    if not isinstance(example, Tensor):
        raise ConfigError(f"the party's inputs are a {type(example).__name__}, which no file holds: leave --input out")
    shape = tuple(example.shape[1:])
    array = _read_csv(path) if path.suffix == ".csv" else _read_npy(path)
    if path.suffix == ".csv" and array.shape[1] == math.prod(shape):
        array = array.reshape(-1, *shape)
    if array.shape[1:] != shape or not len(array):
        raise ConfigError(f"{path} has inputs of shape {array.shape}, not (n, {', '.join(map(str, shape))})")
    inputs = torch.from_numpy(array).to(example.dtype)
    return Samples((inputs, torch.zeros(len(inputs), dtype=torch.int64)))


def _read_npy(path: Path) -> Any:
    try:
        array = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as .npy: {in_one_line(error)}") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "fiub":
        raise ConfigError(f"{path} is no array of numbers")
    return array


def _read_csv(path: Path) -> Any:
    try:
        with path.open(newline="") as file:
            rows = [row for row in csv.reader(file) if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ConfigError(f"{path} cannot be read as .csv: {in_one_line(error)}") from error
    if rows and not any(map(_is_number, rows[0])):
        rows = rows[1:]
    for number, row in enumerate(rows):
        if len(row) != len(rows[0]) or not all(map(_is_number, row)):
            raise ConfigError(f"{path}: sample {number} is not {len(rows[0])} numbers")
    return np.array(rows, np.float64).reshape(len(rows), -1)


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _read_json(path: Path) -> dict[str, Any]:
    try:
        read = json.loads(path.read_text())
    except FileNotFoundError as error:
        raise ConfigError(f"{path.parent} is no state folder of join or peer: there is no {path}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    if not isinstance(read, dict):
        raise ConfigError(f"{path} is damaged: it is no description")
    return read
