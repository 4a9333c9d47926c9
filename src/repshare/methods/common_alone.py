"""CA: the control of CS: the same space and classifier, of a client's own samples, and nothing shared."""

from dataclasses import replace

from repshare.config import Policy
from repshare.learning.common.learner import CommonLearner
from repshare.methods import common
from repshare.methods.method import Method


def adapt(policy: Policy) -> Policy:
    """Return CS's without a network, and without samples held out: there are no other clients to judge."""
    return replace(common.adapt(policy), held_out=0.0, epsilon=None)


CA = Method(
    "CA",
    "the common space alone (a control: nothing is shared)",
    learner=CommonLearner,
    adapt=adapt,
    source="new here",
)
