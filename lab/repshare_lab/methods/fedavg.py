"""FL: FedAvg (McMahan et al., 2016): all weights go out, their average by number of samples comes back.

x ← Σ_i n_i/n · x_i over the clients of a round, each of which has trained from x.
"""

from functools import partial

from repshare.errors import ConfigError
from repshare.learning.training import Learner
from repshare.methods.method import Method
from repshare.sharing import wire
from repshare_lab.methods.averaging import Average, Part, copy_into, model_of, read_weights
from repshare_lab.methods.policies import refuse_privacy


def share(learner: Learner, round: int, part: Part = model_of) -> bytes:
    """Return the model itself, or a part of it, batch statistics included."""
    if learner.guard is not None:
        raise ConfigError(
            "epsilon is about averages of samples: the weights of a network have no noise, and do not leave"
        )
    return wire.encode_weights(read_weights(part(learner.network)), round=round, samples=len(learner.samples))


def absorb(learner: Learner, body: bytes, part: Part = model_of) -> None:
    """Continue from the average, if there is any."""
    weights, _, _ = wire.decode_weights(body)
    if weights:  # some client has sent its own
        copy_into(part(learner.network).state_dict(), weights)


FL = Method(
    "FL",
    "federated averaging",
    share,
    Average,
    absorb,
    adapt=partial(refuse_privacy, "FL"),
    models="one",
    source="McMahan et al., 2016: Communication-efficient learning of deep networks from decentralized data",
)
