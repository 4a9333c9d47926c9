"""The number format that a network computes with: chosen once, and kept where a run is resumed."""

from typing import Literal

import torch
from torch import nn

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
