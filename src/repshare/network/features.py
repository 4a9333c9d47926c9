"""The origin of a representation. A model that only passes its inputs on would share averages of the data itself."""

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from repshare.errors import ModelError
from repshare.measures import Representation
from repshare.network.models import Network, leave_no_trace
from repshare.samples import change_tensors

ROWS = 8  # inputs that are looked at, and as many with noise
COLUMNS = 64  # features that are looked at, spread over all
CLOSE = 1e-3  # tolerance, relative to its length, for a vector as a multiple of another


def examine(network: Network, inputs: Any) -> Representation:
    """Describe what a network's features of these inputs (a batch) are made of."""
    with torch.random.fork_rng(devices=[]):
        passed_on = leave_no_trace(network.model, lambda: passes_on(lambda batch: network(batch)[0], inputs))
    layers = [module for module in network.model.modules() if module is not network.head]
    own = [sum(each.numel() for each in layer.parameters(recurse=False)) for layer in layers]
    return Representation(network.dimension, sum(count > 0 for count in own), sum(own), passed_on)


def check(made: Representation, model: str) -> None:
    """Refuse a representation that would share the inputs."""
    if made.shares_inputs:
        raise ModelError(
            f"what {model} would share is no representation ({made}): averages of it are averages of the data. Put a "
            "layer with parameters before the last one; or say --share-inputs (share_inputs in the policy) if they may "
            "leave"
        )


def passes_on(represent: Callable[[Any], Tensor], inputs: Any) -> bool:
    """Whether each number of a representation is an input's, up to scale and, with noise, an offset."""
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


def _same_rows(made: Tensor, given: Tensor) -> bool:
    """Whether every vector has the numbers of another one, in some order, times a factor of its own."""
    made, given = (nn.functional.normalize(each, dim=1).sort(dim=1).values for each in (made, given))
    there = given.any(dim=1)
    turned = -given.flip(1)
    return bool(there.any()) and any(bool(((made - each)[there].norm(dim=1) < CLOSE).all()) for each in (given, turned))


def _same_columns(made: Tensor, given: Tensor) -> bool:
    """Whether every number of a vector is a multiple of one of another's, plus a constant."""
    made = made[:, torch.linspace(0, made.shape[1] - 1, min(COLUMNS, made.shape[1])).long()]
    made, given = (each - each.mean(dim=0) for each in (made, given))
    moving = made.abs().amax(dim=0) > 0
    if not moving.any():
        return False
    made, given = (nn.functional.normalize(each, dim=0) for each in (made[:, moving], given))
    return bool(((made.T @ given).square().amax(dim=1) > 1 - CLOSE**2).all())


def _flatten(inputs: Any) -> Tensor | None:
    """All numbers of each sample in a row (n, D)."""
    tensors = inputs.values() if isinstance(inputs, Mapping) else [inputs]
    rows = [each.reshape(len(each), -1).double() for each in tensors if isinstance(each, Tensor)]
    return torch.cat(rows, dim=1) if rows else None


def _add_noise(inputs: Any) -> Any:
    """As many inputs as are examined, with noise of the inputs' size; None where they are whole numbers."""
    if isinstance(inputs, Mapping):
        noisy = {name: _add_noise(each) for name, each in inputs.items()}
        return None if any(each is None for each in noisy.values()) else noisy
    if not inputs.is_floating_point():
        return None
    inputs = inputs[torch.arange(ROWS) % len(inputs)]
    size = float(inputs.double().std()) or 1.0
    noise = torch.randn(inputs.shape, generator=torch.Generator().manual_seed(0)).to(inputs)
    return inputs + size * noise
