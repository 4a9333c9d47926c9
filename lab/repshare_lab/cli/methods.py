"""`repshare methods`: the methods, where each was published, and the options of those that are named."""

import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from repshare.cli.parsing import Json, print_json, width
from repshare.fields import field_helps
from repshare.imports import check_installed
from repshare_lab.config import Setting

if TYPE_CHECKING:
    from repshare.methods import Method

INDENT = " " * 14  # where a method's title begins


def methods(names: tuple[str, ...] = (), /, json: Json = False) -> None:
    """List the methods, with the publication of each. Those that are named are shown with their options.

    repshare methods

    repshare methods AFL examples/fedprox.py:PROX

    Args:
        names: Methods to show: any of the list, or your own as file.py:NAME. Default: all.
    """
    check_installed("torch")
    from repshare.methods import METHODS
    from repshare_lab.methods import find_method

    found = [find_method(name) for name in names] if names else list(METHODS.values())
    if json:
        print_json({each.name: _describe(each, options=bool(names)) for each in found})
    else:
        print("\n".join(line for each in found for line in _lay_out(each, options=bool(names))))


def _describe(method: "Method", *, options: bool) -> dict[str, Any]:
    told = {"title": method.title, "source": method.source}
    return told | ({"options": _options(method)} if options else {})


def _lay_out(method: "Method", *, options: bool) -> Iterator[str]:
    """Yield the lines about a method."""
    yield from _wrap(f"{method.name:<{len(INDENT) - 2}}{method.title}", "  ", INDENT)
    yield from _wrap(method.source, f"{INDENT}  ") if method.source else ()
    for option, help in _options(method).items() if options else ():
        yield from _wrap(f"{option}  {help}", f"{INDENT}  ", f"{INDENT}    ")


def _wrap(text: str, first: str, other: str = "") -> list[str]:
    return textwrap.wrap(text, width(), initial_indent=first, subsequent_indent=other or first, break_on_hyphens=False)


def _options(method: "Method") -> dict[str, str]:
    """Return the description of each option as METHOD.option=default, but for those that are the setting's."""
    from repshare.methods import METHODS

    helps = {} if method.options is None else field_helps(type(method.options))
    defaults = {name: getattr(method.options, name) for name in helps}
    return {
        f"{method.name}.{name}={'…' if defaults[name] is None else defaults[name]}": help
        for name, help in helps.items()
        if method.name not in METHODS or not hasattr(Setting, name)
    }
