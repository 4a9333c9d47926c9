"""FC: independent learning towards fixed class codes, a control: what the paper's regression does without the others.

Everyone draws the same code for each class from the shared seed, ±`code_size` in every dimension, and is pulled to it
as RS pulls to global means. Nothing is communicated: whatever this gains over learning alone is no collaboration.
"""

from dataclasses import replace
from functools import partial

import numpy as np
import torch

from repshare.config import Policy, Setting
from repshare.learning.objective import Lesson
from repshare.learning.randomness import numpy_stream
from repshare.learning.training import Learner
from repshare.methods.method import Method


def begin(learner: Learner, seed: int, size: float = Setting.code_size) -> None:
    """Take the codes for a lesson that never changes."""
    classes, dimension = learner.network.classes, learner.dimension
    codes = numpy_stream(seed, "codes").choice([-size, size], (classes, dimension)).astype(np.float32)
    like = learner.network.head.weight
    nobody = torch.zeros(classes, dtype=torch.bool, device=like.device)
    observations = torch.zeros(0, classes, dimension, device=like.device, dtype=like.dtype)
    learner.lesson = Lesson(torch.from_numpy(codes).to(like), ~nobody, observations, nobody)


def adapt(policy: Policy) -> Policy:
    """No discriminator: a fixed code is nobody's observation."""
    return replace(policy, lambda_disc=0.0, m_up=0, m_down=0)


def settle(method: Method, setting: Setting) -> Method:
    """With codes of the setting's size."""
    return method._replace(begin=partial(begin, size=setting.code_size))


FC = Method("FC", "fixed codes (a control: no communication)", adapt=adapt, begin=begin, settle=settle)
