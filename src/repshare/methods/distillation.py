"""FD: federated distillation (Jeong et al., 2018): as the paper's method, with logits and without observations."""

from dataclasses import replace

from repshare.config import Policy
from repshare.methods.method import Method
from repshare.methods.sharing import absorb, serve, share


def adapt(policy: Policy) -> Policy:
    """No discriminator, so no observations either way."""
    return replace(policy, lambda_disc=0.0, m_up=0, m_down=0)


FD = Method("FD", "federated distillation (logits)", share, serve, absorb, adapt=adapt, shares_logits=True)
