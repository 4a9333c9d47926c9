"""The common classifier that a party has in hand: a file, and its use without any other client."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from repshare.errors import ConfigError, Malformed
from repshare.samples import without_labels
from repshare.sharing import wire
from repshare.space import Backbone
from repshare.space.agreement import Agreement, read_agreement
from repshare.space.model import OWN_MIX, Linear, as_probabilities
from repshare.table import check_rows, is_table, read_table


class SpaceClassifier(NamedTuple):
    """A common classifier, with the space that it is in. Called with a batch of inputs, it names their classes."""

    linear: Linear
    """Weights (C, d), centre (d,) and offset (C,) in the common space."""
    agreement: Agreement
    """What its clients agreed on: the space, the names of the classes, the range of the inputs."""
    round: int
    """The client's round that it was kept after."""
    samples: int
    """The number of samples of all clients behind what they share."""
    in_use: str | None = None
    """Whose classifier it is: that of all clients `together`, the same for the client's `own mix` of classes, or the
    client's own, `alone`. None: not known."""

    def __call__(self, inputs: Any) -> list[str]:
        """The class of each input by name; by number, where the clients agreed on no names."""
        names = self.agreement.class_names
        return [names[label] if names else str(label) for label in self.scores(inputs).argmax(1).tolist()]

    def scores(self, inputs: Any) -> Tensor:
        """A score for each input and class (n, C). The largest one is the class.

        Args:
            inputs: A batch of inputs, a tensor or an array, as the clients train with; of a table with named columns,
                the path of a .csv file or a DataFrame.
        """
        if is_table(inputs):
            inputs = read_table(inputs, self.agreement.columns, ignored=None).inputs
        elif self.agreement.columns:
            check_rows(inputs, self.agreement.columns)
        if self.agreement.inputs is not None:  # a dark image was not scaled otherwise
            low, high = self.agreement.inputs
            least, largest = float(torch.as_tensor(inputs).min()), float(torch.as_tensor(inputs).max())
            self.agreement.check_range(min(low, least), max(high, largest), "these inputs")
        return torch.from_numpy(self.agreement.scores(self.linear, without_labels(inputs, "cpu")))

    def probabilities(self, inputs: Any) -> Tensor:
        """Probabilities (n, C). With squared loss they are rough: scores, cut off below 0, that add up to 1.

        Args:
            inputs: A batch of inputs, a tensor or an array, as the clients train with.
        """
        adjusted, scores = self.in_use == OWN_MIX, self.scores(inputs).numpy()
        return torch.from_numpy(as_probabilities(scores, self.agreement.loss, logarithms=adjusted)).float()


def load_classifier(path: str | Path, *, backbone: str = "") -> SpaceClassifier:
    """The common classifier that `repshare join` or `peer` kept. Its space is made anew from its description.

    Args:
        path: The file classifier.safetensors in the state folder.
        backbone: Where the common space is a backbone without a recipe: your module as file.py:function. It must be
            the one that was agreed on.
    """
    try:
        arrays, known = wire.decode_classifier(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except Malformed as error:
        raise ConfigError(f"{path} is no classifier: {error}") from error
    agreement = known.pop("agreement")
    if agreement.get("space") == Backbone.name and not (backbone or agreement.get("recipe")):
        raise ConfigError(f'the space of {path} is a backbone: give yours as backbone="file.py:function"')
    common = read_agreement(json.dumps(agreement), module=backbone)
    if common.space.dimension != len(arrays["centre"]):
        raise ConfigError(f"{path} has {len(arrays['centre'])} dimensions, its space {common.space.dimension}")
    return SpaceClassifier(Linear(**arrays), common, **known)
