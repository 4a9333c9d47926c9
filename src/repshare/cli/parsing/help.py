"""The help of a command, which `--help` prints."""

import inspect
import shutil
import textwrap
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
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
    positional = [option for option in options if option.positional]
    needed = [*positional, *(option for option in options if option.required and not option.positional)]
    usage = " ".join(["usage:", program, *(option.usage for option in needed), "[OPTIONS]"])
    parts = ["\n".join(wrap(usage, "", "       "))]
    parts += _description(inspect.getdoc(command) or "")
    sections = {"methods": [line for name, text in methods for line in _entry(name, [text])]}
    groups = {"arguments": positional, **grouped(program.removeprefix("repshare "), options)}
    titles = list(groups)
    shown = titles if everything or COMMON not in groups else titles[: titles.index(COMMON) + 1]
    for title in shown:
        sections[title] = [line for option in groups[title] for line in _entry(option.usage, _paragraphs(option))]
    sections[f"more options, which `{program} --help-all` describes"] = [
        line
        for title in titles[len(shown) :]
        for line in wrap(f"{title}: {' '.join(option.flag for option in groups[title])}", "  ", "      ")
    ]
    parts += ["\n".join([f"{title}:", *lines]) for title, lines in sections.items() if lines]
    return "\n\n".join(parts)


def _description(documentation: str) -> Iterator[str]:
    """Yield paragraphs as they are; examples indented, those that follow each other without a line between them."""
    text = documentation.partition("\nArgs:\n")[0].strip()
    paragraphs = [" ".join(paragraph.split("\n")) for paragraph in text.split("\n\n")]
    for are_examples, group in groupby(paragraphs, key=lambda paragraph: paragraph.startswith("repshare ")):
        if are_examples:
            yield "\n".join(f"  {example}" for example in group)
        else:
            yield from ("\n".join(wrap(paragraph)) for paragraph in group)


def _entry(called: str, paragraphs: Iterable[str]) -> Iterator[str]:
    first, *others = [line for paragraph in paragraphs for line in wrap(paragraph, " " * INDENT)]
    if len(called) + 2 < INDENT:
        yield f"  {called:<{INDENT - 2}}{first.lstrip()}"
    else:
        yield from (f"  {called}", first)
    yield from others


def _paragraphs(option: Option) -> list[str]:
    """Return the description, with the default in it once. A line about one of the choices is its own paragraph."""
    text = option.help
    if option.required:
        text += "" if option.positional else " Required."
    elif (default := _shown(option.default)) and "Default: " not in text:
        text += f" Default: {default}."
    choices = option.kind if isinstance(option.kind, tuple) else ()
    paragraphs: list[str] = []
    for line in text.splitlines():
        if not paragraphs or line.partition(":")[0] in choices:
            paragraphs.append(line)
        else:
            paragraphs[-1] += f" {line}"
    return paragraphs


def _shown(default: Any) -> str:
    """Return a default as it is written on the command line; nothing for what is off or not there."""
    if default is None or isinstance(default, bool):
        return ""
    if isinstance(default, tuple):
        return " ".join(map(_shown, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def wrap(text: str, first: str = "", other: str | None = None) -> list[str]:
    """Return the lines of a text that fit on the terminal, after an indent for the first and one for the others."""
    width = min(WIDEST, shutil.get_terminal_size().columns)
    indent = first if other is None else other
    return textwrap.wrap(
        text, max(width, INDENT + 20), initial_indent=first, subsequent_indent=indent, break_on_hyphens=False
    )
