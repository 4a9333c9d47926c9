"""Names of the version before: importing or giving one fails with its new place or name, for this release."""

from functools import wraps
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from typing import Any, TypeVar

from repshare.errors import ConfigError

Kind = TypeVar("Kind")

LABORATORY = ["audit", "data", "experiments", "results", "simulation", "compare", "load"]
FLOWER = ["FlowerRun", "make_client_app", "make_server_app"]
METHODS = ["averaging", "codes", "distillation", "fedavg", "policies"]
FOUND = ["CL", "FC", "FD", "FL", "find_method"]
NETWORKS = ["ResNet9", "ResNet18"]
SETTING = ["Setting", "ResolvedSetting", "Run", "METHODS"]
COMMANDS = ["audit", "data", "demo", "learning", "methods", "report", "reproduce"]
MOVED = {
    **{f"repshare.{name}": f"repshare_lab.{name}" for name in LABORATORY},
    **{f"repshare.{name}": f"repshare_flower.{name}" for name in FLOWER},
    **{f"repshare.methods.{name}": f"repshare_lab.methods.{name}" for name in (*METHODS, *FOUND)},
    **{f"repshare.{name}": f"repshare_lab.networks.{name}" for name in NETWORKS},
    **{f"repshare.config.{name}": f"repshare_lab.config.{name}" for name in SETTING},
    "repshare.Common": "repshare.Agreement",
    "repshare.config.CommonLoss": "repshare.config.SpaceLoss",
    "repshare.spaces": "repshare.space",
    "repshare.learning": "repshare.network",
    **{f"repshare.cli.{name}": f"repshare_lab.cli.{name}" for name in COMMANDS},
}
OPTIONS = {  # fields of a policy or a setting
    "common_precision": "precision",
    "keep_to_self": "prefer_own",
    "common_only": "sums_only",
    "common_rounds": "space_rounds",
}


def refuses_old_names(kind: type[Kind]) -> type[Kind]:
    """A dataclass that raises ConfigError, with the present name, if a field is given by its name of before."""
    make = kind.__init__

    @wraps(make)
    def check_and_make(self: Kind, *given: Any, **named: Any) -> None:
        for name in OPTIONS:
            if name in named:
                raise ConfigError(f"{name} is called {OPTIONS[name]} now")
        make(self, *given, **named)

    kind.__init__ = check_and_make  # type: ignore[assignment]
    return kind


def check(name: str) -> None:
    """Raise ImportError if this name has moved."""
    if name in MOVED:
        raise ImportError(f"{name} is {MOVED[name]} now, of the package {MOVED[name].partition('.')[0]}")


class Finder(MetaPathFinder):
    """Finds no module. It comes after those that do, and says where one that is missing has gone."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        """Raise ImportError if this module has moved."""
        check(fullname)
        return None
