"""FEDKD: clients' own networks, the mentors, and a smaller one that all share, the mentee, teach each other.

The mean of the mentees' changes is everyone's next one; changes travel as a few singular vectors.
Mentor: CE_t + (KL(y_s, y_t) + ‖H_t − W H_s‖²/d')/(CE_t + CE_s); mentee: CE_s + (KL(y_t, y_s) + the same)/(CE_t + CE_s).
A change g = U Σ Vᵀ keeps the smallest number K of singular values with Σ_{i≤K} σ_i² ≥ T · Σ σ_i², both up and down; T
goes linearly from T_start to T_end over the rounds. g is the change of a round of local training: the paper's is the
gradient of a batch. Its loss of attention maps is for transformers only, and left out. Mentors may differ.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch

from repshare.errors import Malformed
from repshare.fields import check_fits, check_one_of
from repshare.methods import averaging, policies
from repshare.methods.method import Method
from repshare.methods.transfer.changes import MeanChanges
from repshare.methods.transfer.low_rank import compress, expand
from repshare.methods.transfer.mentoring import MentoringLearner, floats, loss
from repshare.sharing import wire


@dataclass(frozen=True)
class MentorOptions:
    """The mentee, and how much of its changes travels."""

    mentee: str | None = None
    """The mentee's model, as in --model. Default: convnet for images, mlp for tables."""
    decide: Literal["mentor", "mentee"] = "mentor"
    """Which of both is tested."""
    energy_start: float = 0.95
    """T_start: the share of a change's energy that is kept in the first round."""
    energy_end: float = 0.98
    """T_end: the same in the last round."""
    rounds: int | None = None
    """The setting's: number of rounds over which T goes from its start to its end."""

    def __post_init__(self) -> None:
        check_one_of(self, "decide")
        check_fits(self, ["energy_start", "energy_end"], "above 0 and at most 1", lambda value: 0 < value <= 1)

    def energy(self, round: int) -> float:
        """Return T in a round."""
        done = min(1.0, (round - 1) / max(1, (self.rounds or 1) - 1)) if self.rounds else 1.0
        return self.energy_start + (self.energy_end - self.energy_start) * done


def share(learner: Any, round: int) -> bytes:
    """Return the change of the mentee since what all mentees were before this round."""
    changes = {name: x.detach() - learner.remembered[f"base {name}"] for name, x in floats(learner.mentee).items()}
    message = compress(averaging.as_arrays(changes), learner.options.energy(round))
    return wire.encode_weights(message, round=round, samples=len(learner.samples))


def absorb(learner: Any, body: bytes) -> None:
    """Go on from everyone's mentee: add the mean changes of all rounds since the last that this client knows."""
    kept, now = learner.remembered, floats(learner.mentee)
    for each in wire.decode_items(body).values():
        message, round, _ = wire.decode_weights(each)
        if round <= int(kept["round"]):
            continue
        try:
            changes = {name: change.reshape(now[name].shape) for name, change in expand(message).items()}
        except (ValueError, KeyError) as error:
            raise Malformed(f"the change is of another mentee: {error}") from error
        for name, change in changes.items():
            kept[f"base {name}"] = kept[f"base {name}"] + torch.from_numpy(change).to(now[name])
        kept["round"] = torch.tensor(round)
    for name, x in now.items():
        x.copy_(kept[f"base {name}"])


FEDKD = Method(
    "FEDKD", "a shared mentee that learns from private mentors (FedKD)", share, MeanChanges, absorb, loss,
    MentorOptions(), MentoringLearner, partial(policies.own_terms, "FEDKD"),
    source="Wu et al., 2022: Communication-efficient federated learning via knowledge distillation",
)  # fmt: skip
