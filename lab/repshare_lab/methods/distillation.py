"""FD: federated distillation (Jeong et al., 2018): as the paper's method, with logits and without observations."""

from dataclasses import replace
from typing import Any

from torch import Tensor

from repshare.config import Policy
from repshare.methods import Method, serve
from repshare.network.learner import NetworkLearner
from repshare.network.models import Network


class LogitLearner(NetworkLearner):
    """A learner in which logits stand for a sample."""

    def __init__(self, *arguments: Any, **given: Any) -> None:
        super().__init__(*arguments, **given)
        self.representation = self.representation._replace(is_inputs=False, source="the logits")

    @staticmethod
    def width(network: Network) -> int:
        """Return the number of classes: one number for each."""
        return network.classes

    def represented(self, features: Tensor, logits: Tensor) -> Tensor:
        """Return the vectors that stand for samples: their logits."""
        return logits


def adapt(policy: Policy) -> Policy:
    """Use no discriminator, so that no observations are needed either way."""
    return replace(policy, lambda_disc=0.0, m_up=0, m_down=0)


FD = Method(
    "FD",
    "federated distillation (logits)",
    LogitLearner.open,
    serve,
    adapt=adapt,
    width=LogitLearner.width,
    source="Jeong et al., 2018: Federated distillation and augmentation under non-IID private data",
)
