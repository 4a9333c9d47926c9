"""The plan of a run: from its description to what its clients are made of."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repshare.board import Server
from repshare.errors import ConfigError
from repshare.network.models import Network, split
from repshare.randomness import derive, numpy_stream
from repshare.samples import change_tensors, choose_device
from repshare.sharing.task import Task
from repshare.space import choose, describe, read
from repshare.space.agreement import Agreement
from repshare.space.space import Space
from repshare_lab.config import ResolvedSetting, Run, Setting
from repshare_lab.data import Dataset, Splits, partition
from repshare_lab.data.arrays import Inputs, take
from repshare_lab.methods import find_method
from repshare_lab.networks import build
from repshare_lab.simulation.embedding import embed, is_backbone
from repshare_lab.threads import one_thread


class PaperProtocol(NamedTuple):
    """The paper's protocol for a data set."""

    samples: int
    """0: all there are."""
    rounds: int
    model: str
    """"": the one that suits the data."""
    space: tuple[str, ...] = ()
    """The common space, which the paper does not have. Chosen on training images that no experiment uses."""
    space_rounds: int = 10
    """Rounds of CS: as many as keep its traffic below a twentieth of FedAvg's."""


FASHION_SPACE = (
    "patches sizes=3,5,7,9,11 filters=24 grid=4 epsilon=0.016 deep=240 deep_grid=3 mirror=true fourier=16384 width=0.8"
)
PAPER = {
    "mnist": PaperProtocol(1200, 100, "lenet5"),
    "fashion_mnist": PaperProtocol(6000, 20, "resnet9", tuple(FASHION_SPACE.split()), 20),
    "cifar10": PaperProtocol(10000, 20, "resnet18", (), 20),
}
USUAL = PAPER | {name: PaperProtocol(0, 50, "") for name in ("breast_cancer", "wine", "colour_names")}
USUAL["digits"] = PaperProtocol(0, 60, "")  # after 20 rounds, curves still rise
OTHER_DATA = PaperProtocol(0, 20, "")
LARGE = ("resnet9", "resnet18")  # networks that take long to test


ARRAYS = (  # of a plan
    "train_inputs", "train_labels", "test_inputs", "test_labels", "dealt", "starts",
)  # fmt: skip


class Plan(NamedTuple):
    """Everything that a worker needs to build its clients."""

    run: Run[ResolvedSetting]
    classes: int
    train_inputs: Inputs  # (n, …)
    train_labels: NDArray[np.int64]  # (n,)
    test_inputs: Inputs
    test_labels: NDArray[np.int64]
    dealt: NDArray[np.int64]  # sample indices, client after client
    starts: NDArray[np.int64]  # (clients + 1,)  where each client's begin in `dealt`
    sizes: dict[str, int]  # the data's sizes, for which a model is built
    space: Space | None = None  # a backbone, whose vectors the inputs are

    @property
    def clients(self) -> int:
        """The number of clients."""
        return len(self.starts) - 1

    def part(self, client: int) -> NDArray[np.int64]:
        """Return the client's sample indices."""
        return self.dealt[self.starts[client] : self.starts[client + 1]]

    def name(self, client: int) -> str:
        """Return the client's name, also in its random streams."""
        return f"client {client + 1}"

    def model(self, client: int) -> str:
        """Return the name of the client's architecture."""
        models = self.run.setting.model
        return models[client % len(models)]


def resolve(setting: Setting, data: Splits | int) -> ResolvedSetting:
    """Fill in what a setting leaves to the paper. Noise is drawn from the seed.

    Args:
        setting: The setting.
        data: The data, or for images their number of training samples.
    """
    usual = USUAL.get(setting.dataset, OTHER_DATA)
    available = data if isinstance(data, int) else len(data.train.labels)
    samples = setting.samples or usual.samples or available
    if samples > available:
        raise ConfigError(f"{setting.dataset} has {available} training samples: {samples} are too many")
    model, device = setting.model or (usual.model or _suggest_model(data),), choose_device(setting.device)
    filled = {
        "samples": samples,
        "rounds": setting.rounds or usual.rounds,
        "model": model,
        "device": device,
        "policy": replace(
            setting.policy,
            minimum_count=setting.policy.minimum_count or 1,  # nothing leaves this machine
            precision="fp32" if setting.loss == "discriminant" else setting.policy.precision,
            seeded_noise=setting.policy.epsilon is not None or setting.policy.seeded_noise,
        ),
    }
    return ResolvedSetting(**vars(setting) | filled)


def _suggest_model(data: Splits | int) -> str:
    """Return the usual model for such data."""
    if isinstance(data, int) or "channels" in (sizes := measure(data)):
        return "lenet5"
    if not sizes:
        raise ConfigError("there is no usual model for such inputs: give your own with --model file.py:function")
    return "mlp" if "features" in sizes else "bag"


