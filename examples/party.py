"""Two parties that meet at a relay, each with a model and samples of its own:

repshare join http://127.0.0.1:8000 --party examples/party.py:alice --token-file alice.token
repshare join http://127.0.0.1:8000 --party examples/party.py:bob --token-file bob.token
"""

from torch import nn

from repshare import LeNet5, Party
from repshare_lab import load

train, test, classes = load("digits").normalised()  # 8 × 8 pixels


def alice() -> Party:
    """LeNet5 and the first 100 samples."""
    return Party(model=LeNet5(dimension=84), data=(train.images[:100], train.labels[:100]), test=test)


def bob() -> Party:
    """Another one that ends in a linear layer with 84 inputs, and the next 100 samples."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2, padding=1), nn.ReLU(),
        nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        nn.Linear(128, 84), nn.Tanh(),
        nn.Linear(84, classes),
    )  # fmt: skip
    return Party(model=model, data=(train.images[100:200], train.labels[100:200]), test=test)
