"""Classifiers as the paper sees them: features φ, then one linear head τ.

`LeNet5`, `ResNet9` and `ResNet18` are the paper's. `split` finds the same two halves in any other PyTorch
classifier that ends in a linear layer, and leaves it unchanged.
"""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from repshare.errors import ConfigError, ModelError
from repshare.references import find_function, is_reference


class LeNet5(nn.Module):
    """Three small convolutions: 30,986 parameters with one channel, ten classes and d' = 84.

    The paper's ReLU before each pooling stands after it here: the same function and the same gradients, to the last
    bit, on a quarter of the numbers.
    """

    def __init__(self, channels: int = 1, classes: int = 10, dimension: int = 84) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(channels, 6, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(6, 16, 5, padding=2), nn.MaxPool2d(2), nn.ReLU(),
            nn.Conv2d(16, 120, 3, padding=1), nn.ReLU(),
            *_project(120, dimension),
        )  # fmt: skip
        self.head = nn.Linear(dimension, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, h, w) to logits (n, classes)."""
        return self.head(self.features(images))  # type: ignore[no-any-return]


class ResNet9(nn.Module):
    """Two residual blocks: 2,470,730 parameters with one channel, ten classes and d' = 128."""

    def __init__(self, channels: int = 1, classes: int = 10, dimension: int = 128) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _convolution(channels, 64),
            _convolution(64, 128), nn.MaxPool2d(2),
            Residual(128, 128),
            _convolution(128, 256), nn.MaxPool2d(2),
            _convolution(256, 256), nn.MaxPool2d(2),
            Residual(256, 256), nn.MaxPool2d(2),
            *_project(256, dimension),
        )  # fmt: skip
        self.head = nn.Linear(dimension, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, h, w) to logits (n, classes)."""
        return self.head(self.features(images))  # type: ignore[no-any-return]


class ResNet18(nn.Module):
    """Eight residual blocks: 11,302,730 parameters with three channels, ten classes and d' = 256."""

    def __init__(self, channels: int = 3, classes: int = 10, dimension: int = 256) -> None:
        super().__init__()
        self.features = nn.Sequential(
            _convolution(channels, 64),
            Residual(64, 64), Residual(64, 64),
            Residual(64, 128, stride=2), Residual(128, 128),
            Residual(128, 256, stride=2), Residual(256, 256),
            Residual(256, 512, stride=2), Residual(512, 512),
            *_project(512, dimension),
        )  # fmt: skip
        self.head = nn.Linear(dimension, classes)

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, h, w) to logits (n, classes)."""
        return self.head(self.features(images))  # type: ignore[no-any-return]


class Residual(nn.Module):
    """Two convolutions, each normalised and rectified, added to a shortcut; nothing after the sum."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1) -> None:
        super().__init__()
        self.body = nn.Sequential(_convolution(inputs, outputs, stride), _convolution(outputs, outputs))
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, inputs, h, w) to (n, outputs, h / stride, w / stride)."""
        return self.body(images) + self.shortcut(images)  # type: ignore[no-any-return]


class GlobalAverage(nn.Module):
    """The mean over all places. Its gradient keeps the channels last, which AdaptiveAvgPool2d's does not."""

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, channels, h, w) to (n, channels)."""
        return images.sum(dim=(2, 3)) / (images.shape[2] * images.shape[3])


def _convolution(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()
    )


def _project(width: int, dimension: int) -> list[nn.Module]:
    return [GlobalAverage(), nn.Linear(width, dimension), nn.Tanh()]


MODELS: dict[str, Callable[..., nn.Module]] = {"lenet5": LeNet5, "resnet9": ResNet9, "resnet18": ResNet18}


def build(name: str, *, channels: int, classes: int, dimension: int | None, seed: int) -> nn.Module:
    """Make a model by name, or by calling `file.py:function` with `channels` and `classes`.

    The same seed gives the same weights, whatever else has drawn random numbers before.
    """
    width = {} if dimension is None else {"dimension": dimension}
    if is_reference(name):
        make, width = find_function(name), {}
    elif name in MODELS:
        make = MODELS[name]
    else:
        raise ConfigError(f"unknown model {name!r}: choose {', '.join(MODELS)}, or your own as file.py:function")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = make(channels=channels, classes=classes, **width)
    if not isinstance(model, nn.Module):
        raise ModelError(f"{name} gave a {type(model).__name__}, not a torch.nn.Module")
    return model


class Network:
    """A classifier seen as features φ followed by a linear head τ; made by `split`."""

    def __init__(self, model: nn.Module, head_name: str) -> None:
        head = model.get_submodule(head_name)
        if not isinstance(head, nn.Linear):
            raise ModelError(f"{head_name!r} is a {type(head).__name__}, not an nn.Linear")
        self.model, self.head, self.head_name = model, head, head_name
        self._features: Tensor | None = None
        head.register_forward_pre_hook(self._keep_features)

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
        logits = _logits(self.model, inputs)
        features, self._features = self._features, None
        if features is None or features.ndim != 2:
            shape = "nothing" if features is None else tuple(features.shape)
            raise ModelError(f"the head {self.head_name!r} was given {shape}, not one vector a sample")
        return features, logits

    def _keep_features(self, _: nn.Module, arguments: tuple[Tensor, ...]) -> None:
        self._features = arguments[0]


def split(model: nn.Module, example: Any, head: str | None = None) -> Network:
    """Find the linear layer whose output is the model's output: what enters it are the features.

    `example` is a batch of inputs (a mapping is passed as keywords); the model sees it once, in evaluation
    mode. Where the search cannot know, say `head="name.of.the.layer"`.
    """
    layers = {name: layer for name, layer in model.named_modules() if isinstance(layer, nn.Linear)}
    kind = type(model).__name__
    if not layers:
        raise ModelError(f"{kind} has no linear layer: it must end in an nn.Linear that gives the logits")
    if head is not None and head not in layers:
        raise ModelError(f"{kind} has no linear layer {head!r}; it has {', '.join(layers)}")
    try:
        found = _ending(model, example, {head: layers[head]} if head else layers)
    except (RuntimeError, TypeError, ValueError) as error:
        raise ModelError(f"{kind} cannot take the data{_shape(example)}: {str(error).splitlines()[0]}") from error
    if found is None:
        raise ModelError(
            f"{kind} does not end in a linear layer: none of {', '.join([head] if head else layers)} gives the "
            "model's output. Remove what follows it (a softmax, say), or name the layer with head=…"
        )
    return Network(model, found)


def _ending(model: nn.Module, example: Any, layers: Mapping[str, nn.Module]) -> str | None:
    outputs: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[[nn.Module, Any, Tensor], None]:
        return lambda _, __, output: outputs.__setitem__(name, output)

    hooks = [layer.register_forward_hook(keep(name)) for name, layer in layers.items()]
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            logits = _logits(model, example)
    finally:
        model.train(was_training)
        for hook in hooks:
            hook.remove()
    return next((name for name, output in outputs.items() if output is logits), None)


def _shape(example: Any) -> str:
    return f", a batch of shape {tuple(example.shape)}" if isinstance(example, Tensor) else ""


def _logits(model: nn.Module, inputs: Any) -> Tensor:
    output = model(**inputs) if isinstance(inputs, Mapping) else model(inputs)
    output = getattr(output, "logits", output)  # as Hugging Face's models answer
    if not isinstance(output, Tensor):
        raise ModelError(f"{type(model).__name__} gave a {type(output).__name__}, not a tensor of logits")
    return output
