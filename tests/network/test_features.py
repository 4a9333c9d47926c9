"""A representation must be a representation: a model that passes its inputs on shares nothing, unless told to."""

from pathlib import Path

import pytest
import torch
from torch import nn

from repshare import Board, Client, LeNet5, LocalExchange, Policy, Task
from repshare.board import Wants
from repshare.errors import ModelError
from repshare.methods import CA, CS, IL
from repshare.network.features import examine
from repshare.network.models import split
from repshare.sharing import wire
from repshare.space import measure
from repshare.space.agreement import Agreement
from repshare_lab.config import Run, Setting
from repshare_lab.methods import FD, FL
from repshare_lab.networks import ConvNet
from repshare_lab.simulation import Inline, simulate
from support.processes import run


class Reordered(nn.Module):
    """The inputs in another order, times a number."""

    def forward(self, images):
        return -3.0 * images.transpose(2, 3).flatten(1)


class Idle(nn.Module):
    """A layer with parameters that nothing depends on."""

    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(64, 64)

    def forward(self, images):
        return images.flatten(1)


class Unit(nn.Module):
    """Each input brought to length 1, with parameters that do nothing."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(64))

    def forward(self, images):
        return nn.functional.normalize(images.flatten(1) * self.weight, dim=1)


def identity():
    layer = nn.Linear(64, 64)
    nn.init.eye_(layer.weight)
    nn.init.zeros_(layer.bias)
    return nn.Sequential(nn.Flatten(), layer, nn.ReLU())


INPUTS = {
    "logistic regression": lambda: nn.Flatten(),
    "reordered": Reordered,
    "an idle layer": Idle,
    "brought to length 1": Unit,
    "batch normalisation": lambda: nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64)),
    "an identity with parameters": identity,
    "dropout": lambda: nn.Sequential(nn.Flatten(), nn.Dropout(0.5)),
}
FIXED = {
    "pooled": (lambda: nn.Sequential(nn.AvgPool2d(2), nn.Flatten()), 16),
    "squared": (lambda: nn.Sequential(nn.Flatten(), nn.ReLU(), nn.Softplus()), 64),
}


def linear(features, width=64):
    torch.manual_seed(0)
    return nn.Sequential(features, nn.Linear(width, 10))


@pytest.mark.parametrize("kind", INPUTS)
def test_a_model_whose_features_are_its_inputs_is_refused(digits, kind):
    (images, labels), _ = digits
    with pytest.raises(ModelError, match=r"64 numbers: the inputs themselves.*averages of the data.*--share-inputs"):
        Client(linear(INPUTS[kind]()), (images[:60] + 1, labels[:60]))  # brightness, from 0 to 2


@pytest.mark.parametrize("kind", FIXED)
def test_a_model_without_a_parameter_before_its_head_is_refused(digits, kind):
    (images, labels), _ = digits
    make, width = FIXED[kind]
    with pytest.raises(ModelError, match=f"{width} numbers, computed from the inputs without any parameter"):
        Client(linear(make(), width), (images[:60], labels[:60]))


def test_who_says_so_shares_inputs(digits):
    """And what leaves are then means of the raw images: which is why it must be said."""
    (images, labels), _ = digits
    board = Board(Task(10, 64))
    own = (images[:60], labels[:60])
    Client(linear(nn.Flatten()), own, LocalExchange(board, "a"), name="a", policy=Policy(share_inputs=True)).round()
    means = wire.decode_teacher(board.teach("b", Wants(0, 0, None))).means
    for label, mean in zip(means.labels, means.vectors, strict=True):
        assert torch.allclose(torch.from_numpy(mean), own[0][own[1] == int(label)].flatten(1).mean(0), atol=1e-5)


@pytest.mark.parametrize(
    ("model", "said"),
    [(LeNet5(), "84 numbers after 4 layers with 30,136 parameters"), (ConvNet(), "84 numbers after 3 layers"),
     (nn.Sequential(nn.Flatten(), nn.Linear(64, 64), nn.Linear(64, 10)), "1 layer"),
     (nn.Sequential(nn.Flatten(), nn.Linear(64, 300), nn.ReLU(), nn.Linear(300, 10)), "300 numbers after 1 layer")],
    ids=lambda each: type(each).__name__,
)  # fmt: skip
def test_a_model_with_layers_is_taken_and_described(digits, model, said):
    (images, labels), _ = digits
    assert said in str(examine(split(model, images[:8]), images[:8]))
    for data in (
        (images[:60], labels[:60]),
        (torch.zeros(12, 1, 8, 8), torch.arange(12) % 10),
        (images[:1], labels[:1]),
    ):
        Client(model, data)


def test_parameters_that_are_frozen_count_and_models_of_words_are_taken():
    torch.manual_seed(0)
    words = nn.Sequential(nn.EmbeddingBag(50, 8).requires_grad_(False), nn.Linear(8, 3))
    client = Client(words, (torch.randint(50, (30, 8)), torch.arange(30) % 3))
    assert str(client.learner.representation) == "8 numbers after 1 layer with 400 parameters"
    table = nn.Sequential(nn.Linear(5, 16), nn.Tanh(), nn.Linear(16, 3))
    Client(table, (torch.randn(30, 5), torch.arange(30) % 3))


@pytest.mark.parametrize("method", [IL, FL, FD], ids=lambda method: method.name)
def test_methods_that_share_no_features_take_any_model(digits, method):
    (images, labels), _ = digits
    Client(linear(nn.Flatten()), (images[:60], labels[:60]), method=method).round()


def test_a_simulation_of_features_refuses_a_model_without_any(splits, tmp_path):
    (tmp_path / "own.py").write_text(
        "from torch import nn\n"
        "def model(channels, classes):\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))\n"
    )
    setting = Setting(dataset="digits", samples=100, clients=2, rounds=1, model=(f"{tmp_path / 'own.py'}:model",))
    with Inline() as workers:
        with pytest.raises(ModelError, match="the inputs themselves"):
            next(simulate(Run("RS", 0, setting), splits, workers))
        next(simulate(Run("IL", 0, setting), splits, workers))


def test_a_backbone_that_is_no_map_is_refused(digits, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(
        "import torch\nfrom torch import nn\n"
        "def same():\n    return nn.Flatten()\n"
        "def pooled():\n    return nn.Sequential(nn.AvgPool2d(2), nn.Flatten())\n"
        "def good():\n    torch.manual_seed(0)\n    return nn.Sequential(nn.Flatten(), nn.Linear(64, 40), nn.ReLU())\n"
    )
    (images, labels), _ = digits
    data = images[:60], labels[:60]

    def client(function, method=CS, **policy):
        common = Agreement(measure(f"own.py:{function}", images[:1]))
        return Client(LeNet5(), data, method=method, space=common, policy=Policy(**policy))

    for function, said in (("same", "64 numbers: the inputs themselves"), ("pooled", "without any parameter")):
        with pytest.raises(ModelError, match=said):
            client(function)
        client(function, share_inputs=True)
        client(function, CA)  # nothing of it leaves
    assert str(client("good").learner.representation) == "40 numbers after 1 layer with 2,600 parameters"
    assert "numbers of the space patches" in str(Client(LeNet5(), data, method=CS).learner.representation)


PARTY = """
import torch
from torch import nn
from repshare import LeNet5, Party

