"""A frozen module made fast: fused layers, channels last, bf16 where the processor has it."""

import ctypes
import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_weights

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them
KEPT_BYTES = 1 << 30


@cache
def keep_freed_memory() -> None:
    """Let glibc give freed memory to the next step, not to the system and back: that takes twice as long as a layer."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(M_TRIM_THRESHOLD, KEPT_BYTES)
        libc.mallopt(M_MMAP_THRESHOLD, KEPT_BYTES)


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread: sums then have one order, whatever the processor."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def call(module: nn.Module, batch: Any) -> Any:
    """A module's answer to a batch, a mapping being passed as keywords."""
    return module(**batch) if isinstance(batch, Mapping) else module(batch)


def speed_up(module: nn.Module, batch: Any) -> bool:
    """Fuse batch normalisations with the convolutions before them, channels last. The caller compares answers.

    Which these are shows when the batch goes through: no code of the module is read. Returns whether there are any.
    """
    made: dict[int, tuple[nn.Conv2d, Tensor]] = {}  # by the identity of the answer, which is kept so that it stays one
    pairs, calls = list[tuple[nn.Conv2d, nn.BatchNorm2d]](), Counter[nn.Module]()

    def note(layer: nn.Module, given: tuple[Any, ...], answer: Any) -> None:
        calls[layer] += 1
        if isinstance(layer, nn.Conv2d):
            made[id(answer)] = layer, answer
        elif isinstance(layer, nn.BatchNorm2d) and id(given[0]) in made:
            pairs.append((made[id(given[0])][0], layer))

    hooks = [each.register_forward_hook(note) for each in module.modules()]
    try:
        call(module, batch)
    except Exception:  # the user's own code, which is called again as it is
        return False
    finally:
        for hook in hooks:
            hook.remove()
    fused = set[nn.Module]()
    for conv, norm in pairs:
        if calls[conv] == calls[norm] == 1 and norm.running_mean is not None and norm.running_var is not None:
            conv.weight, conv.bias = fuse_conv_bn_weights(
                conv.weight, conv.bias, norm.running_mean, norm.running_var, norm.eps, norm.weight, norm.bias
            )
            fused.add(norm)
    for parent in module.modules():
        for name, child in parent.named_children():
            if child in fused:
                setattr(parent, name, nn.Identity())
    module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return bool(fused)


def has_bf16(device: torch.device) -> bool:
    """Whether bf16 is faster than fp32 there."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported())
    return device.type == "cpu" and bool(torch.cpu.get_capabilities().get("avx512_bf16"))


def precision(compute: str, device: torch.device) -> AbstractContextManager[Any]:
    """The arithmetic of a map: bf16 where the task allows it and the processor has it, else fp32."""
    return torch.autocast(device.type, torch.bfloat16, enabled=compute == "bf16" and has_bf16(device))
