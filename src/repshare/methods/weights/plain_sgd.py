"""Local training by SGD without momentum, which the update rules of some methods are written for."""

from dataclasses import dataclass, replace
from typing import Any

from torch import nn

from repshare.config import Policy
from repshare.fields import check_positive
from repshare.learning.samples import Samples
from repshare.learning.training import Learner

USUAL_RATE = 0.2


@dataclass(frozen=True)
class SGDOptions:
    """The options of methods that need plain SGD."""

    learning_rate: float | None = None
    """Learning rate of its SGD. Default: the policy's if its optimizer is sgd, else 0.2."""

    def __post_init__(self) -> None:
        check_positive(self, "learning_rate")


class PlainSGD(Learner):
    """A learner that trains by SGD."""

    def __init__(self, model: nn.Module, samples: Samples, policy: Policy, *, options: Any, **given: Any) -> None:
        usual = policy.learning_rate if policy.optimizer == "sgd" else USUAL_RATE
        rate = usual if options.learning_rate is None else options.learning_rate
        policy = replace(policy, optimizer="sgd", learning_rate=rate)
        super().__init__(model, samples, policy, options=options, **given)
