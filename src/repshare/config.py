"""Frozen dataclasses that describe a run: they are the command line, its help, and run.json.

The help keeps line ends: a line of a description is a sentence, or several.
"""

import math
import sys
from dataclasses import dataclass, field
from typing import Literal, get_args, get_type_hints

from repshare.aggregation import Aggregation
from repshare.errors import ConfigError
from repshare.topology import Topology

Attack = Literal["flip", "scale", "noise", "permuted"]
Compute = Literal["fp32", "bf16"]
Precision = Literal["fp32", "fp16", "int8"]
Level = float | Literal["public", "never"]  # a sample's own privacy budget: ε, none needed, or nothing of it leaves


@dataclass(frozen=True)
class Policy:
    """One client's own choices: how it learns, and what it lets others see (tunable collaboration)."""

    lambda_kd: float = 10.0
    """λ_KD: how strongly features are pulled to the global mean of their class. 0 switches it off."""
    lambda_disc: float = 1.0
    """λ_disc: how much the contrastive discriminator counts. 0 switches it off."""
    lambda_length: float = 0.0
    """How strongly features are kept short, by ‖φ‖²/d'. It needs nobody; on MNIST, 10 gains more than sharing."""
    discriminator: Literal["classifier", "external"] = "classifier"
    """What tells whether two representations are of one class: the model's own classifier, or two linear maps."""
    summed: bool = False
    """Sum these terms over features and classes, as the paper's formulas do, instead of averaging."""
    n_avg: int = 10
    """Samples averaged into each observation. Fewer make observations more telling, of others and of you."""
    m_up: int = 1
    """M↑: observations shared for each class and round."""
    m_down: int = 1
    """M↓: observations learnt from for each class and round."""
    minimum_count: int | None = None
    """Never share an average over fewer samples than this.
    Default: 2 for `join` and `peer`, where 1 must be asked for; 1 in a simulation and from Python."""
    share_classes: tuple[int, ...] | None = None
    """Classes that may be shared. Default: all."""
    share_samples: tuple[int, ...] | None = None
    """Samples, by their index in each client's own data, that may enter an average. The others only train.
    Default: all."""
    share_inputs: bool = False
    """Share although the model only passes its inputs on, so that averages of the data itself leave."""
    peers: tuple[str, ...] | None = None
    """Clients to learn from, by name (in a simulation "client 1", "client 2" …). Default: everyone.
    At a relay this needs a task that was created with --named-peers."""
    precision: Precision = "fp32"
    """How exactly the numbers that a client shares are written (RS and FD only)."""
    common_precision: Literal["fp32", "fp16"] = "fp16"
    """CS: how exactly the numbers that a client shares and receives are written. int8 is too coarse for it."""
    held_out: float = 0.05
    """CS: the share of samples that never leave in any form, and tell whether the others help. At least 10, or none."""
    keep_to_self: bool = False
    """CS: use the classifier of the own samples where the held-out ones say that the others make it worse."""
    pair: Literal["no", "pair", "distil"] = "no"
    """CS: train the own network, too. pair: use both together. distil: teach the network what the pair says."""
    releases: int | None = None
    """Release at most so often, then only listen. Default: in every round."""
    epochs: int = 1
    """Passes over the local data in each round."""
    batch_size: int = 32
    """Samples in a training step."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Local optimizer. Its state is kept between rounds."""
    learning_rate: float = 1e-3
    """Its step size."""
    compute: Compute = "fp32"
    """Numbers that the network computes with. bf16 is about twice as fast on processors with AVX-512 BF16.
    Weights, losses and everything shared stay fp32."""
    release_every: int = 1
    """Release after every so many rounds only. Each release costs privacy and traffic."""
    epsilon: float | None = None
    """ε: with noise, so that all releases together are (ε, δ)-differentially private for each sample, given the model.
    Training itself is not, unless `end_to_end`: see docs/privacy.md. Default: no noise."""
    delta: float = 1e-5
    """δ: the chance that ε does not hold. Well below one over the number of samples."""
    planned_releases: int = 20
    """Releases to make the budget last for. After it is spent a client releases nothing more, and goes on training."""
    clip: float | None = None
    """Features longer than this are shortened to it: noise is in proportion. Default: √d', Tanh's longest."""
    adjacency: Literal["replace", "add-remove"] = "replace"
    """What others must not notice. replace: one sample replaced by another of its class; how many there are is public.
    add-remove: one added or removed, with noise on these numbers, too, and each sample charged by its own length."""
    seeded_noise: bool = False
    """Draw the noise from the seed: it protects nobody, and releases say so. Simulations do, to be repeatable."""
    end_to_end: bool = False
    """Train with DP-SGD, too: then ε covers all that others ever see, and what they can know about the model."""
    training_share: float = 0.5
    """end_to_end: the part of ε for training; releases alone cost at most the rest."""
    grad_clip: float = 1.0
    """end_to_end: longer gradients of a sample are shortened to this."""

    def __post_init__(self) -> None:
        for name in ("lambda_kd", "lambda_disc", "lambda_length"):
            _within(self, name, 0, sys.float_info.max)
        for name in ("n_avg", "epochs", "batch_size", "release_every", "planned_releases"):
            _whole(self, name, 1)
        for name in ("m_up", "m_down"):
            _whole(self, name, 0)
        for name in ("releases", "minimum_count"):
            if getattr(self, name) is not None:
                _whole(self, name, 1)
        if not 0 <= self.held_out < 1:
            raise ConfigError(f"held_out must be at least 0 and below 1, not {self.held_out}")
        for name in ("discriminator", "precision", "common_precision", "optimizer", "adjacency", "compute", "pair"):
            _one_of(self, name)
        for name in ("learning_rate", "epsilon", "clip", "grad_clip"):
            if (value := getattr(self, name)) is not None and not 0 < value < math.inf:
                raise ConfigError(f"{name} must be above 0 and finite, not {value}")
        if not 0 < self.delta < 1:
            raise ConfigError(f"delta must be above 0 and below 1, not {self.delta}")
        if not 0 < self.training_share < 1:
            raise ConfigError(f"training_share must be above 0 and below 1, not {self.training_share}")
        if self.end_to_end and self.epsilon is None:
            raise ConfigError("end_to_end needs a budget: set epsilon")
        if self.end_to_end and self.compute != "fp32":
            raise ConfigError("end_to_end clips each sample's exact gradient: use compute fp32")
        if self.end_to_end and self.discriminator == "external":
            raise ConfigError("end_to_end trains no external discriminator: use discriminator classifier")
        if isinstance(self.peers, str):
            raise ConfigError(f"peers must be several names, not the text {self.peers!r}")

    @property
    def fewest(self) -> int:
        """How many samples an average is at least over."""
        return 1 if self.minimum_count is None else self.minimum_count


