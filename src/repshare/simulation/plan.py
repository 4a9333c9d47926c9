"""From the description of a run to what its clients are made of."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repshare.board import Task
from repshare.config import Run, Setting
from repshare.data import Dataset, Splits, partition
from repshare.errors import ConfigError
from repshare.methods import find_method
from repshare.methods.fedavg import read_weights
from repshare.methods.method import Weights
from repshare.models import Network, build, split
from repshare.randomness import derive, numpy_stream


class Protocol(NamedTuple):
    """How the paper treats a data set."""

    samples: int | None
    rounds: int
    model: str


PAPER = {
    "mnist": Protocol(1200, 100, "lenet5"),
    "fashion_mnist": Protocol(6000, 20, "resnet9"),
    "cifar10": Protocol(10000, 20, "resnet18"),
}
ELSEWHERE = Protocol(None, 20, "lenet5")


class Plan(NamedTuple):
    """Everything that a worker needs to build its clients. Tensors are shared between processes, not copied."""

    run: Run
    classes: int
    train: tuple[Tensor, Tensor]  # (n, c, h, w), (n,)
    test: tuple[Tensor, Tensor]
    parts: tuple[Tensor, ...]  # sample indices, client by client

    def name(self, client: int) -> str:
        """What the client is called, also in its random streams."""
        return f"client {client + 1}"

    def model(self, client: int) -> str:
        """The name of the client's architecture."""
        models = self.run.setting.model
        return models[client % len(models)]


def resolve(setting: Setting, available: int) -> Setting:
    """Fill in what was left to the paper, given how many training samples there are."""
    usual = PAPER.get(setting.dataset, ELSEWHERE)
    samples = setting.samples or usual.samples or available
    if samples > available:
        raise ConfigError(f"{setting.dataset} has {available} training samples: {samples} are too many")
    return replace(
        setting,
        samples=samples,
        rounds=setting.rounds or usual.rounds,
        model=setting.model or (usual.model,),
    )


def make_plan(run: Run, splits: Splits) -> Plan:
    """Take the first samples, normalise by one mean and one deviation over all training pixels, deal them out."""
    splits = splits.first(run.setting.samples).normalised()
    parts = deal(run.setting, splits.train.labels, numpy_stream(run.seed, "partition"))
    if find_method(run.method).pools_data:
        parts = [np.sort(np.concatenate(parts))]
    return Plan(
        run,
        splits.classes,
        _tensors(splits.train),
        _tensors(splits.test),
        tuple(torch.from_numpy(part) for part in parts),
    )


def deal(setting: Setting, labels: NDArray[np.int64], rng: np.random.Generator) -> list[NDArray[np.intp]]:
    """Sample indices for each client, as the setting's partition says."""
    match setting.partition:
        case "uniform":
            return partition.uniform(labels, setting.clients, rng)
        case "dirichlet":
            return partition.dirichlet(labels, setting.clients, rng, setting.alpha)
        case "shards":
            return partition.shards(labels, setting.clients, rng, setting.classes_per_client)
        case "unequal":
            return partition.unequal(labels, setting.clients, rng, setting.ratio)


def agree(plan: Plan) -> Task:
    """The task that all clients' models fit, or what is in the way of one."""
    method, setting = find_method(plan.run.method), plan.run.setting
    names = [plan.model(client) for client in range(len(plan.parts))]
    if method.one_model and len(set(names)) > 1:
        raise ConfigError(f"{method.name} averages weights, so it needs one model, not {', '.join(setting.model)}")
    widths = {name: _network(plan, name, seed=0).dimension for name in dict.fromkeys(names)}
    if len(set(widths.values())) > 1 and not method.shares_logits:
        listed = ", ".join(f"{width} ({name})" for name, width in widths.items())
        raise ConfigError(f"clients' representations have different lengths: {listed}; give one with --dimension")
    dimension = plan.classes if method.shares_logits else widths[names[0]]
    return Task(plan.classes, dimension, weighted=setting.weighted)


def common_start(plan: Plan) -> Weights:
    """The weights that a server hands out before the first round."""
    seed = derive(plan.run.seed, "server", "model")
    return read_weights(_network(plan, plan.model(0), seed).model)


def build_model(plan: Plan, name: str, seed: int) -> nn.Module:
    """A model that fits the data."""
    channels, dimension = plan.train[0].shape[1], plan.run.setting.dimension
    return build(name, channels=channels, classes=plan.classes, dimension=dimension, seed=seed)


def _network(plan: Plan, name: str, seed: int) -> Network:
    network = split(build_model(plan, name, seed), plan.train[0][:1])
    if network.classes != plan.classes:
        raise ConfigError(f"{name} has {network.classes} classes, {plan.run.setting.dataset} has {plan.classes}")
    return network


def _tensors(data: Dataset) -> tuple[Tensor, Tensor]:
    return torch.from_numpy(data.images), torch.from_numpy(data.labels)
