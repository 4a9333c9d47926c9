"""The plan of a run: from its description to what its clients are made of."""

from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repshare.config import ResolvedSetting, Run, Setting
from repshare.data import Splits, partition
from repshare.errors import ConfigError
from repshare.learning.models import Network, build, choose_device, split
from repshare.learning.randomness import derive, numpy_stream
from repshare.methods import find_method
from repshare.sharing.task import Task
from repshare.simulation.attacks import FACTORS, choose_attackers, spoil
from repshare.spaces import choose
from repshare.spaces.agreement import Common


class PaperProtocol(NamedTuple):
    """The paper's protocol for a data set."""

    samples: int
    """0: all there are."""
    rounds: int
    model: str
    space: tuple[str, ...] = ()
    """The common space, which the paper does not have. Chosen on training images that no experiment uses."""
    common_rounds: int = 10
    """Rounds of CS: as many as keep its traffic below a twentieth of FedAvg's."""


FASHION_SPACE = (
    "patches sizes=3,5,7,9,11 filters=24 grid=4 epsilon=0.016 deep=240 deep_grid=3 mirror=true fourier=16384 width=0.8"
)
PAPER = {
    "mnist": PaperProtocol(1200, 100, "lenet5"),
    "fashion_mnist": PaperProtocol(6000, 20, "resnet9", tuple(FASHION_SPACE.split()), 20),
    "cifar10": PaperProtocol(10000, 20, "resnet18", (), 20),
}
OTHER_DATA = PaperProtocol(0, 20, "lenet5")
ROUNDS = {"digits": 60}  # where the paper has no number, and curves still rise after 20


class Plan(NamedTuple):
    """Everything that a worker needs to build its clients."""

    run: Run[ResolvedSetting]
    classes: int
    train_images: NDArray[np.float32]  # (n, c, h, w)
    train_labels: NDArray[np.int64]  # (n,)
    test_images: NDArray[np.float32]
    test_labels: NDArray[np.int64]
    dealt: NDArray[np.int64]  # sample indices, client after client
    starts: NDArray[np.int64]  # (clients + 1,)  where each client's begin in `dealt`

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


def resolve(setting: Setting, available: int) -> ResolvedSetting:
    """Fill in what a setting leaves to the paper. Noise is drawn from the seed.

    Args:
        setting: The setting.
        available: Number of training samples.
    """
    usual = PAPER.get(setting.dataset, OTHER_DATA)
    samples = setting.samples or usual.samples or available
    if samples > available:
        raise ConfigError(f"{setting.dataset} has {available} training samples: {samples} are too many")
    filled = {
        "samples": samples,
        "rounds": setting.rounds or ROUNDS.get(setting.dataset, usual.rounds),
        "model": setting.model or (usual.model,),
        "device": choose_device(setting.device),
        "policy": replace(
            setting.policy,
            minimum_count=setting.policy.fewest,
            common_precision="fp32" if setting.loss == "discriminant" else setting.policy.common_precision,
            seeded_noise=setting.policy.epsilon is not None or setting.policy.seeded_noise,
        ),
    }
    return ResolvedSetting(**vars(setting) | filled)


def make_run(method: str, seed: int, setting: ResolvedSetting) -> Run[ResolvedSetting]:
    """Return a run of this method. In a common space it is over after fewer rounds, each of which can be tested."""
    if not find_method(method).in_space:
        return Run(method, seed, setting)
    rounds = 1 if find_method(method).share is None else common_rounds(setting)
    rounds = min(rounds, setting.rounds)
    every = 1 if (setting.eval_every or 1) < setting.rounds else rounds  # all, unless only the last is wanted
    return Run(method, seed, replace(setting, rounds=rounds, eval_every=every))


def common_rounds(setting: Setting) -> int:
    """Return the number of rounds of CS."""
    return setting.common_rounds or PAPER.get(setting.dataset, OTHER_DATA).common_rounds


def make_common(run: Run[Setting], example: NDArray[np.float32]) -> Common:
    """Return what the run's clients of a common classifier agree on: a space for inputs like the example (a batch)."""
    setting = run.setting
    words = setting.space or PAPER.get(setting.dataset, OTHER_DATA).space
    space = choose(words, torch.from_numpy(example.copy()), run.seed)
    return Common(space, setting.loss, setting.shrinkage)


