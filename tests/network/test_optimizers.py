"""Optimizers without PyTorch's compiler: the same steps, and nothing of it imported."""

import subprocess
import sys

import pytest
import torch

from repshare.network.steps import OPTIMIZERS

KINDS = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}


@pytest.mark.parametrize("name", KINDS)
def test_steps_are_pytorchs_to_the_bit_also_after_a_state_was_loaded(name):
    def train(kinds):
        torch.manual_seed(0)
        weights = [torch.randn(8, 3, requires_grad=True), torch.randn(3, requires_grad=True)]
        state = None
        for kind in kinds:
            optimizer = kind(weights, lr=0.05, fused=True)
            if state is not None:
                optimizer.load_state_dict(state)
            for _ in range(4):
                ((torch.linspace(-1, 1, 8) @ weights[0] + weights[1]) ** 2).sum().backward()
                optimizer.step()
                assert all(each.requires_grad and each.grad_fn is None for each in weights)
                optimizer.zero_grad()
                assert all(each.grad is None for each in weights)
            state = optimizer.state_dict()
        return weights

    expected = train([KINDS[name], KINDS[name]])
    for kinds in ([OPTIMIZERS[name]] * 2, [KINDS[name], OPTIMIZERS[name]], [OPTIMIZERS[name], KINDS[name]]):
        assert all(map(torch.equal, train(kinds), expected))


CODE = """
import sys, torch
from repshare import Client
model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh(), torch.nn.Linear(3, 2))
client = Client(model, (torch.rand(20, 4), torch.arange(20) % 2))
client.round()
client.load(client.save())
print("torch._dynamo" in sys.modules)
"""


def test_a_clients_rounds_import_no_compiler():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout.strip() == "False"
