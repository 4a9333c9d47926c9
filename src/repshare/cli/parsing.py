"""A command's function as an argparse parser: its parameters, and the fields of its dataclasses, are the options.

Positional-only parameters are positional arguments. Descriptions are in the docstring's section `Args`, below fields,
or in `Annotated[kind, description]`.
"""

import argparse
import difflib
import inspect
import json
import shutil
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from itertools import groupby
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, NoReturn, get_args, get_origin, get_type_hints

from repshare.cli.groups import LAYOUTS, Layout, explain_hidden
from repshare.errors import ConfigError
from repshare.fields import field_helps

METAVARS = {int: "N", float: "NUMBER", str: "TEXT"}
HELP = ("-h", "--help")
REQUIRED = inspect.Parameter.empty
Json = Annotated[bool, "Print one JSON document on standard output, and nothing else there."]


def print_json(document: Any) -> None:
    """Print one document on standard output."""
    print(json.dumps(document, indent=2))


class Option(NamedTuple):
    """One option or positional argument of a command."""

    name: str
    kind: Any  # the type of a value; a Literal of the choices
    help: str
    default: Any
    positional: bool
    several: bool | int

    @property
    def flag(self) -> str:
        """The option as it is written on the command line. What is on by default can only be switched off."""
        return f"--{'no-' if self.default is True else ''}{self.name.replace('_', '-')}"

    def add_to(self, group: argparse._ArgumentGroup) -> None:
        """Add it to a parser's group. An option that is not given has no value: the command has the defaults."""
        text = self.help.replace("%", "%%")
        if self.kind is bool:
            one_way = "store_false" if self.default is True else "store_true"
            action: Any = argparse.BooleanOptionalAction if self.default is None else one_way
            group.add_argument(self.flag, dest=self.name, action=action, default=argparse.SUPPRESS, help=text)
            return
        choices = get_args(self.kind) if get_origin(self.kind) is Literal else None
        metavar = None if choices else METAVARS.get(self.kind, "FILE")
        common: dict[str, Any] = {"default": argparse.SUPPRESS, "help": text, "choices": choices}
        common["type"] = str if choices else self.kind
        if self.positional:
            optional = None if self.default is REQUIRED else "?"
            several = "*" if self.several else optional
            group.add_argument(self.name, metavar=self.name.upper(), nargs=several, **common)
        else:
            nargs = "+" if self.several is True else self.several or None
            required = self.default is REQUIRED
            group.add_argument(self.flag, dest=self.name, metavar=metavar, nargs=nargs, required=required, **common)

    @property
    def description(self) -> str:
        """The help with its default in it once; none for what is off or not there."""
        shown = "" if self.default is REQUIRED or isinstance(self.default, bool | None) else _shown(self.default)
        return f"{self.help} Default: {shown}." if shown and "Default: " not in self.help else self.help


class Parser(argparse.ArgumentParser):
    """What a command understands. What it does not is a ConfigError of one line."""

    def __init__(self, name: str, command: Callable[..., Any], layout: Layout | None = None) -> None:
        """Read the command of this name, such as `relay serve`. A layout has the options, by titles of its help."""
        layout = layout or LAYOUTS.get(name)
        self.name, self.command, self.options = name, command, options_of(command, layout)
        super().__init__(
            prog=f"repshare {name}", description=_description(command), add_help=False, allow_abbrev=False,
            formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, 2, 26, width()),
        )  # fmt: skip
        needed = [each for each in self.options if each.positional or each.default is REQUIRED]
        self.usage = " ".join([self.prog, *(_usage(each) for each in needed), "[OPTIONS]"])
        named = {each.name: each for each in self.options if not each.positional}
        layout = layout or {"options": " ".join(named)}
        arguments = self.add_argument_group("arguments")
        for option in self.options:
            if option.positional:
                option._replace(help=option.description).add_to(arguments)
        for title, words in layout.items():
            group = self.add_argument_group(title)
            for word in words.split():
                option = named[word.replace("-", "_")]
                option._replace(help=option.description).add_to(group)

    def call(self, arguments: Sequence[str]) -> None:
        """Carry out the command with these arguments."""
        self._refuse_unknown(arguments)
        given = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in vars(self.parse_intermixed_args(arguments)).items()
        }
        before, named = _bind(self.command, given)
        self.command(*before, **named)

    def error(self, message: str) -> NoReturn:
        """Raise ConfigError instead of printing the usage."""
        raise ConfigError(f"{message.removeprefix('argument ')}. See `{self.prog} --help`")

    def _refuse_unknown(self, arguments: Sequence[str]) -> None:
        known = [flag for action in self._actions for flag in action.option_strings]
        for argument in arguments:
            flag = argument.partition("=")[0]
            if flag.startswith("--") and flag not in known:
                unknown = f"unknown option {flag}{suggest(flag, known)} See `{self.prog} --help`"
                for option in self.options:  # one of its values in its place
                    if get_origin(option.kind) is Literal and flag.lstrip("-") in get_args(option.kind):
                        unknown = f"unknown option {flag}: did you mean {option.flag} {flag.lstrip('-')}?"
                hidden = [option.name for option in options_of(self.command)]
                raise ConfigError(explain_hidden(flag, hidden) or unknown)


