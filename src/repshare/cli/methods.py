"""`repshare methods`: the methods, and where each was published; and their list in the help of other commands."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from repshare.cli.parsing.help import wrap
from repshare.cli.parsing.options import Json
from repshare.config import METHODS as USUAL
from repshare.config import Setting
from repshare.fields import field_helps
from repshare.imports import is_reference
from repshare.results.terminal import print_json

if TYPE_CHECKING:
    from repshare.methods import Method

FOLDER = Path(__file__).parents[1] / "methods"
LONGEST = len("FEDADAGRAD")
INDENT = " " * (LONGEST + 4)
Row = dict[str, Any]  # what is told about a method


def methods(names: Annotated[tuple[str, ...], tyro.conf.Positional] = (), json: Json = False) -> None:
    """List the methods, with the publication of each. Those that are named are shown with their options.

    repshare methods

    repshare methods FEDPROX examples/fedprox.py:PROX

    Args:
        names: Methods to show: any of the list, or your own as file.py:NAME. Default: all.
    """
    families = {"": _show(names)} if names else read_families()
    if json:
        print_json({name: row for rows in families.values() for name, row in rows.items()})
    else:
        print("\n\n".join("\n".join(_lay_out(family, rows)) for family, rows in families.items()))


def read_methods() -> dict[str, Row]:
    """Return title, source and need of public samples of each built-in method, those compared by default first."""
    return {name: row for rows in read_families().values() for name, row in rows.items()}


def read_families() -> dict[str, dict[str, Row]]:
    """Return the same by family: those compared by default, then the others by the folders that they are in.

    They are read from their files: importing them would import PyTorch, which takes seconds.
    """
    found = {FOLDER: _read_folder(FOLDER)}
    found |= {folder: _read_folder(folder) for folder in sorted(FOLDER.iterdir()) if (folder / "__init__.py").is_file()}
    first = {name: found[FOLDER].pop(name) for name in USUAL}
    families = {"Compared by default": first, "Others": found.pop(FOLDER)}
    for folder, rows in found.items():
        told = ast.get_docstring(ast.parse((folder / "__init__.py").read_text("utf-8"))) or folder.name
        needs = "; they need --public-data" if any(row["public"] for row in rows.values()) else ""
        families[told.partition(":")[0].rstrip(".") + needs] = rows
    return families


def _read_folder(folder: Path) -> dict[str, Row]:
    """Return the methods that the files of a folder define."""
    found = dict[str, Row]()
    for file in sorted(folder.glob("*.py")):
        for node in ast.parse(file.read_text("utf-8")).body:
            made = node.value if isinstance(node, ast.Assign) else None
            if isinstance(made, ast.Call) and isinstance(made.func, ast.Name) and made.func.id == "Method":
                name, title = (ast.literal_eval(argument) for argument in made.args[:2])
                sources = [ast.literal_eval(each.value) for each in made.keywords if each.arg == "source"]
                found[name] = {"title": title, "source": "".join(sources), "public": folder.name == "public"}
    return found


def _lay_out(family: str, rows: dict[str, Row]) -> Iterator[str]:
    """Yield the lines about methods of one family, which has a title if several are shown."""
    yield from wrap(f"{family}:") if family else ()
    for name, row in rows.items():
        yield from wrap(f"{name:<{LONGEST}}  {row['title']}", "  ", INDENT)
        yield from wrap(row["source"], f"{INDENT}  ") if row["source"] else ()
        if row["public"] and not family:
            yield f"{INDENT}  learns from public samples: needs --public-data"
        for option, help in row.get("options", {}).items():
            yield from wrap(f"{option}  {help}", f"{INDENT}  ", f"{INDENT}      ")


def list_methods(arguments: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield, for the help, the methods that are compared by default, and those named by the arguments with options."""
    known = read_methods()
    yield from ((name, known[name]["title"]) for name in USUAL)
    named = True  # by position, for `run`
    for argument in arguments:
        if argument.startswith("-"):
            named = argument == "--methods"
        elif named and (is_reference(argument) or (argument.upper() in known and argument.upper() not in USUAL)):
            for name, row in _show([argument]).items():
                yield name, row["title"]
                yield from ((f"  {option}", help) for option, help in row["options"].items())
    yield "", "more: `repshare methods`"


def _show(names: Sequence[str]) -> dict[str, Row]:
    """Return title, source and options of these methods, each option with its default."""
    from repshare.methods import find_method

    found = [find_method(name) for name in names]
    return {
        each.name: {"title": each.title, "source": each.source, "public": each.uses_public, "options": _options(each)}
        for each in found
    }


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
