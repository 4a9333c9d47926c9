"""Check a command's arguments, and say in one line what is wrong with them and what may have been meant."""

import difflib
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from repshare.cli.parsing.options import Option, options_of
from repshare.errors import ConfigError

WANTED = {int: "a whole number", float: "a number"}
LIKE_AN_OPTION = re.compile(r"(?!-(inf|infinity|nan)$)--?[a-z]|--$", re.IGNORECASE)  # not -1, nor - for standard output


def check_arguments(program: str, command: Callable[..., Any], arguments: Sequence[str]) -> None:
    """Raise ConfigError for what the command does not know, cannot read, or misses."""
    options = options_of(command)
    try:
        given = _match(options, arguments)
        for option, values in given:
            _check_values(option, values)
        named = {option.name for option, _ in given}
        needed = [option for option in options if option.required and not (option.positional and option.several)]
        if missing := [option.usage for option in needed if option.name not in named]:
            raise ConfigError(f"{_listed(missing, 'and')} {'is' if len(missing) == 1 else 'are'} missing.")
    except ConfigError as error:
        raise ConfigError(f"{error} See `{program} --help`") from None


def suggest(word: str, known: Collection[str]) -> str:
    """Return the nearest of the known words, as a question; nothing if none is near."""
    word, names = word.strip("-").replace("_", "-").lower(), {name.lstrip("-"): name for name in known}
    for is_near in (
        lambda name: "".join(part[:1] for part in name.split("-")) == word,  # lr: learning-rate
        lambda name: len(word) > 2 and name.startswith(word),
        lambda name: len(word) > 2 and word in name.split("-"),
        difflib.get_close_matches(word, names, n=1).__contains__,
    ):
        for name in sorted(filter(is_near, names), key=len):
            return f": did you mean {names[name]}?"
    return "."


def _match(options: list[Option], arguments: Sequence[str]) -> list[tuple[Option, list[str]]]:
    """Return the options that are given, with their values."""
    known = {flag: option for option in options if not option.positional for flag in (option.flag, *option.aliases)}
    positional = [option for option in options if option.positional]
    given: list[tuple[Option, list[str]]] = []
    for argument in arguments:
        if LIKE_AN_OPTION.match(argument):
            flag, equals, value = argument.partition("=")
            flag = flag.replace("_", "-")
            if flag not in known:
                raise ConfigError(f"unknown option {flag}{suggest(flag, known)}")
            given.append((known[flag], [value] if equals else []))
        elif given and given[-1][0].kind is not bool and (given[-1][0].several or not given[-1][1]):
            given[-1][1].append(argument)
        elif positional:
            given.append((positional[0], [argument]))
            positional = positional if positional[0].several else positional[1:]
        else:
            raise ConfigError(f"unexpected argument {argument!r}.")
    return given


def _check_values(option: Option, values: list[str]) -> None:
    if option.kind is bool and values:
        raise ConfigError(f"{option.flag} takes no value.")
    if option.kind is not bool and not option.several and not values:
        raise ConfigError(f"{option.flag} needs a value: {option.usage}.")
    for value in values:
        if option.may_be_none and value == "None":
            continue
        if isinstance(option.kind, tuple) and value not in option.kind:
            near = difflib.get_close_matches(value, option.kind, n=1)
            hint = f"did you mean {near[0]}?" if near else f"choose {_listed(option.kind, 'or')}."
            raise ConfigError(f"{option.name} cannot be {value!r}: {hint}")
        if option.kind in WANTED:
            try:
                option.kind(value)
            except ValueError:
                called = option.metavar if option.positional else option.flag
                raise ConfigError(f"{called} takes {WANTED[option.kind]}, not {value!r}.") from None


def _listed(words: Sequence[str], link: str) -> str:
    return f" {link} ".join(filter(None, (", ".join(words[:-1]), words[-1])))
