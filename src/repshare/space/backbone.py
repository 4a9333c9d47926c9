"""`backbone`: a module of the client's own as the map, from timm or Hugging Face say. The task states a hash of it.

Code and weights never come from the relay: every client has them from where it trusts, and the task states their
SHA-256. A client whose weights differ is refused before anything is shared.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from repshare.errors import ConfigError, DataError, ModelError
from repshare.imports import find_function, in_one_line
from repshare.measures import Representation
from repshare.network.features import passes_on
from repshare.space.filters import lengthen
from repshare.space.space import Space

BATCH = 50


@dataclass(frozen=True)
class Backbone(Space):
    """The module that `module` (file.py:function) returns, in evaluation mode, its output brought to length √d."""

    name: ClassVar[str] = "backbone"

    sha256: str
    """Of the module's weights, as `hash_weights` counts them: 64 hexadecimal digits."""
    features: int
    """d: how many numbers the module gives for a sample."""
    module: str = field(default="", compare=False)
    """The source of this client's module. It is the client's own matter, and no part of the description."""

    @property
    def dimension(self) -> int:
        """d, the length of a vector in numbers."""
        return self.features

    def __call__(self, inputs: Any) -> Tensor:
        """Map a batch, a mapping being passed as keywords, to (n, d)."""
        module = self._module
        size = len(next(iter(inputs.values()))) if isinstance(inputs, Mapping) else len(inputs)
        rows = []
        with torch.inference_mode():
            for start in range(0, size, BATCH):
                rows.append(self._embed(module, _slice(inputs, start)))
        return torch.cat(rows)

    def examine(self, inputs: Any) -> Representation:
        """Count the module's layers that have parameters, and see whether it only passes inputs on."""
        own = [sum(each.numel() for each in layer.parameters(recurse=False)) for layer in self._module.modules()]
        layers = sum(count > 0 for count in own)
        return Representation(self.dimension, layers, sum(own), passes_on(self, inputs))

    def _embed(self, module: nn.Module, batch: Any) -> Tensor:
        try:
            vectors = _vectors(module(**batch) if isinstance(batch, Mapping) else module(batch)).float()
        except (RuntimeError, TypeError, ValueError) as error:
            raise DataError(f"the backbone {self.module} cannot take the data: {in_one_line(error)}") from error
        if vectors.ndim != 2 or vectors.shape[1] != self.features:
            shape = tuple(vectors.shape[1:])
            raise DataError(
                f"the backbone {self.module} gives {shape} for a sample; the task's has {self.features} numbers"
            )
        return lengthen(vectors)

    @cached_property
    def _module(self) -> nn.Module:
        try:
            module = find_function(self.module)()
        except (Exception, SystemExit) as error:  # the user's own code
            raise ModelError(f"{self.module} could not be built: {in_one_line(error)}") from error
        if not isinstance(module, nn.Module):
            raise ModelError(f"{self.module} gave a {type(module).__name__}, not a torch.nn.Module")
        if (own := hash_weights(module)) != self.sha256:
            raise ConfigError(
                f"the task's backbone has weights {self.sha256[:16]}…, those of {self.module} are {own[:16]}…"
            )
        return module.eval()


def hash_weights(module: nn.Module) -> str:
    """The SHA-256 over the names, types, shapes and bytes of a module's tensors, in the order of their names.

    Args:
        module: The module.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        kept = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {kept.dtype} {tuple(kept.shape)}\n".encode())
        digest.update(kept.flatten().view(torch.uint8).numpy().tobytes() if kept.numel() else b"")
    return digest.hexdigest()


def measure(module: str, example: Any) -> Backbone:
    """A module as a space, for the one who makes a task of it.

    Args:
        module: A function as file.py:function that returns the module.
        example: A batch of inputs.
    """
    made = find_function(module)()
    if not isinstance(made, nn.Module):
        raise ModelError(f"{module} gave a {type(made).__name__}, not a torch.nn.Module")
    made.eval()
    with torch.inference_mode():
        given = _vectors(made(**example) if isinstance(example, Mapping) else made(example))
    return Backbone(hash_weights(made), int(given.shape[-1]), module)


def _vectors(answer: Any) -> Tensor:
    """One vector a sample: the answer itself, or what Hugging Face's models call it."""
    for name in ("pooler_output", "logits"):
        if getattr(answer, name, None) is not None:
            return _flat(getattr(answer, name))
    if getattr(answer, "last_hidden_state", None) is not None:
        return _flat(answer.last_hidden_state.mean(dim=1))
    return _flat(answer[0] if isinstance(answer, tuple) else answer)


def _flat(answer: Any) -> Tensor:
    if not isinstance(answer, Tensor):
        raise TypeError(f"it gave a {type(answer).__name__}, not a tensor")
    return answer.flatten(1)


def _slice(inputs: Any, start: int) -> Any:
    if isinstance(inputs, Mapping):
        return {name: tensor[start : start + BATCH] for name, tensor in inputs.items()}
    return inputs[start : start + BATCH]
