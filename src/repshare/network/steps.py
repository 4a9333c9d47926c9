"""The computation of a network's steps: its number format, and PyTorch's optimizers without its compiler.

The format is chosen once, and kept where a run is resumed.

PyTorch wraps some methods of an optimizer so that `torch.compile` leaves them alone. The first call of one imports the
whole compiler, which takes longer than a client's first round. Nothing here is compiled: so the methods are unwrapped.
"""

import inspect
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import nn
from torch.optim import SGD, Adam, AdamW, Optimizer

from repshare.config import Policy

LARGE = 1_000_000  # parameters: ResNet9 has 2.5 million and gains, LeNet5 has 60 thousand and loses


def has_bf16() -> bool:
    """Whether this processor multiplies bf16 itself (AVX-512 BF16 or AMX). Others imitate it, slowly."""
    able = torch.cpu.get_capabilities()
    return bool(able.get("avx512_bf16") or able.get("amx_bf16"))


def choose_compute(policy: Policy, device: str, *, large: bool) -> Literal["fp32", "bf16"]:
    """Return the format to compute with; for `auto`, bf16 where this processor and the network gain by it."""
    if policy.compute != "auto":
        return policy.compute
    gains = device == "cpu" and large and has_bf16()
    return "bf16" if gains else "fp32"


def count_parameters(model: nn.Module) -> int:
    """Count the numbers that a network learns."""
    return sum(parameter.numel() for parameter in model.parameters())


def is_large(model: nn.Module) -> bool:
    """Whether a network is large enough to gain by bf16."""
    return count_parameters(model) >= LARGE


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
