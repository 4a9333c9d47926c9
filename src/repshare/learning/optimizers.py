"""The optimizers that a policy can name, and how a client takes steps with one."""

from collections.abc import Callable

import torch
from torch import Tensor

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


class Descent:
    """Steps of an optimizer that leave no gradients behind, and are not taken where one is not finite."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.parameters: list[Tensor] = optimizer.param_groups[0]["params"]

    def step(self, loss: Tensor | None = None) -> bool:
        """Change the parameters by their gradients, and forget these. Return whether it did: not if one is not finite.

        A gradient whose length overflows counts as not finite: Adam would remember its square for good.
        """
        finite = _are_finite([parameter.grad for parameter in self.parameters if parameter.grad is not None], loss)
        if finite:
            self.optimizer.step()
        for parameter in self.parameters:  # in half the time of `zero_grad`
            parameter.grad = None
        return finite


def _are_finite(gradients: list[Tensor], loss: Tensor | None) -> bool:
    if not gradients:
        return loss is None or bool(loss.isfinite())
    total = torch.stack([length.float() for length in torch._foreach_norm(gradients)]).square().sum()
    return bool((total if loss is None else total + loss).isfinite())