@dataclass(frozen=True)
class Setting:
    """What every method of a comparison has in common."""

    dataset: str = "mnist"
    """mnist, fashion_mnist, cifar10, digits, or your own as file.py:function."""
    data_folder: str | None = None
    """A folder that already holds the data set, as torchvision lays it out."""
    samples: int | None = None
    """Use the first so many training samples. Default: the paper's number for the data set, else all."""
    clients: int = 5
    """N: how many parties share the data."""
    rounds: int | None = None
    """Communication rounds. Default: the paper's number for the data set, else 20."""
    model: tuple[str, ...] = ()
    """lenet5, convnet, mlp, resnet9, resnet18, or your own as file.py:function. Several are dealt out in turn.
    Default: the paper's for the data set."""
    dimension: int | None = None
    """d', the length of a representation. Default: the model's own. Different models must agree on one."""
    partition: Literal["uniform", "dirichlet", "shards", "unequal"] = "uniform"
    """How samples are dealt. uniform: equal parts at random (the paper). unequal: random parts of unequal size.
    dirichlet: by class with Dirichlet(alpha) shares. shards: a few classes each."""
    alpha: float = 0.5
    """dirichlet: the smaller, the more one-sided."""
    classes_per_client: int = 2
    """shards: how many classes a client sees."""
    ratio: float = 10.0
    """unequal: how many times the smallest part the largest is."""
    head: str | None = None
    """The name of your own model's last linear layer, where it cannot be found by what it computes."""
    norm_bound: float = 1000.0
    """Longer representations are refused. Those of the built-in models are never longer than √d'."""
    weighted: bool = True
    """Weigh a client's class mean by its samples; off, each client counts the same."""
    aggregation: Aggregation = "mean"
    """How clients' class means become one: mean, or median, trimmed or geometric, which a few liars cannot spoil."""
    attackers: float = 0.0
    """The share of clients that lie."""
    attack: Attack = "flip"
    """How they lie. flip turns every vector that they share round, scale makes it a hundred times as long (not FL, SL).
    noise replaces their images by white noise, permuted gives each of their classes the name of another."""
    independent_starts: bool = False
    """FL: average networks that started from different weights, as the published row did."""
    space: tuple[str, ...] = ()
    """CS and CA: the common space and its options, as in `patches filters=64 grids=4`, or your own as file.py:function.
    Default: patches for images, fourier for vectors."""
    loss: Literal["squared", "logistic"] = "squared"
    """CS and CA: the common classifier's loss. With logistic, a sample's weight in what is shared is at most 1."""
    shrinkage: float | None = None
    """CS and CA: how strongly the common classifier is regularised.
    Default: what does best when clients leave out one of their samples at a time, summed over clients."""
    common_rounds: int | None = None
    """CS: its rounds, if fewer than `rounds`. CA needs one. Default: 20 for fashion_mnist and cifar10, else 10."""
    code_size: float = 0.9
    """FC: how far from zero the codes of classes are in each dimension."""
    participation: float = 1.0
    """The share of the clients there that take part in a round, drawn anew each time."""
    dropout: float = 0.0
    """The chance that a client misses a round."""
    late_joiners: float = 0.0
    """The share of clients that join only in some later round."""
    leavers: float = 0.0
    """The share of clients that leave for good after some round."""
    stragglers: float = 0.0
    """The chance that a client's round takes one to three rounds longer.
    Its release arrives late (FL goes on without it), and it is busy until then."""
    topology: Topology | None = None
    """Share without a server (RS and FD only).
    Each round, a client learns from M↓ of its neighbours, drawn anew; global means are the average of theirs.
    complete: everyone is everyone's neighbour. ring: two each. regular: `degree` each, at random.
    random: each pair with the chance `link_chance`. star: all are the first one's.
    small_world: the nearest `degree` in a ring, each link moved with the chance `link_chance`.
    Default: a relay."""
    degree: int = 4
    """regular, small_world: neighbours of a client."""
    link_chance: float = 0.3
    """random: the chance that two clients are neighbours; small_world: that a link leads elsewhere."""
    eval_every: int = 10
    """Test the clients that were there after every so many rounds; always after the last."""
    device: str = "cpu"
    """Where models train, as PyTorch names it."""
    policy: Policy = field(default_factory=Policy)
    """Every client's policy."""

    def __post_init__(self) -> None:
        for name in ("clients", "eval_every", "degree"):
            _whole(self, name, 1)
        self._check_topology()
        if self.shrinkage is not None and not 0 < self.shrinkage < math.inf:
            raise ConfigError(f"shrinkage must be above 0 and finite, not {self.shrinkage}")
        for name in ("partition", "aggregation", "attack", "loss"):
            _one_of(self, name)
        for name in ("late_joiners", "leavers", "stragglers", "attackers", "link_chance"):
            _within(self, name, 0, 1)
        _within(self, "code_size", 0, sys.float_info.max)
        if not 0 <= self.dropout < 1:
            raise ConfigError(f"dropout must be at least 0 and below 1, not {self.dropout}")
        if not 0 < self.participation <= 1:
            raise ConfigError(f"participation must be above 0 and at most 1, not {self.participation}")
        for name in ("samples", "rounds", "dimension", "common_rounds"):
            if getattr(self, name) is not None:
                _whole(self, name, 1)

    def _check_topology(self) -> None:
        if self.topology is None:
            return
        if self.topology not in get_args(Topology):
            raise ConfigError(f"topology must be one of {', '.join(get_args(Topology))}, not {self.topology!r}")
        if self.topology in ("regular", "small_world"):
            if self.degree >= self.clients:
                raise ConfigError(f"degree must be below the number of clients, {self.clients}, not {self.degree}")
            if self.degree % 2 and self.clients % 2:
                raise ConfigError(f"{self.clients} clients cannot have {self.degree} neighbours each: both are odd")


@dataclass(frozen=True)
class Run:
    """One method on one split: on CPUs, with the same seed it gives the same bits."""

    method: str
    seed: int
    setting: Setting


def _within(config: object, name: str, least: float, most: float) -> None:
    value = getattr(config, name)
    if not least <= value <= most:
        bounds = f"at least {least} and finite" if most == sys.float_info.max else f"from {least} to {most}"
        raise ConfigError(f"{name} must be {bounds}, not {value}")


def _whole(config: object, name: str, least: int) -> None:
    value = getattr(config, name)
    if not isinstance(value, int) or value < least:
        raise ConfigError(f"{name} must be a whole number of at least {least}, not {value}")


def _one_of(config: object, name: str) -> None:
    value, choices = getattr(config, name), get_args(get_type_hints(type(config))[name])
    if value not in choices:
        raise ConfigError(f"{name} must be one of {', '.join(choices)}, not {value!r}")
