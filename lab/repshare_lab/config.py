"""The values that all methods of a comparison have in common: they are the command line, its help, and run.json.

A line of a description is a sentence, or several. The help adds the default, unless the description says it.
"""

from dataclasses import dataclass, field
from typing import Generic, Literal, TypeVar

from repshare import moved
from repshare.config import Policy, SpaceLoss
from repshare.fields import check_fits, check_not_negative, check_one_of, check_positive, check_whole, check_within


@moved.refuses_old_names
@dataclass(frozen=True)
class Setting:
    """The values that all methods of a comparison have in common."""

    dataset: str = "mnist"
    """A name (`repshare data list`), or your own as file.py:function, file.csv or folder/."""
    label: str | None = None
    """Column of a table (file.csv) that has the classes. Default: the last one."""
    test_file: str | None = None
    """Table of test samples, with the columns of the dataset. Default: a fifth of each class, always the same."""
    standardise: bool = False
    """Standardise your own data by the training samples: each column of a table, all pixels of images together.
    Built-in images and tables always are."""
    samples: int | None = None
    """Number of training samples to use. Default: the paper's number for the dataset, else all."""
    clients: int = 5
    """Number of clients that the data is divided among."""
    rounds: int | None = None
    """Number of communication rounds. Default: the paper's, or what suits the dataset."""
    model: tuple[str, ...] = ()
    """lenet5, convnet, resnet9, resnet18, mlp, bag (text), or your own as file.py:function.
    Several are assigned to clients in turn. Default: what suits the dataset."""
    dimension: int | None = None
    """d', the length of a representation. It must be the same for all models. Default: the model's own."""
    partition: Literal["uniform", "dirichlet", "shards"] = "uniform"
    """How samples are divided among clients. uniform: at random, in equal parts (the paper).
    dirichlet: each class in Dirichlet(alpha) proportions, so that sizes differ, too.
    shards: a few classes for each client."""
    alpha: float = 0.5
    """dirichlet: smaller values make clients' classes more unequal."""
    classes_per_client: int = 2
    """shards: number of classes that each client has."""
    head: str | None = None
    """Name of the last linear layer of your own model, if it cannot be found automatically."""
    norm_bound: float = 1000.0
    """Representations longer than this are refused. Those of the built-in models are never longer than √d'."""
    weighted: bool = True
    """A client's class mean counts by its number of samples. If false, all clients count the same."""
    noise_partners: float = 0.0
    """Fraction of clients whose inputs are white noise: a control, partners who know nothing.
    Accuracies are those of the others, of which there is at least one."""
    independent_starts: bool = False
    """FL: start each client's network from its own random weights, as in the paper's table."""
    space: tuple[str, ...] = ()
    """The common space and its options, as in `patches filters=64`, `efficientnet-lite0`, or your own file.py:function.
    A module gets fp32, images in 0 … 1, and resizes and normalises them itself.
    Default: patches for images, fourier for vectors."""
    loss: SpaceLoss = "squared"
    """Loss of the common classifier.
    discriminant: class sums are shared once, with noise if --epsilon is given, and read with each client's samples."""
    shrinkage: float | None = None
    """How strongly the common classifier is regularised. Default: chosen by leave-one-out error over all clients."""
    space_rounds: int | None = None
    """CS: number of rounds, if fewer than --rounds. CA needs one.
    Default: 20 for fashion_mnist and cifar10, else 10."""
    code_size: float = 0.9
    """FC: distance of the class codes from zero in each dimension."""
    participation: float = 1.0
    """Fraction of the available clients that take part in a round, chosen at random each time."""
    dropout: float = 0.0
    """Probability that a client misses a round."""
    eval_every: int | None = None
    """Number of rounds between tests. There is always one after the last round.
    Default: 20 to 40 tests in all, the first after round 1."""
    device: str = "cpu"
    """PyTorch device on which models are trained. auto: a GPU (cuda, mps) if there is one, else cpu."""
    method_options: tuple[str, ...] = ()
    """Options of methods, as METHOD.option=value. `repshare methods NAME` shows them."""
    policy: Policy = field(default_factory=Policy)
    """Every client's policy."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "clients")
        check_positive(self, "shrinkage")
        check_within(self, 0, 1, "noise_partners")
        check_one_of(self, "partition", "loss")
        check_not_negative(self, "code_size")
        check_fits(self, ["dropout"], "at least 0 and below 1", lambda value: 0 <= value < 1)
        check_fits(self, ["participation"], "above 0 and at most 1", lambda value: 0 < value <= 1)
        check_whole(self, 1, "samples", "rounds", "dimension", "space_rounds", "eval_every")


@dataclass(frozen=True)
class ResolvedSetting(Setting):
    """A setting in which the values that depend on the dataset are filled in: `simulation.resolve` returns it."""

    samples: int = field(kw_only=True)
    rounds: int = field(kw_only=True)


METHODS = ("CL", "IL", "FL", "FD", "RS", "CA", "CS")  # compared if none are given
AnySetting = TypeVar("AnySetting", bound=Setting, covariant=True)


@dataclass(frozen=True)
class Run(Generic[AnySetting]):
    """One method on one split: on CPUs, with the same seed it gives the same bits."""

    method: str
    """Its letters, or `file.py:NAME`: by that, worker processes find it too."""
    seed: int
    """The seed of the split, the starting weights and all random streams."""
    setting: AnySetting
    """The values that all methods of a comparison have in common."""
