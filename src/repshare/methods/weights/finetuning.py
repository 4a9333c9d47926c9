"""FINETUNE: FedAvg, and before a test each client trains the average on its own samples.

w_i = U_i(w_t), where U_i is local training from the average w_t of a round. What is tuned is tested, and then
forgotten: it changes no later round. Models that are kept in files are the average.
"""

from dataclasses import dataclass, replace
from functools import partial

from torch import Tensor

from repshare.fields import check_whole
from repshare.learning.samples import Samples
from repshare.learning.states import copy_state
from repshare.learning.training import Learner
from repshare.methods import averaging, fedavg, policies
from repshare.methods.method import Method


@dataclass(frozen=True)
class TuningOptions:
    """The length of fine-tuning."""

    tuning_epochs: int = 1
    """Passes over the local data before a test."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "tuning_epochs")


class TunedLearner(Learner):
    """A learner that fine-tunes its network before it judges samples, and takes that back afterwards."""

    def scores(self, samples: Samples) -> Tensor:
        """Return the scores of the fine-tuned network (n, C)."""
        before, policy, left_out = copy_state(self.state()), self.policy, self.left_out.copy()
        self.policy = replace(policy, epochs=self.options.tuning_epochs)
        self.train()
        scores = super().scores(samples)
        self.policy, self.left_out = policy, left_out
        self.load_state(before)
        return scores


FINETUNE = Method(
    "FINETUNE", "FedAvg, fine-tuned by each client before a test", fedavg.share, averaging.Average, fedavg.absorb,
    options=TuningOptions(), learner=TunedLearner, adapt=partial(policies.refuse_privacy, "FINETUNE"), models="part",
    source="Yu, Bagdasaryan and Shmatikov, 2020: Salvaging federated learning by local adaptation",
)  # fmt: skip
