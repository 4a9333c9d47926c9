"""A learner's state as nested containers of tensors: a copy to go back to, and what in it is not finite."""

from collections.abc import Iterable, Mapping
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


def find_broken(state: Any, place: str = "") -> set[str]:
    """Return where in the state numbers are not finite."""
    match state:
        case Tensor():
            return {place} if state.is_floating_point() and not state.isfinite().all() else set()
        case Mapping():
            parts: Iterable[tuple[Any, Any]] = state.items()
        case list() | tuple():
            parts = enumerate(state)
        case _:
            return set()
    return {broken for key, value in parts for broken in find_broken(value, f"{place}/{key}")}
