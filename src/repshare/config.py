"""A client's policy, in groups: it is the command line, its help, and a part of run.json.

A line of a description is a sentence, or several. The help adds the default, unless the description says it.
"""

from dataclasses import dataclass
from typing import Any, Literal

from repshare import moved
from repshare.errors import ConfigError
from repshare.fields import check_fits, check_not_negative, check_one_of, check_positive, check_whole

SpaceLoss = Literal["squared", "discriminant"]
Compute = Literal["fp32", "bf16"]
Precision = Literal["fp32", "fp16", "int8"]


FEWEST = 3  # samples in an average that leaves: of two, whoever has one knows the other


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """How a network is trained."""

    epochs: int = 1
    """Passes over the local data in each round."""
    batch_size: int = 32
    """Number of samples in a training step."""
    optimizer: Literal["adam", "adamw", "sgd"] = "adam"
    """Local optimizer. Its state is kept between rounds."""
    learning_rate: float = 1e-3
    """Learning rate of the local optimizer."""
    compute: Compute = "fp32"
    """Number format that the network computes with. bf16 is about twice as fast on processors with AVX-512 BF16.
    Weights, losses and everything shared stay fp32."""
    lambda_length: float = 0.0
    """Weight of a penalty on the length of features, ‖φ‖²/d'. It needs no other client.
    On MNIST, 10 gains more than sharing does."""


@dataclass(frozen=True, kw_only=True)
class SharingOptions:
    """What is shared, and with whom."""

    minimum_count: int | None = None
    """Never share an average over fewer samples than this.
    CS: samples of classes with fewer take no part, and none counts for more than one of so many in a row.
    Default: 3; 1 in a simulation, of which nothing leaves."""
    share_classes: tuple[int, ...] | None = None
    """Classes that may be shared. Default: all."""
    share_samples: tuple[int, ...] | None = None
    """Samples that may enter an average, by their index in each client's data. The rest is used for training only.
    Default: all."""
    share_inputs: bool = False
    """Share even if the model has no hidden layer, so that averages of the data itself leave this machine."""
    accept_exposure: bool = False
    """CS: share also where rows are so long that whoever sees a release can tell who is among your samples.
    Default: refuse, unless there is a budget."""
    peers: tuple[str, ...] | None = None
    """Names of the clients to learn from ("client 1", "client 2" … in a simulation). Default: all.
    A relay hands out nothing by name."""
    precision: Precision | None = None
    """Number format of what a client shares. Default: fp32; fp16 in a space, where what it receives has it, too."""
    releases: int | None = None
    """Maximum number of releases; after that the client only receives. A budget is spread over them.
    Default: no limit; 1 with a budget."""
    release_every: int = 1
    """Number of rounds between releases. Each release costs privacy and traffic."""

    @property
    def fewest(self) -> int:
        """The fewest samples that an average which is shared may be over."""
        return FEWEST if self.minimum_count is None else self.minimum_count

    def check_chosen(self, samples: int, classes: int) -> None:
        """Raise ConfigError if it names a sample or a class that is not there: another must not be shared instead.

        Args:
            samples: Number of samples.
            classes: Number of classes.
        """
        for name, count in ("share_samples", samples), ("share_classes", classes):
            if wrong := [index for index in getattr(self, name) or () if not 0 <= index < count]:
                raise ConfigError(f"{name} has {wrong[0]}, but there are only 0 to {count - 1}")


@dataclass(frozen=True, kw_only=True)
class PrivacyOptions:
    """A privacy budget."""

    epsilon: float | None = None
    """ε: with noise, all releases together are (ε, δ)-differentially private for each sample.
    It is for sums of classes (CS, loss discriminant): see docs/what-leaves.md. Default: no noise."""
    delta: float = 1e-5
    """δ: the probability that ε does not hold. It should be well below one over the number of samples."""
    adjacency: Literal["replace", "add-remove"] = "replace"
    """Which change of the data ε hides.
    replace: one sample is replaced by another of its class; the number of samples is public.
    add-remove: one sample is added or removed."""
    seeded_noise: bool = False
    """Draw the noise from the seed, to be reproducible. Such noise gives no privacy; releases are marked."""
    noise_shares: int = 1
    """CS, in a masked group: number of members whose noise together is enough for ε. Each adds that fraction of it.
    It is at most the number that must take part in a sum, less those that may collude. Default: each adds all of it."""


@dataclass(frozen=True, kw_only=True)
class RepresentationOptions:
    """RS and FD: class means and observations of a network's features."""

    lambda_kd: float = 10.0
    """λ_KD: how strongly features are pulled towards the global mean of their class. 0 switches it off.
    L_KD is an average over d' features: for the paper's sum, give λ_KD · d'."""
    lambda_disc: float = 1.0
    """λ_disc: weight of the contrastive discriminator's loss. 0 switches it off.
    L_disc is an average over C classes: for the paper's sum, give λ_disc · C."""
    start: Literal["zeros", "none"] = "zeros"
    """RS, FD: what the class means of others are before anybody has shared any, in a client's first round.
    zeros: no length at all, close to those of untrained networks. none: no teacher, cross-entropy alone."""
    n_avg: int = 10
    """Number of samples averaged into each observation.
    Smaller values carry more information, and reveal more about your samples."""
    m_up: int = 1
    """M↑: number of observations shared for each class and round."""
    m_down: int = 1
    """M↓: number of observations to learn from for each class and round."""


@dataclass(frozen=True, kw_only=True)
class SpaceOptions:
    """CS: a classifier in a space that all clients agree on."""

    held_out: float = 0.05
    """CS: fraction of the samples that is never shared, and shows whether other clients help. At least 10, or none."""
    prefer_own: bool | None = None
    """CS: use the classifier of the client's own samples where it does better on the held-out ones.
    Without held-out ones, on all up to a thousand, each judged by classifiers that have not seen it.
    Default: yes for `join` and `peer`; no in a simulation."""
    own_mix: bool = False
    """CS, loss squared: predict as if classes came as often as in the client's own data.
    It gains where they do, and costs where all classes are as frequent. Nothing more is shared."""
    sums_only: bool = False
    """CS, loss discriminant: read the total as it is, without a correction by the client's own samples."""


@moved.refuses_old_names
@dataclass(frozen=True, kw_only=True)
class Policy(SpaceOptions, RepresentationOptions, PrivacyOptions, SharingOptions, TrainingOptions):
    """One client's own choices: how it learns, and what it lets others see (tunable collaboration).

    Its fields are in groups: `TrainingOptions`, `SharingOptions`, `PrivacyOptions`, those of RS
    (`RepresentationOptions`) and those of CS (`SpaceOptions`).
    """

    def __post_init__(self) -> None:
        check_not_negative(self, "lambda_kd", "lambda_disc", "lambda_length")
        check_whole(self, 1, "n_avg", "epochs", "batch_size", "release_every", "noise_shares")
        check_whole(self, 0, "m_up", "m_down")
        check_whole(self, 1, "releases", "minimum_count")
        check_fits(self, ["held_out"], "at least 0 and below 1", lambda value: 0 <= value < 1)
        check_one_of(self, "start", "precision", "optimizer", "adjacency", "compute")
        check_positive(self, "learning_rate", "epsilon")
        check_fits(self, ["delta"], "above 0 and below 1", lambda value: 0 < value < 1)
        if isinstance(self.peers, str):
            raise ConfigError(f"peers must be several names, not the text {self.peers!r}")


def __getattr__(name: str) -> Any:
    moved.check(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
