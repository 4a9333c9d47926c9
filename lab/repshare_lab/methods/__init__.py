"""The methods of the field, and how a run's method is found by its letters. Each is an entry point of the package."""

import difflib
import re
from dataclasses import fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from repshare.errors import ConfigError
from repshare.fields import parse_options
from repshare.imports import in_one_line, is_reference, run_file
from repshare.methods import METHODS, Method
from repshare_lab.config import METHODS as USUAL
from repshare_lab.config import Setting
from repshare_lab.methods.codes import FC
from repshare_lab.methods.distillation import FD
from repshare_lab.methods.fedavg import FL
from repshare_lab.methods.pooled import CL

__all__ = ["CL", "FC", "FD", "FL", "find_method"]

# Only records have these any more: lab/notebook/field.md.
ONCE = "CCVR CODIST CRONUS DSFL FEDADAGRAD FEDADAM FEDDF FEDGKT FEDKD FEDNOVA FEDYOGI FINETUNE GOSSIP LGFEDAVG VRLSGD"
GONE = {  # the last commit with each
    **dict.fromkeys(ONCE.split(), "c528c6c"),
    "FEDMD": "9ea4c8a",
    **dict.fromkeys(("FEDPROX", "FED3R", "FEDCOF"), "d934b08"),
    **dict.fromkeys(("SL", "FEDPER", "FEDPROTO", "SCAFFOLD"), "38a6b14d"),
}
INSTEAD = {"FEDPROX": "examples/fedprox.py:PROX", "FED3R": "AFL"}  # the same


def find_method(name: str, setting: Setting | None = None) -> Method:
    """Return the method of these letters, or the one that `file.py:NAME` names.

    Args:
        name: Such as "RS", in upper or lower case, or `file.py:NAME`.
        setting: Where its options are taken from. Default: its own.
    """
    if is_reference(name):
        path = Path(name.rpartition(":")[0])
        changed = path.stat().st_mtime_ns if path.is_file() else 0
        method = _load(name, path.absolute(), changed)
    elif name.upper() in METHODS:
        method = METHODS[name.upper()]
    elif name.upper() in GONE:
        instead = f"use {INSTEAD[name.upper()]}, or " if name.upper() in INSTEAD else ""
        last = f"{instead}{GONE[name.upper()]} is the last commit that has it (lab/notebook/field.md)"
        raise ConfigError(f"{name.upper()} is gone: {last}")
    elif "," in name:
        raise ConfigError(f"unknown method {name!r}: divide methods by spaces, as in {name.replace(',', ' ')}")
    else:
        near = difflib.get_close_matches(name.upper(), METHODS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"choose {', '.join(USUAL)}, another of `repshare methods`,"
        raise ConfigError(f"unknown method {name!r}: {hint} or your own as file.py:NAME")
    return method if setting is None else method._replace(options=_settle(method, setting))


@lru_cache
def _load(reference: str, path: Path, changed: int) -> Method:
    """Return a user's own method. The file is run once in each process, and again when it or its place has changed."""
    module, name = run_file(reference), reference.rpartition(":")[2]
    method = getattr(module, name, None)
    if not isinstance(method, Method):
        there = [each for each, value in vars(module).items() if isinstance(value, Method) and each not in METHODS]
        found = f"{name} is a {type(method).__name__}" if hasattr(module, name) else f"there is no {name!r}"
        raise ConfigError(f"{reference}: {found}; the methods in this file are {', '.join(there) or 'none'}")
    if not re.fullmatch(r"[\w+-]{1,20}", method.name):
        raise ConfigError(f"{reference} is called {method.name!r}: use 1 to 20 letters, digits, _, + and -")
    if method.name.upper() in METHODS:
        raise ConfigError(f"{reference} is called {method.name}, as a method here is: give it another name")
    if method.options is not None and (not is_dataclass(method.options) or isinstance(method.options, type)):
        raise ConfigError(f"{reference} has options that are not a value of a dataclass: {method.options!r}")
    return method


def _settle(method: Method, setting: Setting) -> Any:
    """Return the options that a setting has for a method here, and those given as NAME.option=value."""
    before = [option.partition(".") for option in setting.method_options]
    words = [word for name, _, word in before if name.upper() == method.name.upper()]
    if method.options is None:
        if words:
            raise ConfigError(f"{method.name} has no options: leave {words[0]} out")
        return None
    given = {}
    if METHODS.get(method.name) is method:
        given = {
            each.name: getattr(setting, each.name) for each in fields(method.options) if hasattr(setting, each.name)
        }
    given |= parse_options(method.name, type(method.options), words)
    try:
        return replace(method.options, **given)
    except (ValueError, TypeError) as error:  # the author's own check
        raise ConfigError(f"the options of {method.name} are refused: {in_one_line(error)}") from error
