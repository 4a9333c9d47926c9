"""The origin of a representation. A model that only passes its inputs on would share averages of the data itself."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from repshare.errors import ModelError
from repshare.learning.models import Network, leave_no_trace
from repshare.learning.samples import change_tensors

ROWS = 8  # inputs that are looked at, and as many with noise
COLUMNS = 64  # features that are looked at, spread over all
CLOSE = 1e-3  # of its length: how far a vector may be from a multiple of another, to count as one


class Made(NamedTuple):
    """The making of a representation: its length, and the layers and parameters behind it."""

    numbers: int  # d'
    layers: int  # with parameters, before the head
    parameters: int
    is_inputs: bool  # it is the inputs, up to their order and scale
    source: str = ""  # where it is not the client's own network, what it is

    @property
    def shares_inputs(self) -> bool:
        """Return whether an average of it is one of the inputs, or of a fixed function of them that hides nothing."""
        return self.is_inputs or not (self.parameters or self.source)

    def __str__(self) -> str:
        if self.is_inputs:
            return f"{self.numbers} numbers: the inputs themselves"
        if self.source and not self.parameters:
            return f"{self.numbers} numbers of {self.source}"
        if not self.parameters:
            return f"{self.numbers} numbers, computed from the inputs without any parameter"
        layers = "1 layer" if self.layers == 1 else f"{self.layers} layers"
        return f"{self.numbers} numbers after {layers} with {self.parameters:,} parameters"


def examine(network: Network, inputs: Any) -> Made:
    """Describe what a network's features of these inputs (a batch) are made of."""
    with torch.random.fork_rng(devices=[]):
        used = leave_no_trace(network.model, lambda: _used(network, inputs))
        passed_on = leave_no_trace(network.model, lambda: passes_on(lambda batch: network(batch)[0], inputs))
    layers = [module for module in network.model.modules() if any(id(p) in used for p in module.parameters(False))]
    return Made(network.dimension, len(layers), sum(used.values()), passed_on)


def check(made: Made, model: str) -> None:
    """Refuse a representation that would share the inputs."""
    if made.shares_inputs:
        raise ModelError(
            f"what {model} would share is no representation ({made}): averages of it are averages of the data. Put a "
            "layer with parameters before the last one; or say --share-inputs (share_inputs in the policy) if they may "
            "leave"
        )


def passes_on(represent: Callable[[Any], Tensor], inputs: Any) -> bool:
    """Return whether each number of a representation is an input's, up to scale and, with noise, an offset."""
    inputs = change_tensors(inputs, lambda each: each[:ROWS])
    given, made = _flatten(inputs), represent(inputs).flatten(1).double()
    if given is not None and given.shape == made.shape and _same_rows(made, given):
        return True
    noisy = _add_noise(inputs)
    if noisy is None:
        return False
    try:
        given, made = _flatten(noisy), represent(noisy).flatten(1).double()
    except (RuntimeError, ValueError, TypeError, IndexError, ModelError):
        return False  # it takes some inputs only, and made something of these
    return given is not None and _same_columns(made, given)


def _used(network: Network, inputs: Any) -> dict[int, int]:
    """Return the parameters that features depend on, by identity, and their sizes. Frozen ones count as used."""
    head = {id(parameter) for parameter in network.head.parameters()}
    with torch.enable_grad():
        features, _ = network(change_tensors(inputs, lambda each: each[:1]))
    found = _leaves(features)
    return {
        id(parameter): parameter.numel()
        for parameter in network.model.parameters()
        if id(parameter) not in head and (id(parameter) in found or not parameter.requires_grad)
    }


def _leaves(computed: Tensor) -> set[int]:
    """Return the tensors with gradients that a tensor was computed from, by identity. No hook is called."""
    found, seen, waiting = set[int](), set[Any](), [computed.grad_fn]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if (leaf := getattr(node, "variable", None)) is not None:
            found.add(id(leaf))
        waiting += [following for following, _ in node.next_functions]
    return found


def _same_rows(made: Tensor, given: Tensor) -> bool:
    """Return whether every vector has the numbers of another one, in some order, times a factor of its own."""
    made, given = (nn.functional.normalize(each, dim=1).sort(dim=1).values for each in (made, given))
    there = given.any(dim=1)
    turned = -given.flip(1)
    return bool(there.any()) and any(bool(((made - each)[there].norm(dim=1) < CLOSE).all()) for each in (given, turned))


def _same_columns(made: Tensor, given: Tensor) -> bool:
    """Return whether every number of a vector is a multiple of one of another's, plus a constant."""
    made = made[:, torch.linspace(0, made.shape[1] - 1, min(COLUMNS, made.shape[1])).long()]
    made, given = (each - each.mean(dim=0) for each in (made, given))
    moving = made.abs().amax(dim=0) > 0
    if not moving.any():
        return False
    made, given = (nn.functional.normalize(each, dim=0) for each in (made[:, moving], given))
    return bool(((made.T @ given).square().amax(dim=1) > 1 - CLOSE**2).all())


def _flatten(inputs: Any) -> Tensor | None:
    """Return all numbers of each sample in a row (n, D)."""
    tensors = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    rows = [each.reshape(len(each), -1).double() for each in tensors if isinstance(each, Tensor)]
    return torch.cat(rows, dim=1) if rows else None


def _add_noise(inputs: Any) -> Any:
    """Return as many inputs as are examined, with noise of the inputs' size; None where they are whole numbers."""
    if isinstance(inputs, Mapping):
        noisy = {name: _add_noise(each) for name, each in inputs.items()}
        return None if any(each is None for each in noisy.values()) else noisy
    if not inputs.is_floating_point():
        return None
    inputs = inputs[torch.arange(ROWS) % len(inputs)]
    size = float(inputs.double().std()) or 1.0
    noise = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0)).to(inputs)
    return inputs + size * noise
