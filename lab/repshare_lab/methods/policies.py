"""The part of a client's policy that a method knows."""

from dataclasses import replace

from repshare.config import Policy
from repshare.errors import ConfigError


def refuse_privacy(method: str, policy: Policy) -> Policy:
    """Return the policy. Raises ConfigError if it has options that only releases of averages know."""
    if policy.epsilon is not None or policy.release_every > 1:
        raise ConfigError(f"epsilon and release_every are about releases of representations: leave {method} out")
    return policy


def own_terms(method: str, policy: Policy) -> Policy:
    """Use no other terms of a loss than the method's own, and no privacy budget."""
    return replace(refuse_privacy(method, policy), lambda_kd=0.0, lambda_disc=0.0, m_up=0, m_down=0)
