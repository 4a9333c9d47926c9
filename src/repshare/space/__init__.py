"""Spaces: fixed feature maps that all clients of a task compute alike."""

import math
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin, get_type_hints

from repshare.errors import ConfigError
from repshare.fields import parse_options
from repshare.imports import is_reference
from repshare.space.fourier import Fourier
from repshare.space.inspection import check_ranges
from repshare.space.patches import Patches
from repshare.space.space import Space, compare, describe, fingerprint

if TYPE_CHECKING:
    from repshare.space.backbone import Backbone, hash_weights, measure

__all__ = [
    "Backbone", "Fourier", "Patches", "Space",
    "choose", "compare", "describe", "fingerprint", "hash_weights", "measure", "read", "shorten",
]  # fmt: skip

SPACES = {"patches": "Patches", "fourier": "Fourier", "backbone": "Backbone"}
_WITH_PYTORCH = dict.fromkeys(("Backbone", "choose_backbone", "hash_weights", "measure"), "backbone")
RECIPES = ("efficientnet-lite0", "efficientnet-lite2")
GIVEN = ("shape", "low", "high", "module", "sha256")  # fields that follow from the data or the module
SMALLEST = 6  # pixels along an edge: anything smaller is a table
SMALL = 16  # pixels: below, images are too small for the larger filters
BOUND = 4.0  # standard deviations: columns that were normalised before


def __getattr__(name: str) -> Any:
    # Looked up when first used: a table's party has no PyTorch.
    if name in _WITH_PYTORCH:
        return getattr(import_module(f"{__name__}.{_WITH_PYTORCH[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _kind(name: str) -> type[Any]:
    return getattr(sys.modules[__name__], SPACES[name])  # type: ignore[no-any-return]


def choose(words: Sequence[str], example: Any, seed: int) -> Space:
    """The space that the words name, for inputs like the example.

    Args:
        words: A name and options, such as `patches filters=32`, a recipe, or `file.py:function`. Without words:
            `patches` for images, `fourier` for vectors and tables.
        example: A batch of inputs.
        seed: What the space's random numbers are drawn from.
    """
    name, *options = words or ("",)
    if is_reference(name) or name in RECIPES:
        return __getattr__("choose_backbone")(words, example)  # type: ignore[no-any-return]
    shape = () if isinstance(example, Mapping) else tuple(example.shape[1:])
    images = len(shape) == 3 and min(shape[1:]) >= SMALLEST
    name = name or ("patches" if images else "fourier" if shape else "")
    if name not in ("patches", "fourier"):
        given = f"{name!r}" if name else f"inputs of shape {shape}"
        raise ConfigError(
            f"no space for {given}: choose patches (images), fourier (vectors), {', '.join(RECIPES)}, or your own "
            "file.py:function"
        )
    if name == "patches" and len(shape) != 3:
        raise ConfigError(f"the space patches takes images (channels, height, width), not inputs of shape {shape}")
    if name == "fourier":
        columns = math.prod(shape)
        usual: dict[str, Any] = {"low": (-BOUND,) * columns, "high": (BOUND,) * columns}
    else:
        usual = {"shape": shape, **_usual(*shape)}
    wanted = parse_options(name, _kind(name), options, GIVEN)
    if wanted.get("components"):
        usual |= _shorten(*shape, plain="filters" in wanted)
    return _kind(name)(**{**usual, "seed": seed, **wanted})  # type: ignore[no-any-return]


def shorten(numbers: int, example: Any) -> tuple[str, ...]:
    """The words for a space with vectors of so many numbers, for inputs like the example.

    Args:
        numbers: The numbers.
        example: A batch of inputs.
    """
    shape = tuple(example.shape[1:])
    if len(shape) == 3 and min(shape[1:]) >= SMALLEST:
        return "patches", f"components={numbers}"
    return "fourier", f"features={numbers}"


def read(description: dict[str, Any], *, module: str = "") -> Space:
    """The space that a task describes.

    Args:
        description: What `describe` returned.
        module: For a backbone, the client's own module as file.py:function.
    """
    told = dict(description)
    if (name := str(told.pop("space", None))) not in SPACES:
        raise ConfigError(f"unknown space {description.get('space')!r}: there are {', '.join(SPACES)}")
    kind = _kind(name)
    hints = get_type_hints(kind)
    for field, value in told.items():
        if field in hints and not _fits(value, hints[field]):
            raise ConfigError(
                f"the description of {description['space']} has {field} {str(value)[:80]}, of another kind"
            )
    try:
        made = {field: tuple(value) if isinstance(value, list) else value for field, value in told.items()}
        space: Space = kind(**made, **({"module": module} if name == "backbone" else {}))
    except TypeError as error:
        raise ConfigError(f"the description of {description['space']} does not fit: {error}") from error
    check_ranges(space)
    return space


def _fits(value: Any, kind: Any) -> bool:
    """Whether a value from JSON is of a field's kind. A whole number is a float, too; a bool is no number."""
    if get_origin(kind) is tuple:
        return isinstance(value, list) and all(_fits(each, get_args(kind)[0]) for each in value)
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if kind is float:
        return type(value) in (int, float) and math.isfinite(value)
    return type(value) is kind


def _usual(channels: int, height: int, width: int) -> dict[str, Any]:
    """The usual space. Chosen on training images that no experiment uses: docs/method.md says how."""
    if min(height, width) < SMALL:
        return {"sizes": (3, 4)}
    if channels == 1:
        return {}
    photographs = {"sizes": (5, 8), "filters": 112, "threshold": 0.5, "epsilon": 0.16, "whiten": True}
    return {**photographs, "deep": 384, "mirror": True, "fourier": 16384, "width": 0.8}


def _shorten(channels: int, height: int, width: int, *, plain: bool) -> dict[str, Any]:
    """The fields that differ where few components are asked for. Plain: the task says how many filters there are."""
    is_small = min(height, width) < SMALL
    if channels == 1:
        return {"components_of": "glyphs", "deep": 0 if plain or is_small else 128}
    return {} if is_small else {"filters": 32, "deep": 192, "fourier": 0}
