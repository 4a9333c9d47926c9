"""Two parties in the space of a pretrained network. The operator of the relay, then each party:

repshare relay tasks create photos --input-shape 3 32 32 --input-range 0 255 --classes 10 --space efficientnet-lite0
repshare join http://127.0.0.1:8000 --party examples/backbone.py:animals --token-file animals.token --keep-vectors

Any other network is a function that returns a module, which the task names as examples/backbone.py:own and each party
brings itself, Party(…, backbone="examples/backbone.py:own"). The module gets numbers from 0 to 1, and does the rest.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repshare import Party, Policy
from repshare_lab import load

ANIMALS, MACHINES = (2, 3, 4, 5, 6, 7), (0, 1, 8, 9)


def hold(*classes: int) -> Party:
    """A party with a thousand images of these classes."""
    train, test, _ = load("cifar10")
    rows = [row for row, label in enumerate(train.labels) if label in classes][:1000]
    data, tested = (train.images[rows], train.labels[rows]), (test.images[:1000], test.labels[:1000])
    return Party(data=data, test=tested, policy=Policy(accept_exposure=True), accept_space=True)


def animals() -> Party:
    """Who has animals only."""
    return hold(*ANIMALS)


def machines() -> Party:
    """Who has machines only."""
    return hold(*MACHINES)


class Own(nn.Module):
    """A network with its preprocessing, such as `timm.create_model(name, pretrained=True, num_classes=0)`."""

    mean: Tensor
    deviation: Tensor

    def __init__(self, network: nn.Module, mean: tuple[float, ...], deviation: tuple[float, ...], size: int) -> None:
        super().__init__()
        self.network, self.size = network, size
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("deviation", torch.tensor(deviation).view(-1, 1, 1))

    def forward(self, images: Tensor) -> Tensor:
        """Images (n, 3, height, width) from 0 to 1 to vectors (n, d)."""
        images = F.interpolate(images, size=(self.size, self.size), mode="bilinear")
        made: Tensor = self.network((images - self.mean) / self.deviation)
        return made


def own() -> nn.Module:
    """The module: here of random weights, so that nothing is downloaded."""
    torch.manual_seed(0)
    layers = nn.Conv2d(3, 64, 5, stride=2), nn.ReLU(), nn.Conv2d(64, 256, 3, stride=2), nn.ReLU()
    network = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return Own(network, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225), 48)
