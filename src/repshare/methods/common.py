"""CS: sharing in a common space.

What a client shares are class-shaped averages of fixed features over all its samples, in which each sample counts as
much as the common classifier still needs it. The board adds them up, and the total is the classifier: see `common`.
"""

from dataclasses import replace
from functools import lru_cache
from typing import Any

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.learning.common.discriminant import Discriminant
from repshare.learning.common.learner import CommonLearner
from repshare.learning.training import Learner
from repshare.methods.method import Method
from repshare.methods.sharing import serve
from repshare.sharing import sums, wire
from repshare.sharing.formats import FORMATS, FormatName
from repshare.sharing.parts import BESIDE, as_release
from repshare.sharing.representations import Release, nothing


def share(learner: Learner, round: int) -> bytes:
    """Return this client's part of the common classifier, or nothing while it is of too few samples."""
    own, policy = _common(learner), learner.policy
    if isinstance(own.dual, Discriminant) and own.guard is not None:
        labels = own.dual.labels.cpu().numpy()
        release = own.guard.release(own.dual.lifted(), labels, own.used_rows.numpy(), round)
    elif not own.shares_any:
        none = nothing(own.dimension + BESIDE)
        release = Release(round, none, none, space=own.space_name)
    elif isinstance(own.dual, Discriminant):
        release = sums.as_release(own.dual.sums(), round, own.space_name)
    else:
        release = as_release(own.dual.part(), round, own.space_name)
    return wire.encode_release(release, policy.common_precision)


def absorb(learner: Learner, body: bytes) -> None:
    """Continue from this total."""
    own = _common(learner)
    own.dual.absorb(_read(body, own.common.format, own.network.classes, own.dimension, own.space_name))


@lru_cache(maxsize=1)
def _read(body: bytes, format: FormatName, classes: int, dimension: int, space: str) -> Any:
    """Return the total, which clients of one process share."""
    return FORMATS[format].read(wire.decode_teacher(body), classes, dimension, space)


def adapt(policy: Policy) -> Policy:
    """Use no observations and no distillation."""
    if policy.epsilon is not None:  # one release, unless told otherwise: it takes the whole budget
        policy = replace(policy, releases=policy.releases or 1, planned_releases=policy.releases or 1)
    if policy.peers is not None:
        raise ConfigError("a common classifier is made by all clients: leave peers or CS out")
    return replace(policy, lambda_kd=0.0, lambda_disc=0.0, m_up=0, m_down=0)


def _common(learner: Learner) -> CommonLearner:
    if not isinstance(learner, CommonLearner):
        raise ConfigError(f"{learner.name} has no common space")
    return learner


CS = Method(
    "CS",
    "sharing in a common space",
    share,
    serve,
    absorb,
    learner=CommonLearner,
    adapt=adapt,
    models="part",
    source="new here",
)
