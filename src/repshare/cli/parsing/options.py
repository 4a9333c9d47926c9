"""A command's options, read from its signature: what the help shows, and what its arguments are checked by."""

import inspect
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import tyro

from repshare.fields import field_helps

REQUIRED = inspect.Parameter.empty
KINDS = {int: "N", float: "NUMBER", str: "NAME", Path: "FILE"}
METAVARS = {
    "action": "ACTION", "what": "WHAT", "method": "METHOD", "methods": "METHOD", "model": "MODEL", "ray": "ADDRESS",
    "device": "DEVICE", "runs": "FOLDER", "state": "FOLDER", "keep": "FOLDER", "folder": "FOLDER",
    "data-folder": "FOLDER", "space": "SPACE", "only": "CELL", "url": "URL", "host": "ADDRESS", "listen": "ADDRESS",
    "connect": "ADDRESS", "redis": "URL", "timeout": "SECONDS", "patience": "SECONDS", "step-patience": "SECONDS",
    "linger": "SECONDS", "pace": "SECONDS", "max-age": "SECONDS", "body-seconds": "SECONDS",
    "head-seconds": "SECONDS", "read-seconds": "SECONDS", "away-seconds": "SECONDS", "share-classes": "CLASS",
    "share-samples": "INDEX", "method-options": "OPTION", "db": "FILE", "audit-log": "FILE",
}  # fmt: skip


Json = Annotated[bool, tyro.conf.arg(help="Print one JSON document on standard output, and nothing else there.")]


class Option(NamedTuple):
    """One option or positional argument of a command."""

    name: str
    kind: Any  # int, float, str, Path, bool, or the choices
    help: str
    default: Any = REQUIRED
    positional: bool = False
    several: bool = False
    may_be_none: bool = False
    aliases: tuple[str, ...] = ()
    named_value: str | None = None

    @property
    def flag(self) -> str:
        """The option as it is written on the command line. What is on by default can only be switched off."""
        return f"--no-{self.name}" if self.default is True else f"--{self.name}"

    @property
    def metavar(self) -> str:
        """The word that stands for the value; nothing for a switch."""
        if self.kind is bool:
            return ""
        if isinstance(self.kind, tuple) and not (self.positional and len(self.kind) > 5):
            return "{" + ",".join(self.kind) + "}"
        return (self.named_value or METAVARS.get(self.name) or KINDS[self.kind]) + (" ..." if self.several else "")

    @property
    def usage(self) -> str:
        """The option with its value, as the help shows it."""
        return self.metavar if self.positional else f"{self.flag} {self.metavar}".rstrip()

    @property
    def required(self) -> bool:
        """Return whether the command cannot do without it."""
        return self.default is REQUIRED


def options_of(command: Callable[..., Any]) -> list[Option]:
    """Return all options of a command or of a dataclass; those of a command's dataclasses are in their place."""
    hints = get_type_hints(command, include_extras=True)
    if is_dataclass(command):
        helps = field_helps(command) | {each.name: each.metadata["help"] for each in fields(command) if each.metadata}
    else:
        helps = _parameter_helps(inspect.getdoc(command) or "")
    found: list[Option] = []
    for name, parameter in inspect.signature(command).parameters.items():
        found += _read(name, hints[name], parameter.default, helps.get(name, ""))
    return found


def _read(name: str, hint: Any, default: Any, help: str) -> list[Option]:
    marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
    kind = get_args(hint)[0] if marks else hint
    if isinstance(kind, type) and is_dataclass(kind):
        return options_of(kind)
    may_be_none = NoneType in get_args(kind)
    if may_be_none:
        (kind,) = (each for each in get_args(kind) if each is not NoneType)
    several = get_origin(kind) is tuple
    kind = get_args(kind)[0] if several else kind
    configured = {  # by tyro.conf.arg(…), whose type has no public name
        key: value for mark in marks for key in ("help", "metavar", "aliases") if (value := getattr(mark, key, None))
    }
    option = Option(
        name=name.replace("_", "-"),
        kind=get_args(kind) if get_origin(kind) is Literal else kind,
        help=configured.get("help", help),
        default=default,
        positional=any(mark is tyro.conf.Positional for mark in marks),
        several=several,
        may_be_none=may_be_none,
        aliases=configured.get("aliases", ()),
        named_value=configured.get("metavar"),
    )
    return [option]


def _parameter_helps(documentation: str) -> dict[str, str]:
    """Return the lines of the section Args by parameter."""
    helps: dict[str, str] = {}
    for line in documentation.partition("\nArgs:\n")[2].splitlines():
        name, colon, text = line.strip().partition(": ")
        if colon and line.startswith("    ") and not line.startswith("     "):
            helps[name] = text
        elif helps:
            helps[list(helps)[-1]] += f" {line.strip()}"
    return helps
