"""The options of a task whose clients learn a common classifier, and the agreement that they make."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated

import tyro

from repshare.config import CommonLoss
from repshare.errors import ConfigError

if TYPE_CHECKING:
    from repshare.sharing.task import Task


@dataclass(frozen=True)
class AgreementOptions:
    """A common space (CS), for a task whose clients learn one classifier: --input-shape asks for it."""

    input_shape: tuple[int, ...] = ()
    """Shape of a sample: channels, height and width of an image, or the number of columns of a table."""
    input_range: tuple[float, float] | None = None
    """The least and the largest value of an input, such as 0 255. Inputs of clients must be in it.
    Default: images and columns are normalised by the clients to mean 0 and deviation 1."""
    class_names: tuple[str, ...] = ()
    """Names of the classes, in the order of their labels. A client with others is refused."""
    space: Annotated[tuple[str, ...], tyro.conf.arg(metavar="NAME [OPTION=VALUE …]")] = ()
    """The space: patches (images), fourier (tables), or a module as file.py:function, of which the task states a hash.
    Default: by the shape."""
    space_seed: int = 0
    """Seed of the space's random numbers."""
    loss: CommonLoss = "squared"
    """Loss of the common classifier. discriminant is the one that takes --epsilon: clients share sums of classes."""
    shrinkage: float | None = None
    """Regularisation ρ / n of the common classifier. Default: by the clients' votes."""


def make_agreed_task(options: AgreementOptions, classes: int | None) -> "Task":
    """Return the task of clients that agree on this. Needs PyTorch."""
    import torch

    from repshare.spaces import Fourier, choose
    from repshare.spaces.agreement import Common

    count = classes or len(options.class_names)
    if not count:
        raise ConfigError("a common classifier needs --classes or --class-names")
    space, inputs = choose(options.space, torch.zeros(1, *options.input_shape), options.space_seed), options.input_range
    if isinstance(space, Fourier) and inputs is not None:
        columns = len(space.low)
        space, inputs = replace(space, low=(inputs[0],) * columns, high=(inputs[1],) * columns), None
    common = Common(space, options.loss, options.shrinkage, class_names=options.class_names, inputs=inputs)
    return common.task(count)