def measure(splits: Splits) -> dict[str, int]:
    """The sizes that a model is built for: `channels` of images, `features` of tables, `tokens` of token ids."""
    inputs = [each.inputs for each in (splits.train, splits.test)]
    arrays = [each for each in inputs if not isinstance(each, dict)]
    if len(arrays) < 2:
        arrays = [each["input_ids"] for each in inputs if isinstance(each, dict) and "input_ids" in each]
    if len(arrays) < 2:
        return {}
    if arrays[0].dtype.kind == "i":
        return {"tokens": 1 + max(int(array.max()) for array in arrays)}
    return {{2: "features", 4: "channels"}[arrays[0].ndim]: arrays[0].shape[1]} if arrays[0].ndim in (2, 4) else {}


def make_run(method: str, seed: int, setting: ResolvedSetting) -> Run[ResolvedSetting]:
    """Return a run of this method. In a common space it is over after fewer rounds, each of which can be tested."""
    found = find_method(method)
    if not found.in_space:
        return Run(method, seed, setting)
    rounds = 1 if found.serve is None else space_rounds(setting)
    rounds = 2 if found.shares_once else rounds  # share, then collect
    rounds = min(rounds, setting.rounds)
    every = 1 if (setting.eval_every or 1) < setting.rounds else rounds  # all, unless only the last is wanted
    return Run(method, seed, replace(setting, rounds=rounds, eval_every=every))


def space_rounds(setting: Setting) -> int:
    """Return the number of rounds of CS."""
    return setting.space_rounds or USUAL.get(setting.dataset, OTHER_DATA).space_rounds


def agree(plan: Plan) -> Agreement:
    """The agreement of the plan's clients. In a backbone's space, it is of vectors."""
    if plan.space is None:
        return make_agreement(plan.run, take(plan.train_inputs, slice(1)))
    return Agreement(plan.space, plan.run.setting.loss, plan.run.setting.shrinkage)


def make_agreement(run: Run[Setting], example: Inputs) -> Agreement:
    """The agreement of the run's clients: a space for inputs like the example (a batch)."""
    setting = run.setting
    if not has_space(setting, example):
        raise ConfigError(
            f"{run.method} needs a common space, and there is none for token ids or dictionaries: leave CA and CS out, "
            "or give your own with --space file.py:function"
        )
    words = setting.space or USUAL.get(setting.dataset, OTHER_DATA).space
    return Agreement(choose(words, as_tensors(example, copied=True), run.seed), setting.loss, setting.shrinkage)


def has_space(setting: Setting, inputs: Inputs) -> bool:
    """Whether there is a common space for such inputs: one of real numbers, or the user's own."""
    return bool(setting.space) or (not isinstance(inputs, dict) and inputs.dtype.kind != "i")


def as_tensors(inputs: Inputs, *, copied: bool = False) -> Any:
    """The inputs as tensors, which share the arrays' memory unless they are copied."""

    def convert(array: Any) -> torch.Tensor:
        return torch.from_numpy(array.copy() if copied else array)

    return change_tensors(inputs, convert)


def make_plan(run: Run[ResolvedSetting], splits: Splits) -> Plan:
    """Take the first samples, standardise what is to be by training samples alone, deal them out."""
    sizes, space = measure(splits), None
    if find_method(run.method).in_space and is_backbone(run.setting):
        splits = embed(splits, run.setting, run.setting.samples)
        space, vectors, tested = splits.embedded.space, splits.embedded.train, splits.embedded.test
        train = Dataset(vectors[: run.setting.samples], splits.train.labels[: run.setting.samples])
        splits = replace(splits, train=train, test=Dataset(tested[: len(splits.test.labels)], splits.test.labels))
    else:
        splits = splits.first(run.setting.samples).prepared(standardise=run.setting.standardise)
    parts = deal(run.setting, splits.train.labels, numpy_stream(run.seed, "partition"))
    if find_method(run.method).models == "pooled":
        parts = [np.sort(np.concatenate(parts))]
    starts = np.cumsum([0, *map(len, parts)])
    data = *splits.train, *splits.test, np.concatenate(parts), starts
    plan = Plan(run, splits.classes, *data, sizes, space)
    rows = [plan.part(client) for client in sorted(choose_noisy(run.setting, run.seed, plan.clients))]
    if rows and space is not None:
        raise ConfigError("partners' images are noise before a backbone maps them, once for all: leave noise out")
    return plan._replace(train_inputs=_whiten(plan.train_inputs, np.concatenate(rows), run.seed)) if rows else plan


def choose_noisy(setting: Setting, seed: int, clients: int) -> frozenset[int]:
    """The clients whose inputs are noise, never all: a function of the setting and the seed alone."""
    count = min(round(setting.noise_partners * clients), clients - 1)
    return frozenset(numpy_stream(seed, "attackers").permutation(clients)[:count].tolist())


