"""FL: FedAvg (McMahan et al., 2016): all weights go out, their average by number of samples comes back.

x ← Σ_i n_i/n · x_i over the clients of a round, each of which has trained from x.
"""

from dataclasses import replace

from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.learning.training import Learner
from repshare.methods.averaging import Average, Part, copy_into, model_of, read_weights
from repshare.methods.method import Method
from repshare.methods.policies import refuse_privacy
from repshare.sharing import wire


def share(learner: Learner, round: int, part: Part = model_of) -> bytes:
    """Return the model itself, or a part of it, batch statistics included.

    With a budget, its training is charged before it leaves.
    """
    body = wire.encode_weights(read_weights(part(learner.network)), round=round, samples=len(learner.samples))
    if learner.guard is None:
        return body
    from repshare.privacy.end_to_end import WeightsGuard

    if not isinstance(learner.guard, WeightsGuard):
        raise ConfigError("weights may leave only if their training was private: use end_to_end, and models 'one'")
    return learner.guard.release_weights(body, round)


def absorb(learner: Learner, body: bytes, part: Part = model_of) -> None:
    """Continue from the average, if there is any."""
    weights, _, _ = wire.decode_weights(body)
    if weights:  # some client has sent its own
        copy_into(part(learner.network).state_dict(), weights)


def adapt(policy: Policy) -> Policy:
    """Return the policy. Weights get no noise of their own: with a budget, their training must be private."""
    if policy.epsilon is not None and not policy.end_to_end:
        raise ConfigError("epsilon alone protects averages of representations, not FL's weights: use --end-to-end")
    refuse_privacy("FL", replace(policy, epsilon=None, end_to_end=False))
    return policy


FL = Method(
    "FL",
    "federated averaging",
    share,
    Average,
    absorb,
    adapt=adapt,
    models="one",
    source="McMahan et al., 2016: Communication-efficient learning of deep networks from decentralized data",
)
