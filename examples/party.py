"""Two parties that meet at a relay, each with a model and samples of its own:

repshare join http://127.0.0.1:8000 --task examples/party.py:alice --token-file alice.token
repshare join http://127.0.0.1:8000 --task examples/party.py:bob --token-file bob.token
"""

from torch import nn

from repshare import LeNet5, Party, load

train, test, classes = load("digits").normalised()  # 8 × 8 pixels


def alice() -> Party:
    """A small convolutional network and the first 100 samples."""
    return Party(model=LeNet5(dimension=84), data=(train.images[:100], train.labels[:100]), test=test)


def bob() -> Party:
    """Something else that ends in a linear layer with 84 inputs, and the next 100 samples."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 84), nn.Tanh(), nn.Linear(84, classes))
    return Party(model=model, data=(train.images[100:200], train.labels[100:200]), test=test)
