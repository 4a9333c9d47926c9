"""A method: what a client shares, what the server makes of it, what the client does with that, and its loss."""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple

from repshare.board import Wants
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.exchange.local import Server
from repshare.learning.common.learner import CommonLearner
from repshare.learning.models import Network
from repshare.learning.randomness import derive
from repshare.learning.training import Learner, Loss
from repshare.sharing.task import Task


class Method(NamedTuple):
    """One way to learn together, as a few functions. All share one loop, one objective and one wire."""

    name: str
    """Its letters in the paper's table."""
    title: str
    """The words that they stand for."""
    share: Callable[[Learner, int], bytes] | None = None
    """Return what leaves a client after round r."""
    serve: Callable[[Task, Network | None, Any], Server] | None = None
    """Make the server, given the network that clients start from, if it is one, and the options."""
    absorb: Callable[[Learner, bytes], None] | None = None
    """Give a client what comes back."""
    loss: Loss | None = None
    """A term that is added to the loss of each batch."""
    options: Any = None
    """Its own options: a frozen dataclass, with a docstring under each field. A learner has them as `options`."""
    learner: type[Learner] = Learner
    """The learner of a client, where it does not train by Algorithm 2."""
    adapt: Callable[[Policy], Policy] = lambda policy: policy
    """The part of a policy that this method knows."""
    models: Literal["own", "one", "part", "pooled"] = "own"
    """The models to test. own: each client's. one: the server's, which all clients have. part: each client's, with
    the part that the server has of it. pooled: that of one client, which has everyone's data."""
    source: str = ""
    """The publication, as "Authors, year: title"."""

    @property
    def in_space(self) -> bool:
        """Return whether clients learn dual variables in a common space, next to their networks."""
        return issubclass(self.learner, CommonLearner)

    @property
    def shares_once(self) -> bool:
        """Return whether one release of each client is all that it ever shares."""
        return self.adapt(Policy()).releases == 1

    @property
    def shares_weights(self) -> bool:
        """Return whether clients share weights of all their layers, or of those before the head: all need one model."""
        return getattr(self.serve, "one_architecture", self.models == "one")

    @property
    def uses_public(self) -> bool:
        """Return whether clients learn from public samples, which no client owns."""
        return bool(getattr(self.learner, "uses_public", False))

    @property
    def keeps_features_short(self) -> bool:
        """Return whether clients train networks by a loss that can have a penalty on long features (λ_length)."""
        return not self.in_space and self.adapt(Policy(lambda_length=1.0)).lambda_length > 0

    @property
    def add_up(self) -> Callable[[Mapping[str, bytes]], Any] | None:
        """The function that combines several clients' bytes for the server's `accept_sum`, if its class has one."""
        return getattr(self.serve, "add_up", None)

    def choose_learner(self) -> type[Learner]:
        """Return the learner of a client. Raises ConfigError if it cannot add the method's loss."""
        if self.loss is not None and self.learner.no_loss:
            raise ConfigError(f"{self.name} adds a loss of its own, but {self.learner.no_loss}")
        return self.learner


def make_wants(method: Method, policy: Policy, seed: int, name: str, round: int) -> Wants:
    """Return what a client asks for in a round: a function of its seed, so that a simulator can ask in its place."""
    precision = policy.common_precision if method.in_space else "fp32"
    return Wants(policy.m_down, derive(seed, name, "collect", round), policy.peers, precision=precision)
