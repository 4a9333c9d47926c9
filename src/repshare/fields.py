"""The fields of dataclasses that are options: their descriptions, values from text, and checks."""

import ast
import difflib
import inspect
import math
import operator
import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from functools import cache, partial
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from repshare.errors import ConfigError


def field_helps(made: type) -> dict[str, str]:
    """The text below each field of a dataclass, those of its parents first. A class without source has none."""
    return {name: help for parent in reversed(made.__mro__[:-1]) for name, help in _own_helps(parent).items()}


def _own_helps(made: type) -> dict[str, str]:
    try:
        (definition,) = ast.parse(textwrap.dedent(inspect.getsource(made))).body
    except (OSError, TypeError):  # a built-in parent
        return {}
    helps, last = {}, ""
    for node in definition.body if isinstance(definition, ast.ClassDef) else ():
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            last = node.target.id
        elif isinstance(node, ast.Expr) and last:
            helps[last] = inspect.cleandoc(ast.literal_eval(node.value))
    return helps


def parse_options(owner: str, kind: type[Any], words: Sequence[str], hidden: Collection[str] = ()) -> dict[str, Any]:
    """Options as name=value, by the types of a dataclass's fields."""
    hints = get_type_hints(kind)
    known = {each.name: each.default for each in fields(kind) if each.name not in hidden}
    chosen = {}
    for word in words:
        name, _, text = word.partition("=")
        if name not in known or not text:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0.4)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"{owner} has no option {word!r}: use {', '.join(f'{each}=…' for each in known)}{hint}")
        try:
            chosen[name] = _read(hints[name], text)
        except (ValueError, KeyError, StopIteration) as error:
            raise ConfigError(f"{name} cannot be {text!r}: its default is {known[name]!r}") from error
    return chosen


def _read(kind: Any, text: str) -> Any:
    """A value of this type: a number, a word, true or false, one of some, or several of a kind."""
    kinds = get_args(kind)
    if kind is bool:
        return {"true": True, "false": False}[text.lower()]
    if get_origin(kind) is Literal:
        return next(each for each in kinds if str(each) == text)
    if get_origin(kind) is tuple:
        return tuple(_read(kinds[0], each) for each in text.split(","))
    if NoneType in kinds:
        return None if text == "None" else _read(kinds[0], text)
    return kind(text)


def check_least(config: object, **least: float) -> None:
    """Raise ConfigError if one of these fields is below its least value."""
    for name, bound in least.items():
        check_fits(config, [name], f"at least {bound}", partial(operator.le, bound))


def check_positive(config: object, *names: str) -> None:
    """Raise ConfigError if one of these fields is not above 0 and finite."""
    check_fits(config, names, "above 0 and finite", lambda value: 0 < value < math.inf)


def check_not_negative(config: object, *names: str) -> None:
    """Raise ConfigError if one of these fields is below 0 or not finite."""
    check_fits(config, names, "at least 0 and finite", lambda value: 0 <= value < math.inf)


def check_within(config: object, least: float, most: float, *names: str) -> None:
    """Raise ConfigError if one of these fields is below `least` or above `most`."""
    check_fits(config, names, f"from {least} to {most}", lambda value: least <= value <= most)


def check_whole(config: object, least: int, *names: str) -> None:
    """Raise ConfigError if one of these fields is not a whole number of at least `least`."""
    wanted = f"a whole number of at least {least}"
    check_fits(config, names, wanted, lambda value: isinstance(value, int) and value >= least)


@cache
def _evaluate_hints(kind: Any) -> dict[str, Any]:
    """The types of a class's fields, which take long to evaluate."""
    return get_type_hints(kind)


def check_one_of(config: object, *names: str) -> None:
    """Raise ConfigError if one of these fields is none of the choices of its type."""
    kind: Any = type(config)
    hints = _evaluate_hints(kind)
    for name in names:
        kinds = get_args(hints[name])
        choices = get_args(kinds[0]) if NoneType in kinds else kinds
        check_fits(config, [name], f"one of {', '.join(choices)}", choices.__contains__)


def check_fits(config: object, names: Iterable[str], wanted: str, fits: Callable[[Any], bool]) -> None:
    """Raise ConfigError if one of these fields does not fit. None does if it is the default."""
    for name in names:
        value = getattr(config, name)
        optional = getattr(type(config), name, ...) is None
        try:
            is_fit = (value is None and optional) or fits(value)
        except TypeError:  # text does not compare with a number
            is_fit = False
        if not is_fit:
            raise ConfigError(f"{name} must be {wanted}, not {value!r}")
