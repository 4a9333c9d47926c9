"""Classifiers as the paper sees them: features φ, then one linear head τ.

`LeNet5` is the paper's smallest. `split` finds the same two halves in any other PyTorch classifier that ends in a
linear layer, and leaves it unchanged.
"""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from repshare.errors import ModelError


class Classifier(nn.Module):
    """Layers that end in d' features, then one linear head."""

    def __init__(self, classes: int, dimension: int, *layers: nn.Module) -> None:
        super().__init__()
        self.features = nn.Sequential(*layers)
        self.head = nn.Linear(dimension, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, channels, h, w) to logits (n, classes)."""
        return self.head(self.features(images))  # type: ignore[no-any-return]


class LeNet5(Classifier):
    """Three small convolutions: 30,986 parameters with one channel, ten classes and d' = 84.

    The paper's ReLU before each pooling stands after it here: the same function and the same gradients, to the last
    bit, on a quarter of the numbers.
    """

    def __init__(self, channels: int = 1, classes: int = 10, dimension: int = 84) -> None:
        """Create the network with random weights.

        Args:
            channels: Channels of an image.
            classes: Number of classes.
            dimension: d', the length of a representation.
        """
        super().__init__(
            classes, dimension,
            nn.Conv2d(channels, 6, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(inplace=True),
            nn.Conv2d(6, 16, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(inplace=True),
            nn.Conv2d(16, 120, 3, padding=1), nn.ReLU(inplace=True),
            *project(120, dimension),
        )  # fmt: skip


class GlobalAverage(nn.Module):
    """The mean over all places. Its gradient keeps the channels last, which AdaptiveAvgPool2d's does not."""

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, channels, h, w) to (n, channels)."""
        return images.sum(dim=(2, 3)) / (images.shape[2] * images.shape[3])


def project(width: int, dimension: int) -> list[nn.Module]:
    """The last layers before the head: from `width` channels to features of this dimension."""
    return [GlobalAverage(), nn.Linear(width, dimension), nn.Tanh()]


class Network:
    """A classifier seen as features φ followed by a linear head τ; made by `split`."""

    def __init__(self, model: nn.Module, head_name: str) -> None:
        head = model.get_submodule(head_name)
        if not isinstance(head, nn.Linear):
            raise ModelError(f"{head_name!r} is a {type(head).__name__}, not an nn.Linear")
        if head.out_features == 1:
            raise ModelError(
                f"{head_name!r} has one output: give it one a class, two for two classes (38a6b14d is the last commit "
                "that takes a single logit)"
            )
        self.model, self.head, self.head_name = model, head, head_name

    @property
    def dimension(self) -> int:
        """d', the length of a representation."""
        return self.head.in_features

    @property
    def classes(self) -> int:
        """C, the number of logits."""
        return self.head.out_features

    def __call__(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Features φ(x) (n, d') and logits τ(φ(x)) (n, C) of a batch."""
        seen: list[tuple[Tensor, Tensor]] = []
        with self.head.register_forward_hook(lambda _, given, logits: seen.append((given[0], logits))):
            call_model(self.model, inputs)
        if not seen or seen[-1][0].ndim != 2:
            shape = tuple(seen[-1][0].shape) if seen else "nothing"
            raise ModelError(f"the head {self.head_name!r} was given {shape}, not one vector a sample")
        return seen[-1]


def split(model: nn.Module, example: Any, head: str | None = None) -> Network:
    """Find the linear layer whose output is the model's output: what enters it are the features.

    Args:
        model: A classifier.
        example: A batch of inputs (a mapping is passed as keywords). The model sees it once, in evaluation mode.
        head: The name of the layer, if something follows it: its output then counts as the logits.
    """
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    kind = type(model).__name__
    if not layers:
        raise ModelError(f"{kind} has no linear layer: it must end in an nn.Linear that gives the logits")
    if head is not None and head not in layers:
        raise ModelError(f"{kind} has no linear layer {head!r}; it has {', '.join(layers)}")
    try:
        found = _ending(model, example, layers) if head is None else head
        network = None if found is None else Network(model, found)
        if network is not None:
            leave_no_trace(model, lambda: network(example))
    except (RuntimeError, TypeError, ValueError) as error:
        shape = f", a batch of shape {tuple(example.shape)}" if isinstance(example, Tensor) else ""
        hint = _compare_types(model, example)
        raise ModelError(f"{kind} cannot take the data{shape}: {str(error).splitlines()[0]}{hint}") from error
    if network is None:
        raise ModelError(
            f"{kind} does not end in a linear layer: none of {', '.join(layers)} gives the model's output. "
            "Remove what follows it (a softmax, say), or name the layer whose output are the logits (head)"
        )
    return network


def _compare_types(model: nn.Module, example: Any) -> str:
    """Advice about inputs that are numbers of another type than the weights; nothing if they are not."""
    weights = next(model.parameters()).dtype
    if not isinstance(example, Tensor) or example.dtype == weights:
        return ""
    told = f". The inputs are {example.dtype} and the weights {weights}: unless they are token ids, convert the inputs"
    return told.replace("torch.", "")


def _ending(model: nn.Module, example: Any, layers: Mapping[str, nn.Module]) -> str | None:
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda _, __, output: outputs.__setitem__(name, output)

    with ExitStack() as hooks:
        for name, layer in layers.items():
            hooks.enter_context(layer.register_forward_hook(keep(name)))
        answer = leave_no_trace(model, lambda: call_model(model, example))
    return next((name for name, output in outputs.items() if output is answer), None)


def leave_no_trace(model: nn.Module, ask: Callable[[], Any]) -> Any:
    """Ask the model something in evaluation mode, which leaves no trace in it."""
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            return ask()
    finally:
        model.train(was_training)


def call_model(model: nn.Module, inputs: Any) -> Any:
    """The model's answer: the logits themselves, in a tuple, or in an object as Hugging Face's models give."""
    answer = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
    answer = getattr(answer, "logits", answer)
    return answer[0] if isinstance(answer, tuple) and answer else answer
