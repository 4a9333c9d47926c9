"""PyTorch's optimizers, without its compiler: the same steps, to the same bits.

PyTorch wraps some methods of an optimizer so that `torch.compile` leaves them alone. The first call of one imports the
whole compiler, which takes longer than a client's first round. Nothing here is compiled: so the methods are unwrapped.
"""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch.optim import SGD, Adam, AdamW, Optimizer

WRAPPED = ("add_param_group", "zero_grad", "state_dict", "load_state_dict")


def _without_compiler(kind: type[Optimizer]) -> type[Optimizer]:
    """Return the same optimizer with its methods as they were before they were wrapped."""
    plain: dict[str, Any] = {name: inspect.unwrap(getattr(kind, name)) for name in WRAPPED}
    plain["step"] = torch.no_grad()(inspect.unwrap(kind.step))  # what the wrapping of a step does, besides
    return type(kind.__name__, (kind,), plain)


OPTIMIZERS: dict[str, Callable[..., Optimizer]] = {
    "adam": _without_compiler(Adam),
    "adamw": _without_compiler(AdamW),
    "sgd": _without_compiler(SGD),
}
