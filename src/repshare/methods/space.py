"""CS: sharing in a space that all clients compute alike.

What a client shares are class-shaped averages of fixed features over all its samples, in which each sample counts as
much as the classifier still needs it. The board adds them up, and the total is the classifier: see `repshare.space`.
"""

from dataclasses import replace

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.methods.method import Method
from repshare.methods.sharing import serve
from repshare.space.learner import SpaceLearner


def adapt(policy: Policy) -> Policy:
    """Use no observations and no distillation."""
    if policy.epsilon is not None:  # one release, unless told otherwise: it takes the whole budget
        policy = replace(policy, releases=policy.releases or 1, planned_releases=policy.releases or 1)
    if policy.peers is not None:
        raise ConfigError("the classifier of a space is made by all clients: leave peers or CS out")
    return replace(policy, lambda_kd=0.0, lambda_disc=0.0, m_up=0, m_down=0)


def adapt_alone(policy: Policy) -> Policy:
    """As CS, without samples held out: there are no other clients to judge."""
    return replace(adapt(policy), held_out=0.0, epsilon=None)


CS = Method(
    "CS",
    "sharing in a common space",
    learner=SpaceLearner.open,
    serve=serve,
    adapt=adapt,
    models="part",
    source="new here",
    in_space=True,
)
CA = Method(
    "CA",
    "the common space alone (a control: nothing is shared)",
    learner=SpaceLearner.open,
    adapt=adapt_alone,
    source="new here",
    in_space=True,
)
