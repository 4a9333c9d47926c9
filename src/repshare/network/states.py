"""A learner's state as nested containers of tensors: a copy to go back to, and what in it is not finite."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.nn.utils import get_total_norm


def copy_state(state: Any) -> Any:
    """The same with tensors of its own."""
    match state:
        case Tensor():
            return state.detach().clone()
        case Mapping():
            return {key: copy_state(value) for key, value in state.items()}
        case list():
            return [copy_state(value) for value in state]
        case tuple():
            return tuple(copy_state(value) for value in state)
    return state


def seems_finite(state: Any) -> bool:
    """Whether all numbers of a state are finite, by their length: False, too, where that overflows."""
    return bool(get_total_norm(tensor for _, tensor in _numbers(state)).isfinite())


def find_broken(state: Any) -> set[str]:
    """The places in a state of numbers that are not finite."""
    return {place for place, tensor in _numbers(state) if not tensor.isfinite().all()}


def _numbers(state: Any, place: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of floating-point numbers, each with its place."""
    match state:
        case Tensor():
            if state.is_floating_point():
                yield place, state
            return
        case Mapping():
            parts: Iterable[tuple[Any, Any]] = state.items()
        case list() | tuple():
            parts = enumerate(state)
        case _:
            return
    for key, value in parts:
        yield from _numbers(value, f"{place}/{key}")
