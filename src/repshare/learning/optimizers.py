"""The optimizers that a policy can name, and how a client takes steps with one."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

OPTIMIZERS: dict[str, Callable[..., torch.optim.Optimizer]] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": torch.optim.SGD,
}


class Descent:
    """Steps of an optimizer, to the same bits as its own, that leave no gradients behind.

    PyTorch's Adam looks its whole state up again, and reports to its profiler, in every step: 5 % of a LeNet5's, with
    `zero_grad`. After its first step, this calls Adam's arithmetic itself; the state stays where PyTorch keeps it.
    """

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self.parameters: list[Tensor] = optimizer.param_groups[0]["params"]
        self._state: Any = None  # the state that the lists are of: loading another makes a new one
        self._lists: list[list[Tensor]] | None = None  # averages, their squares', and numbers of steps
        self._numbers = torch.zeros(0)  # of steps, all in one tensor

    def step(self, loss: Tensor | None = None) -> bool:
        """Change the parameters by their gradients, and forget these. Whether it did: not where one is not finite.

        A gradient whose length overflows counts as not finite: Adam would remember its square for good.
        """
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        finite = _are_finite(gradients, loss)
        if not finite:
            pass
        elif self._lists and self._state is self.optimizer.state and len(gradients) == len(self.parameters):
            self._fused_adam(gradients, *self._lists)
        else:
            self.optimizer.step()
            self._prepare()
        for parameter in self.parameters:
            parameter.grad = None
        return finite

    def _fused_adam(self, *lists: list[Tensor]) -> None:
        gradients, averages, squares, numbers = lists
        group = self.optimizer.param_groups[0]
        with torch.no_grad():
            self._numbers += 1
            torch._fused_adam_(
                self.parameters, gradients, averages, squares, [], numbers,
                lr=group["lr"], beta1=group["betas"][0], beta2=group["betas"][1], weight_decay=group["weight_decay"],
                eps=group["eps"], amsgrad=False, maximize=False,
            )  # fmt: skip

    def _prepare(self) -> None:
        """Collect what the arithmetic takes, if it can take all parameters at once."""
        state = self.optimizer.state
        kinds = {(parameter.dtype, parameter.device) for parameter in self.parameters}
        known = type(self.optimizer) is torch.optim.Adam and hasattr(torch, "_fused_adam_")
        if not known or len(kinds) > 1 or len(state) < len(self.parameters):
            return
        own = [state[parameter] for parameter in self.parameters]
        self._numbers = torch.stack([each["step"] for each in own])
        for each, number in zip(own, self._numbers.unbind(), strict=True):
            each["step"] = number
        self._lists = [[each[name] for each in own] for name in ("exp_avg", "exp_avg_sq", "step")]
        self._state = state


def _are_finite(gradients: list[Tensor], loss: Tensor | None) -> bool:
    if not gradients:
        return loss is None or bool(loss.isfinite())
    total = torch.stack([length.float() for length in torch._foreach_norm(gradients)]).square().sum()
    return bool((total if loss is None else total + loss).isfinite())