def _whiten(inputs: Inputs, rows: NDArray[np.int64], seed: int) -> Inputs:
    """The inputs with white noise in these rows."""
    if isinstance(inputs, dict) or inputs.dtype != np.float32:
        raise ConfigError("noise_partners needs inputs that are one array of real numbers: leave it out")
    inputs = inputs.copy()
    inputs[rows] = numpy_stream(seed, "spoilt").standard_normal((len(rows), *inputs.shape[1:]), dtype=np.float32)
    return inputs


def write_plan(plan: Plan, folder: Path) -> None:
    """Put the plan's arrays into files, for other processes to map into their memory."""
    described: dict[str, Any] = {"sizes": plan.sizes, "space": None if plan.space is None else describe(plan.space)}
    for name in ARRAYS:
        if (value := getattr(plan, name)) is None:
            continue
        described[name] = [*value] if isinstance(value, dict) else None
        for place, array in enumerate(value.values() if isinstance(value, dict) else [value]):
            np.save(folder / f"{name}.{place}.npy", array)
    (folder / "plan.json").write_text(json.dumps(described))


def map_plan(run: Run[ResolvedSetting], classes: int, folder: Path) -> Plan:
    """Return the plan whose arrays are in these files: shared by all processes that map them, not copied."""
    described = json.loads((folder / "plan.json").read_text())

    def mapped(name: str, place: int = 0) -> NDArray[Any]:
        return np.load(folder / f"{name}.{place}.npy", mmap_mode="c")  # type: ignore[no-any-return]

    arrays: dict[str, Any] = {
        name: mapped(name) if keys is None else {key: mapped(name, place) for place, key in enumerate(keys)}
        for name, keys in described.items()
        if name in ARRAYS
    }
    space = None if described["space"] is None else read(described["space"])
    return Plan(run, classes, sizes=described["sizes"], space=space, **arrays)


def deal(setting: Setting, labels: NDArray[np.int64], rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return sample indices for each client, as the setting's partition says."""
    match setting.partition:
        case "uniform":
            return partition.uniform(labels, setting.clients, rng)
        case "dirichlet":
            return partition.dirichlet(labels, setting.clients, rng, setting.alpha)
        case "shards":
            return partition.shards(labels, setting.clients, rng, setting.classes_per_client)


def make_task(plan: Plan) -> Task:
    """Return the task that all clients' models fit. Raises ConfigError if there is none, or if the run cannot start."""
    setting = plan.run.setting
    method = find_method(plan.run.method, setting)
    names = [plan.model(client) for client in range(plan.clients)]
    everyone = {plan.name(client) for client in range(setting.clients)}  # also where one has everyone's data
    if strangers := set(setting.policy.peers or ()) - everyone:
        raise ConfigError(
            f"there is no peer {min(strangers)!r}: clients are called client 1 to client {setting.clients}"
        )
    if method.shares_weights and len(set(names)) > 1:
        raise ConfigError(f"{method.name} averages weights, so it needs one model, not {', '.join(setting.model)}")
    if method.in_space:
        if not setting.weighted:
            raise ConfigError("a common classifier is the weighted total at a relay: leave weighted, or CS, out")
        return agree(plan).task(plan.classes)
    widths = {name: method.width(build_network(plan, name, seed=0)) for name in dict.fromkeys(names)}
    if len(set(widths.values())) > 1:
        listed = ", ".join(f"{width} ({name})" for name, width in widths.items())
        raise ConfigError(f"clients' representations have different lengths: {listed}; give one with --dimension")
    return Task(plan.classes, widths[names[0]], setting.norm_bound, weighted=setting.weighted)


def make_start(plan: Plan) -> Network:
    """Return the network that a server hands out, or a part of, before the first round."""
    return build_network(plan, plan.model(0), derive(plan.run.seed, "server", "model"))


def open_server(plan: Plan) -> Server | None:
    """The server between the run's clients; None if the method shares nothing. Raises as `make_task` does."""
    task, method = make_task(plan), find_method(plan.run.method, plan.run.setting)
    if method.serve is None:
        return None
    shared = method.models == "part" or (method.models == "one" and not plan.run.setting.independent_starts)
    return method.serve(task, make_start(plan) if shared and not method.in_space else None, method.options)


def build_model(plan: Plan, name: str, seed: int) -> nn.Module:
    """Return a model that fits the data."""
    return build(name, classes=plan.classes, dimension=plan.run.setting.dimension, seed=seed, **plan.sizes)


@one_thread()  # the model sees one sample: starting more threads takes longer
def build_network(plan: Plan, name: str, seed: int) -> Network:
    """Return a model that fits the data, as features and head."""
    example = as_tensors(take(plan.train_inputs, slice(1)), copied=True)
    network = split(build_model(plan, name, seed), example, plan.run.setting.head)
    if network.classes != plan.classes:
        raise ConfigError(f"{name} has {network.classes} classes, {plan.run.setting.dataset} has {plan.classes}")
    return network
