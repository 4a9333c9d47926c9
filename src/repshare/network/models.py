"""Classifiers as the paper sees them: features φ, then one linear head τ.

`LeNet5`, `ResNet9` and `ResNet18` are the paper's; `ConvNet` and `MLP` are small ones of other kinds; `MLP` is for
tables, too, and `Bag` for token ids. `split` finds the same two halves in any other PyTorch classifier that ends in a
linear layer, and leaves it unchanged.
"""

import inspect
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from repshare.errors import ConfigError, ModelError
from repshare.imports import find_function, in_one_line, is_reference


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
            *_project(120, dimension),
        )  # fmt: skip


class ConvNet(Classifier):
    """Two convolutions and a dense layer: 16,486 parameters with one channel, ten classes and d' = 84."""

    def __init__(self, channels: int = 1, classes: int = 10, dimension: int = 84) -> None:
        super().__init__(
            classes, dimension,
            nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(),
            nn.Linear(128, dimension), nn.Tanh(),
        )  # fmt: skip


class MLP(Classifier):
    """Dense layers on an image of 8 × 8: 20,006 parameters with one channel, ten classes and d' = 84.

    With `features`, the same layers on the columns of a table.
    """

    def __init__(
        self, channels: int = 1, classes: int = 10, dimension: int = 84, *, features: int | None = None
    ) -> None:
        pixels = [nn.AdaptiveAvgPool2d(8)] if features is None else []
        super().__init__(
            classes, dimension,
            *pixels, nn.Flatten(),
            nn.Linear(features or 64 * channels, 128), nn.ReLU(),
            nn.Linear(128, dimension), nn.Tanh(),
        )  # fmt: skip


class Bag(Classifier):
    """The mean of the tokens' embeddings, whatever their order, and a dense layer. Token 0 fills up, and counts not."""

    def __init__(self, tokens: int, classes: int = 10, dimension: int = 84) -> None:
        super().__init__(
            classes, dimension,
            nn.EmbeddingBag(tokens, 64, mode="mean", padding_idx=0),
            nn.Linear(64, dimension), nn.Tanh(),
        )  # fmt: skip


class ResNet9(Classifier):
    """Two residual blocks: 2,470,730 parameters with one channel, ten classes and d' = 128."""

    def __init__(self, channels: int = 1, classes: int = 10, dimension: int = 128) -> None:
        """Create the network with random weights.

        Args:
            channels: Channels of an image.
            classes: Number of classes.
            dimension: d', the length of a representation.
        """
        super().__init__(
            classes, dimension,
            _convolution(channels, 64),
            _convolution(64, 128), nn.MaxPool2d(2),
            Residual(128, 128),
            _convolution(128, 256), nn.MaxPool2d(2),
            _convolution(256, 256), nn.MaxPool2d(2),
            Residual(256, 256), nn.MaxPool2d(2),
            *_project(256, dimension),
        )  # fmt: skip


class ResNet18(Classifier):
    """Eight residual blocks: 11,302,730 parameters with three channels, ten classes and d' = 256."""

    def __init__(self, channels: int = 3, classes: int = 10, dimension: int = 256) -> None:
        """Create the network with random weights.

        Args:
            channels: Channels of an image.
            classes: Number of classes.
            dimension: d', the length of a representation.
        """
        super().__init__(
            classes, dimension,
            _convolution(channels, 64),
            Residual(64, 64), Residual(64, 64),
            Residual(64, 128, stride=2), Residual(128, 128),
            Residual(128, 256, stride=2), Residual(256, 256),
            Residual(256, 512, stride=2), Residual(512, 512),
            *_project(512, dimension),
        )  # fmt: skip


class Residual(nn.Module):
    """Two convolutions, each normalised and rectified, added to a shortcut; nothing after the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(_convolution(inputs, outputs, stride), _convolution(outputs, outputs))
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, inputs, h, w) to (n, outputs, h / stride, w / stride)."""
        return self.body(images) + self.shortcut(images)  # type: ignore[no-any-return]


class GlobalAverage(nn.Module):
    """The mean over all places. Its gradient keeps the channels last, which AdaptiveAvgPool2d's does not."""

    def forward(self, images: Tensor) -> Tensor:
        """Map images (n, channels, h, w) to (n, channels)."""
        return images.sum(dim=(2, 3)) / (images.shape[2] * images.shape[3])


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


def _project(width: int, dimension: int) -> list[nn.Module]:
    return [GlobalAverage(), nn.Linear(width, dimension), nn.Tanh()]


MODELS: dict[str, Callable[..., nn.Module]] = {
    made.__name__.lower(): made for made in (LeNet5, ConvNet, MLP, Bag, ResNet9, ResNet18)
}


def build(name: str, *, classes: int, dimension: int | None, seed: int, **sizes: int) -> nn.Module:
    """Make a model by name, or by calling `file.py:function` with those of these arguments that it takes.

    `sizes` are the data's: `channels` of images, `features` (columns) of tables, `tokens` of token ids. The same seed
    gives the same weights, whatever else has drawn random numbers before.
    """
    if not is_reference(name) and name not in MODELS:
        raise ConfigError(f"unknown model {name!r}: choose {', '.join(MODELS)}, or your own as file.py:function")
    make = find_function(name) if is_reference(name) else MODELS[name]
    if is_reference(name) and dimension is not None:
        raise ConfigError(f"{name} decides on its own dimension: leave --dimension {dimension} out")
    taken = inspect.signature(make).parameters
    if not is_reference(name) and not set(sizes) & set(taken):
        told = ", ".join(f"{size}={value}" for size, value in sizes.items()) or "inputs of another kind"
        raise ModelError(
            f"{name} cannot take the data ({told}): choose mlp (tables), bag (token ids) or your own model"
        )
    offered = {**sizes, "classes": classes, **({} if dimension is None else {"dimension": dimension})}
    if not any(each.kind is each.VAR_KEYWORD for each in taken.values()):
        offered = {argument: value for argument, value in offered.items() if argument in taken}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            model = make(**offered)
        except (Exception, SystemExit) as error:  # may be the user's own code
            told = ", ".join(f"{argument}={value}" for argument, value in offered.items()) or "no arguments"
            raise ModelError(f"{name} could not be built with {told}: {in_one_line(error)}") from error
    if not isinstance(model, nn.Module):
        raise ModelError(f"{name} gave a {type(model).__name__}, not a torch.nn.Module")
    return model


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
