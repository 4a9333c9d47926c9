"""The help that `--help` prints: the list of commands, and a command's options."""

import inspect
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from repshare.cli.parsing.groups import COMMON, grouped
from repshare.cli.parsing.options import Option, options_of

WIDEST = 100
INDENT = 26  # where an option's description begins


def describe(
    program: str, command: Callable[..., Any], methods: Iterable[tuple[str, str]] = (), *, everything: bool
) -> str:
    """Return a command's help: what it does, examples, the methods it knows, its options by title.

    If it has common options, the others are only named, unless `everything` is asked for.
    """
    options = options_of(command)
    places = [option for option in options if option.positional]
    needed = [f"{option.flag} {option.metavar}" for option in options if option.required and not option.positional]
    usage = " ".join(["usage:", program, *(option.metavar for option in places), *needed, "[OPTIONS]"])
    parts = ["\n".join(_wrap(usage, "", "       ")), *_description(inspect.getdoc(command) or "")]
    if rows := [line for name, text in methods for line in _entry(name, [text])]:
        parts.append("\n".join(["methods:", *rows]))
    groups = {"arguments": places} if places else {}
    groups |= grouped(program.removeprefix("repshare "), options)
    brief = {} if everything or COMMON not in groups else _after(groups, COMMON)
    parts += ["\n".join([f"{title}:", *_lines(held)]) for title, held in groups.items() if title not in brief]
    if brief:
        parts.append("\n".join([f"more options, which `{program} --help-all` describes:", *_names(brief)]))
    return "\n\n".join(parts)


def _after(groups: dict[str, list[Option]], title: str) -> dict[str, list[Option]]:
    """Return the groups that follow this one."""
    return dict(list(groups.items())[list(groups).index(title) + 1 :])


def _names(groups: dict[str, list[Option]]) -> Iterator[str]:
    """Yield each title with the names of its options."""
    for title, held in groups.items():
        yield from _wrap(f"{title}: {' '.join(option.flag for option in held)}", "  ", "      ")


def _description(documentation: str) -> Iterator[str]:
    """Return paragraphs as they are; examples indented, those that follow each other without a line between them."""
    examples: list[str] = []
    for paragraph in [*documentation.partition("\nArgs:\n")[0].strip().split("\n\n"), ""]:
        text = " ".join(paragraph.split("\n"))
        if text.startswith("repshare "):
            examples.append(f"  {text}")
            continue
        if examples:
            yield "\n".join(examples)
            examples = []
        if text:
            yield "\n".join(_wrap(text))


def _lines(options: Iterable[Option]) -> Iterator[str]:
    for option in options:
        called = option.metavar if option.positional else f"{option.flag} {option.metavar}".rstrip()
        yield from _entry(called, _parts(option))


def _entry(called: str, parts: Iterable[str]) -> Iterator[str]:
    first, *others = [each for part in parts for each in _wrap(part, " " * INDENT)]
    if len(called) + 2 < INDENT:
        yield f"  {called:<{INDENT - 2}}{first.lstrip()}"
    else:
        yield from (f"  {called}", first)
    yield from others


def _parts(option: Option) -> list[str]:
    """Return the description in parts; a line that begins with one of the choices stays one."""
    choices = option.kind if isinstance(option.kind, tuple) else ()
    first, *others = _told(option).splitlines()
    parts = [first]
    for line in others:
        if line.partition(":")[0] in choices:
            parts.append(line)
        else:
            parts[-1] += f" {line}"
    return parts


def _told(option: Option) -> str:
    """Return the description, with the default in it once."""
    if option.required and not option.positional:
        return f"{option.help} Required."
    shown = _shown(option.default)
    if option.required or not shown or "Default: " in option.help:
        return option.help
    return f"{option.help} Default: {shown}."


def _shown(default: Any) -> str:
    """Return a default as it is written on the command line; nothing for what is off or not there."""
    if default is None or isinstance(default, bool):
        return ""
    if isinstance(default, tuple):
        return " ".join(map(_shown, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _wrap(text: str, first: str = "", other: str | None = None) -> list[str]:
    width = min(WIDEST, shutil.get_terminal_size().columns)
    indent = first if other is None else other
    return textwrap.wrap(
        text, max(width, INDENT + 20), initial_indent=first, subsequent_indent=indent, break_on_hyphens=False
    )
