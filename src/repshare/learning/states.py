"""A learner's state as nested containers of tensors: a copy to go back to, and what in it is not finite."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor


def copy_state(state: Any) -> Any:
    """Return the same with tensors of its own."""
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


def find_broken(state: Any) -> set[str]:
    """Return where in the state numbers are not finite."""
    return {
        place for place, tensor in _tensors(state, "") if tensor.is_floating_point() and not tensor.isfinite().all()
    }


def _tensors(state: Any, place: str) -> Iterator[tuple[str, Tensor]]:
    match state:
        case Tensor():
            yield place, state
        case Mapping():
            for key, value in state.items():
                yield from _tensors(value, f"{place}/{key}")
        case list() | tuple():
            for number, value in enumerate(state):
                yield from _tensors(value, f"{place}/{number}")
