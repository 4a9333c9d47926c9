import copy

import pytest
import torch
from torch import nn

from repshare.learning.models import LeNet5
from repshare.learning.optimizers import OPTIMIZERS, Descent


def give_gradients(model, seed, skip=()):
    torch.manual_seed(seed)
    for name, parameter in model.named_parameters():
        parameter.grad = None if name in skip else torch.randn_like(parameter)


def pair(optimizer="adam", model=None):
    """PyTorch's optimizer, and a descent with the same one over a copy of the model."""
    theirs = model or LeNet5()
    ours = copy.deepcopy(theirs)
    plain, wrapped = (OPTIMIZERS[optimizer](m.parameters(), lr=1e-3, fused=True) for m in (theirs, ours))
    return theirs, plain, ours, Descent(wrapped)


def step_both(pair, seed, skip=()):
    theirs, plain, ours, descent = pair
    for model in (theirs, ours):
        give_gradients(model, seed, skip)
    plain.step()
    descent.step()


def assert_same(pair):
    theirs, plain, ours, descent = pair
    assert all(torch.equal(a, b) for a, b in zip(theirs.parameters(), ours.parameters(), strict=True))
    expected, state = plain.state_dict(), descent.optimizer.state_dict()
    assert state["param_groups"] == expected["param_groups"]
    assert state["state"].keys() == expected["state"].keys()
    for index, kept in expected["state"].items():
        assert state["state"][index].keys() == kept.keys()
        assert all(torch.equal(kept[name], state["state"][index][name]) for name in kept)


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_are_the_optimizers_own_to_the_last_bit(optimizer):
    both = pair(optimizer)
    for seed in range(5):
        step_both(both, seed)
    assert_same(both)


def test_a_step_leaves_no_gradients():
    _, _, model, descent = both = pair()
    for seed in range(2):
        step_both(both, seed)
        assert all(parameter.grad is None for parameter in model.parameters())
    assert descent.parameters


def test_a_parameter_without_a_gradient_stays_and_does_not_count_the_step():
    both = pair()
    for seed, skip in enumerate([("head.bias",), (), ("head.weight",), (), (), ("head.bias",)]):
        step_both(both, seed, skip)
    assert_same(both)


def test_parameters_of_several_types_are_left_to_pytorch():
    both = pair(model=nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3).double()))
    for seed in range(3):
        step_both(both, seed)
    assert_same(both)


def test_a_state_loaded_in_between_is_the_one_that_goes_on():
    both, other = pair(), pair()
    for seed in range(3):
        step_both(both, seed)
    for seed in range(5, 7):
        step_both(other, seed)
    for theirs, ours in ((both[0], other[0]), (both[2], other[2])):
        ours.load_state_dict(theirs.state_dict())
    saved = copy.deepcopy(both[1].state_dict())
    other[1].load_state_dict(saved)
    other[3].optimizer.load_state_dict(copy.deepcopy(both[3].optimizer.state_dict()))
    for seed in range(10, 13):
        step_both(both, seed)
        step_both(other, seed)
    assert_same(both)
    assert_same(other)
    assert torch.equal(both[2].head.weight, other[2].head.weight)