def data():
    return torch.rand(40, 1, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 10

def regression():
    return Party(nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), data())

def lenet():
    return Party(LeNet5(), data())
"""


@pytest.mark.parametrize("command", ["join", "peer"])
def test_a_dry_run_says_what_a_representation_is_made_of(tmp_path, monkeypatch, capsys, command):
    """The commonest model of all, logistic regression, once went through with the usual reassuring table."""
    monkeypatch.chdir(tmp_path)
    Path("party.py").write_text(PARTY)
    place = ["join", "http://127.0.0.1:9"] if command == "join" else ["peer", "--name", "a", "--key", "none.key"]
    place += [] if command == "join" else ["--first-use", "--listen", "tcp/127.0.0.1:0"]
    said = run(capsys, *place, "--party", "party.py:regression", "--dry-run", expect=2).err
    assert "64 numbers: the inputs themselves" in said
    assert "--share-inputs" in said
    assert said.count("\n") == 1
    shown = run(capsys, *place, "--party", "party.py:regression", "--dry-run", "--share-inputs").out
    assert "warning: what leaves are averages of your data (64 numbers: the inputs themselves)" in shown
    shown = run(capsys, *place, "--party", "party.py:lenet", "--dry-run").out
    assert "84 numbers after 4 layers with 30,136 parameters" in shown
