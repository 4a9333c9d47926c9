"""The product's own methods fulfil the contract of a method."""

import pytest
import torch

from repshare import Client, LeNet5, Policy
from repshare.methods import CA, CS, IL, RS
from repshare.randomness import derive
from repshare.space import Patches
from repshare.testing import MethodContract

SPACE = Patches((1, 8, 8), sizes=(3, 4), filters=8)


@pytest.fixture(params=[RS, IL, CS, CA], ids=lambda method: method.name)
def method(request):
    return request.param


@pytest.fixture
def make(method, digits):
    def make(name):
        (images, labels), test = digits
        rows = slice(0, 60) if name == "a" else slice(60, 120)
        torch.manual_seed(derive(0, name, "model"))
        network, space = (None, SPACE) if method.in_space else (LeNet5(), None)
        policy = Policy(accept_exposure=True)
        data = images[rows], labels[rows]
        return Client(network, data, name=name, method=method, space=space, policy=policy, test=test, classes=10)

    return make


class TestMethods(MethodContract):
    pass
