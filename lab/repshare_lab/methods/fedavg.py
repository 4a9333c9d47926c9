"""FL: FedAvg (McMahan et al., 2016): all weights go out, their average by number of samples comes back.

x ← Σ_i n_i/n · x_i over the clients of a round, each of which has trained from x.
"""

from functools import partial

from repshare.methods.method import Method
from repshare.network.learner import NetworkLearner
from repshare.sharing import wire
from repshare_lab.methods.averaging import Average, copy_into, read_weights
from repshare_lab.methods.policies import refuse_privacy


class WeightsLearner(NetworkLearner):
    """A learner whose network itself is averaged, batch statistics included."""

    def release(self, round: int) -> bytes:
        """The model's weights."""
        return wire.encode_weights(read_weights(self.network.model), round=round, samples=len(self.samples))

    def absorb(self, body: bytes) -> None:
        """Continue from the average, if there is any."""
        weights, _, _ = wire.decode_weights(body)
        if weights:  # some client has sent its own
            copy_into(self.network.model.state_dict(), weights)


FL = Method(
    "FL",
    "federated averaging",
    WeightsLearner.open,
    Average,
    adapt=partial(refuse_privacy, "FL"),
    models="one",
    shares_weights=True,
    add_up=Average.add_up,
    source="McMahan et al., 2016: Communication-efficient learning of deep networks from decentralized data",
)
