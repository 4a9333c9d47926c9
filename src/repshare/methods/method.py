"""A method: how a client learns, what stands between clients, and what of a policy it knows."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from repshare.board import Server
from repshare.config import Policy
from repshare.learner import Learner
from repshare.network.learner import NetworkLearner
from repshare.randomness import derive
from repshare.samples import Setup
from repshare.sharing.representations import Wants
from repshare.sharing.task import Task

if TYPE_CHECKING:
    from repshare.network.models import Network


class Method(NamedTuple):
    """One way to learn together. All share one loop, one objective and one wire."""

    name: str
    """Its letters in the paper's table."""
    title: str
    """The words that they stand for."""
    learner: Callable[[Setup], Learner] = NetworkLearner.open
    """Makes the learner of a client."""
    serve: Callable[[Task, "Network | None", Any], Server] | None = None
    """Makes the server, given the network that clients start from, if it is one, and the options.
    None: nothing is shared."""
    options: Any = None
    """Its own options: a frozen dataclass, with a docstring under each field. A learner has them as `options`."""
    adapt: Callable[[Policy], Policy] = lambda policy: policy
    """The part of a policy that this method knows."""
    control: "Method | None" = None
    """The same without other clients, which measures what sharing is worth; None: nothing is shared."""
    models: Literal["own", "one", "part", "pooled"] = "own"
    """The models to test. own: each client's. one: a global model. part: the client's, completed by the server's part.
    pooled: that of one client, which has everyone's data."""
    source: str = ""
    """The publication, as "Authors, year: title"."""
    in_space: bool = False
    """Whether clients learn in a space that they agree on, without networks."""
    shares_weights: bool = False
    """Whether clients share weights of all their layers, or of those before the head: all need one model."""
    sends_batches: bool = False
    """Whether clients exchange messages while they train, batch by batch."""
    width: Callable[["Network"], int] = NetworkLearner.width
    """The length of what stands for a sample, for clients with this network."""
    add_up: Callable[[Mapping[str, bytes]], Any] | None = None
    """Combines several clients' bytes for the server's `accept_sum`."""

    @property
    def shares_once(self) -> bool:
        """Whether one release of each client is all that it ever shares."""
        return self.adapt(Policy()).releases == 1


def make_wants(method: Method, policy: Policy, seed: int, name: str, round: int) -> Wants:
    """What a client asks for in a round: a function of its seed, so that a simulator can ask in its place."""
    precision = policy.precision if method.in_space else None
    return Wants(policy.m_down, derive(seed, name, "collect", round), policy.peers, precision=precision or "fp32")
