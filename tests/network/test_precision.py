"""Number formats that networks compute with: what they share and report stays fp32."""

import pytest
import torch

from repshare.config import Policy
from repshare.network.learner import NetworkLearner
from repshare.network.models import LeNet5
from repshare.samples import Samples
from repshare_lab.networks import ResNet9


def test_features_of_bf16_are_coarser_and_are_numbers_of_fp32(digits):
    (images, labels), _ = digits
    samples, made = Samples((images[:50], labels[:50])), {}
    for compute in ("fp32", "bf16"):
        torch.manual_seed(0)
        learner = NetworkLearner(LeNet5(), samples, Policy(compute=compute), name="a", seed=0)
        made[compute] = torch.from_numpy(learner.view(samples).features)
    assert made["bf16"].dtype == torch.float32
    assert 0 < (made["bf16"] - made["fp32"]).abs().max() < 0.05


@pytest.mark.parametrize(("model", "largest"), [(ResNet9(), 32), (LeNet5(), 50)])
def test_large_networks_are_tested_in_smaller_batches(model, largest):
    samples = Samples((torch.randn(50, 1, 28, 28), torch.arange(50) % 10))
    learner, seen = NetworkLearner(model, samples, Policy(), name="a", seed=0), []
    model.register_forward_hook(lambda module, inputs, logits: seen.append(len(logits)))
    learner.scores(samples)
    assert max(seen) == largest
    assert sum(seen) == 50
