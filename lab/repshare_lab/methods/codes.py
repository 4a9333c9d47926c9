"""FC: independent learning towards fixed class codes, a control: the paper's regression without other clients.

Every client draws the same code for each class from the shared seed, ±`code_size` in every dimension, and pulls its
features to it as RS pulls them to global means. Nothing is communicated: what this gains over IL is no collaboration.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from repshare.methods.method import Method
from repshare.network.learner import NetworkLearner
from repshare.network.targets import Targets
from repshare.randomness import numpy_stream
from repshare_lab.config import Setting
from repshare_lab.methods.distillation import adapt


@dataclass(frozen=True)
class CodeOptions:
    """The setting's."""

    code_size: float = Setting.code_size


class CodeLearner(NetworkLearner):
    """A learner that takes the codes for targets that never change."""

    def __init__(self, *arguments: Any, seed: int, **given: Any) -> None:
        super().__init__(*arguments, seed=seed, **given)
        classes, size, like = self.network.classes, self.options.code_size, self.network.head.weight
        codes = numpy_stream(seed, "codes").choice([-size, size], (classes, self.dimension)).astype(np.float32)
        nobody = torch.zeros(classes, dtype=torch.bool, device=like.device)
        observations = torch.zeros(0, classes, self.dimension, device=like.device, dtype=like.dtype)
        self.targets = Targets(torch.from_numpy(codes).to(like), ~nobody, observations, nobody)


FC = Method(
    "FC",
    "fixed codes (a control: no communication)",
    learner=CodeLearner.open,
    options=CodeOptions(),
    adapt=adapt,
    source="new here",
)
