"""A run of the simulator, described by a Flower app's configuration: the same split, and the same bits."""

from collections.abc import Mapping
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repshare.client import Client
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.fields import parse_options
from repshare.files import write_atomically
from repshare_flower.rounds import FlowerRun
from repshare_lab.config import Run, Setting
from repshare_lab.data import load
from repshare_lab.methods import find_method
from repshare_lab.simulation.plan import Plan, make_plan, make_run, open_server, resolve
from repshare_lab.simulation.workers import Worker, encode_model

if TYPE_CHECKING:
    from flwr.app import Context

NOT_OURS = {"method", "seed", "folder", "options"}  # keys of an app's configuration that are no options of a setting
DECIDED_ELSEWHERE = ("participation", "dropout", "noise_partners")  # by Flower's nodes, or by nobody


def make_client(context: "Context") -> Client:
    """Return the client of this node: number `partition-id` of the run's."""
    plan = _read_plan(context)
    index = context.node_config.get("partition-id")
    if not isinstance(index, int) or not 0 <= index < plan.clients:
        raise ConfigError(
            f"this node needs a part of the data: --node-config 'partition-id=…', from 0 to {plan.clients - 1}, "
            f"not {index!r}"
        )
    return Worker(plan, Path(), {}).client(index)


def describe(context: "Context") -> FlowerRun:
    """Return the collaboration of the run's clients."""
    plan = _read_plan(context)
    method = find_method(plan.run.method, plan.run.setting)
    return FlowerRun(method, open_server(plan), plan.run.setting.rounds, plan.clients)


def keep_model(client: Client, context: "Context") -> None:
    """Write what the client has learned into the configuration's folder, if it has one."""
    if not (folder := context.run_config.get("folder")):
        return
    Path(str(folder)).mkdir(parents=True, exist_ok=True)
    for suffix, content in encode_model(client).items():
        write_atomically(Path(str(folder)) / f"{client.name.replace(' ', '-')}{suffix}", content)


def read_run(config: Mapping[str, Any]) -> Run[Setting]:
    """Return the run that a configuration describes: method, seed, and options of a setting and of a policy.

    Flower accepts only keys that the app has; others are words of its key `options`, as in "alpha=0.1 epochs=2".
    """
    own = tuple(f"{each.name}=" for each in fields(Policy))
    words = [f"{key}={value}" for key, value in config.items() if key not in NOT_OURS]
    words += str(config.get("options", "")).split()
    policy = parse_options("a policy", Policy, [word for word in words if word.startswith(own)])
    given = parse_options("a run", Setting, [word for word in words if not word.startswith(own)], {"policy"})
    if decided := [name for name in DECIDED_ELSEWHERE if name in given]:
        raise ConfigError(f"{decided[0]} is decided by Flower's nodes, not by a run's configuration: leave it out")
    setting = Setting(**given, policy=Policy(**policy))
    return Run(str(config.get("method", "RS")), int(config.get("seed", 0)), setting)


def _read_plan(context: "Context") -> Plan:
    return _make_plan(tuple(sorted(context.run_config.items())))


@lru_cache(maxsize=1)
def _make_plan(config: tuple[tuple[str, Any], ...]) -> Plan:
    """Return the plan of a run; clients of one process share it."""
    run = read_run(dict(config))
    splits = load(run.setting.dataset)
    return make_plan(make_run(run.method, run.seed, resolve(run.setting, splits)), splits)
