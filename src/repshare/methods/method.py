"""What a method is: what a client shares, what is made of it, and what the client does with that."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from numpy.typing import NDArray
from torch import nn

from repshare.config import Policy, Setting
from repshare.exchange.local import Server
from repshare.learning.models import Network
from repshare.learning.training import Learner
from repshare.sharing.task import Task

Weights = Mapping[str, NDArray[Any]]


class Method(NamedTuple):
    """One way to learn together, as a few functions. All share one loop, one objective and one wire."""

    name: str
    """Its letters in the paper's table."""
    title: str
    """Its name in tables and figures."""
    share: Callable[[Learner, int], bytes] | None = None
    """What leaves a client after round r."""
    serve: Callable[[Task, Weights | None], Server] | None = None
    """What the other end makes of it; given initial weights where clients start from common ones."""
    absorb: Callable[[Learner, bytes], None] | None = None
    """What a client does with what comes back."""
    add_up: Callable[[Mapping[str, bytes]], Any] | None = None
    """How what several clients share becomes one thing that the server's `accept_sum` takes, if it can."""
    adapt: Callable[[Policy], Policy] = lambda policy: policy
    """The part of a policy that this method knows."""
    begin: Callable[[Learner, int], None] | None = None
    """What a client is given before its first round, and the seed that all of them know."""
    settle: Callable[["Method", Setting], "Method"] = lambda method, setting: method
    """The method as a simulation's setting has it."""
    server_part: Callable[[Network], nn.Module] | None = None
    """The part of a network that the server has, too: what it hands out before the first round, and what is tested."""
    shares_logits: bool = False
    """Whether a sample stands by its logits rather than its features."""
    one_model: bool = False
    """Whether clients must have the same architecture; the average is then what is tested."""
    in_space: bool = False
    """Whether clients learn dual variables in a common space, beside their networks."""
    pools_data: bool = False
    """Whether one client has everyone's data."""

    @property
    def shares_features(self) -> bool:
        """Whether something of samples' representations leaves a client: not where it is weights, logits or nothing."""
        return self.share is not None and not self.shares_logits and not self.one_model