def make_plan(run: Run[ResolvedSetting], splits: Splits) -> Plan:
    """Take the first samples, normalise by one mean and one deviation over all training pixels, deal them out."""
    splits = splits.first(run.setting.samples).normalised()
    parts = deal(run.setting, splits.train.labels, numpy_stream(run.seed, "partition"))
    if find_method(run.method).models == "pooled":
        parts = [np.sort(np.concatenate(parts))]
    starts = np.cumsum([0, *map(len, parts)])
    plan = Plan(run, splits.classes, *splits.train, *splits.test, np.concatenate(parts), starts)  # type: ignore[arg-type]
    attackers = choose_attackers(run.setting, run.seed, plan.clients)
    if not attackers or run.setting.attack in FACTORS:
        return plan
    rows = np.concatenate([plan.part(client) for client in sorted(attackers)])
    images, labels = spoil(plan.train_images, plan.train_labels, rows, run.setting.attack, run.seed, plan.classes)
    return plan._replace(train_images=images, train_labels=labels)


def write_plan(plan: Plan, folder: Path) -> None:
    """Put the plan's arrays into files, for other processes to map into their memory."""
    for name, value in plan._asdict().items():
        if isinstance(value, np.ndarray):
            np.save(folder / f"{name}.npy", value)


def map_plan(run: Run[ResolvedSetting], classes: int, folder: Path) -> Plan:
    """Return the plan whose arrays are in these files: shared by all processes that map them, not copied."""
    names = [name for name in Plan._fields if name not in ("run", "classes")]
    return Plan(run, classes, *(np.load(folder / f"{name}.npy", mmap_mode="c") for name in names))


def deal(setting: Setting, labels: NDArray[np.int64], rng: np.random.Generator) -> list[NDArray[np.int64]]:
    """Return sample indices for each client, as the setting's partition says."""
    match setting.partition:
        case "uniform":
            return partition.uniform(labels, setting.clients, rng)
        case "dirichlet":
            return partition.dirichlet(labels, setting.clients, rng, setting.alpha)
        case "shards":
            return partition.shards(labels, setting.clients, rng, setting.classes_per_client)
        case "unequal":
            return partition.unequal(labels, setting.clients, rng, setting.ratio)


def make_task(plan: Plan) -> Task:
    """Return the task that all clients' models fit. Raises ConfigError if there is none, or if the run cannot start."""
    setting = plan.run.setting
    method = find_method(plan.run.method, setting)
    method.choose_learner(method.adapt(setting.policy))
    names = [plan.model(client) for client in range(plan.clients)]
    everyone = {plan.name(client) for client in range(setting.clients)}  # also where one has everyone's data
    if strangers := set(setting.policy.peers or ()) - everyone:
        raise ConfigError(
            f"there is no peer {min(strangers)!r}: clients are called client 1 to client {setting.clients}"
        )
    if method.models == "one" and len(set(names)) > 1:
        raise ConfigError(f"{method.name} averages weights, so it needs one model, not {', '.join(setting.model)}")
    networks = {name: _network(plan, name, seed=0) for name in dict.fromkeys(names)}
    if method.in_space:
        if setting.topology is not None or setting.aggregation != "mean" or not setting.weighted:
            raise ConfigError(
                "a common classifier is the weighted total at a relay: leave topology and aggregation, or CS, out"
            )
        return make_common(plan.run, plan.train_images[:1]).task(plan.classes)
    widths = {name: method.learner.width(network) for name, network in networks.items()}
    if len(set(widths.values())) > 1:
        listed = ", ".join(f"{width} ({name})" for name, width in widths.items())
        raise ConfigError(f"clients' representations have different lengths: {listed}; give one with --dimension")
    if setting.attackers and method.models in ("one", "part") and setting.attack in FACTORS:
        raise ConfigError(f"attackers change representations: {method.name} shares none, leave it out")
    return Task(
        plan.classes,
        widths[names[0]],
        setting.norm_bound,
        weighted=setting.weighted,
        aggregation=setting.aggregation,
        named_peers=1,  # all clients are one's own
    )


def common_start(plan: Plan) -> Network:
    """Return the network that a server hands out, or a part of, before the first round."""
    start = _network(plan, plan.model(0), derive(plan.run.seed, "server", "model"))
    if not plan.run.setting.policy.end_to_end:
        return start
    from repshare.learning.dp_training import make_private

    return Network(make_private(start.model), start.head_name)  # as the clients' are


def build_model(plan: Plan, name: str, seed: int) -> nn.Module:
    """Return a model that fits the data."""
    channels, dimension = plan.train_images.shape[1], plan.run.setting.dimension
    return build(name, channels=channels, classes=plan.classes, dimension=dimension, seed=seed)


def _network(plan: Plan, name: str, seed: int) -> Network:
    network = split(
        build_model(plan, name, seed), torch.from_numpy(plan.train_images[:1].copy()), plan.run.setting.head
    )
    if network.classes != plan.classes:
        raise ConfigError(f"{name} has {network.classes} classes, {plan.run.setting.dataset} has {plan.classes}")
    return network