def options_of(command: Callable[..., Any], layout: Layout | None = None) -> list[Option]:
    """The options of a command, or of a dataclass; of a command with a layout those that are in it."""
    hints = get_type_hints(command, include_extras=True)
    helps = field_helps(command) if isinstance(command, type) else _parameter_helps(inspect.getdoc(command) or "")
    found: list[Option] = []
    for each in inspect.signature(command).parameters.values():
        kind, help = hints[each.name], helps.get(each.name, "")
        several: bool | int = False
        if get_origin(kind) is Annotated:
            kind, help = get_args(kind)
        if NoneType in get_args(kind):
            (kind,) = (one for one in get_args(kind) if one is not NoneType)
        if isinstance(kind, type) and is_dataclass(kind):
            found += options_of(kind)
            continue
        if get_origin(kind) is tuple:
            kinds = get_args(kind)
            kind, several = kinds[0], True if kinds[-1] is ... else len(kinds)
        positional = each.kind is inspect.Parameter.POSITIONAL_ONLY
        found.append(Option(each.name, kind, help, each.default, positional, several))
    if layout is not None:
        listed = {word.replace("-", "_") for words in layout.values() for word in words.split()}
        found = [option for option in found if option.positional or option.name in listed]
    return found


def _bind(command: Callable[..., Any], given: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """The positional-only and the other arguments of a command or a dataclass, with its dataclasses made."""
    hints, before, named = get_type_hints(command), list[Any](), dict[str, Any]()
    for name, parameter in inspect.signature(command).parameters.items():
        if is_dataclass(hints[name]):
            named[name] = hints[name](**_bind(hints[name], given)[1])
        elif name in given and parameter.kind is inspect.Parameter.POSITIONAL_ONLY:
            before.append(given[name])
        elif name in given:
            named[name] = given[name]
    return before, named


def suggest(word: str, known: Sequence[str]) -> str:
    """The nearest of the known words, as a question; nothing if none is near."""
    plain = word.lstrip("-").replace("_", "-")
    near = [each for each in known if "".join(part[:1] for part in each.lstrip("-").split("-")) == plain]  # --lr
    near = near or difflib.get_close_matches(word, known, n=1, cutoff=0.85)
    near = near or [each for each in known if len(plain) > 2 and plain in each.lstrip("-").split("-")]
    near = near or difflib.get_close_matches(word, known, n=1)
    return f": did you mean {near[0]}?" if near else "."


def width() -> int:
    """The width of a help, in columns."""
    return min(100, shutil.get_terminal_size().columns)


def _usage(option: Option) -> str:
    if not option.positional:
        return f"{option.flag} {METAVARS.get(option.kind, 'FILE')}"
    return option.name.upper() if option.default is REQUIRED else f"[{option.name.upper()}]"


def _description(command: Callable[..., Any]) -> str:
    """The docstring's paragraphs; examples indented, those that follow each other without a line between."""
    text = (inspect.getdoc(command) or "").partition("\nArgs:\n")[0].strip()
    paragraphs = [" ".join(paragraph.split("\n")) for paragraph in text.split("\n\n")]
    parts = []
    for are_examples, group in groupby(paragraphs, key=lambda paragraph: paragraph.startswith("repshare ")):
        if are_examples:
            parts.append("\n".join(f"  {example}" for example in group))
        else:
            parts += ["\n".join(textwrap.wrap(paragraph, width(), break_on_hyphens=False)) for paragraph in group]
    return "\n\n".join(parts)


def _shown(default: Any) -> str:
    if isinstance(default, tuple):
        return " ".join(map(_shown, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _parameter_helps(documentation: str) -> dict[str, str]:
    """The lines of the section Args by parameter."""
    helps: dict[str, str] = {}
    for line in documentation.partition("\nArgs:\n")[2].splitlines():
        name, colon, text = line.strip().partition(": ")
        if colon and line.startswith("    ") and not line.startswith("     "):
            helps[name] = text
        elif helps:
            helps[list(helps)[-1]] += f" {line.strip()}"
    return helps
