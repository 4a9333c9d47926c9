"""PyTorch's optimizers without its compiler, and the size of a network.

PyTorch wraps some methods of an optimizer so that `torch.compile` leaves them alone. The first call of one imports the
whole compiler, which takes longer than a client's first round. Nothing here is compiled: so the methods are unwrapped.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

LARGE = 1_000_000  # parameters: what ResNet9 and ResNet18 compute fits caches in smaller batches only


def count_parameters(model: nn.Module) -> int:
    """Count the numbers that a network learns."""
    return sum(parameter.numel() for parameter in model.parameters())


def is_large(model: nn.Module) -> bool:
    """Whether a network is tested faster in small batches."""
    return count_parameters(model) >= LARGE


WRAPPED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def _without_compiler(kind: type[Optimizer]) -> type[Optimizer]:
    """The same optimizer with its methods as they were before they were wrapped."""
    plain: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in WRAPPED}
    plain["step"] = torch.no_grad()(inspect.unwrap(kind.step))  # as the wrapped step has it
    return type(kind.__name__, (kind,), plain)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": _without_compiler(Adam),
    "adamw": _without_compiler(AdamW),
    "sgd": _without_compiler(SGD),
}
