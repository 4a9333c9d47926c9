"""The laboratory's networks by name: the paper's residual ones, and small ones of other kinds."""

import inspect
from collections.abc import Callable

import torch
from torch import Tensor, nn

from repshare.errors import ConfigError, ModelError
from repshare.imports import find_function, in_one_line, is_reference
from repshare.network.models import Classifier, LeNet5, project


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
            *project(256, dimension),
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
            *project(512, dimension),
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


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(inplace=True)
    )


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
