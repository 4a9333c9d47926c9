from types import SimpleNamespace

import pytest
import torch
from torch import nn

from repshare.errors import ConfigError, ModelError
from repshare.network.models import LeNet5, split
from repshare_lab.networks import ResNet9, ResNet18, build

IMAGES = torch.randn(4, 1, 28, 28, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("model", "channels", "size", "dimension", "parameters"),
    [(LeNet5, 1, 28, 84, 30_986), (ResNet9, 1, 28, 128, 2_470_730), (ResNet18, 3, 32, 256, 11_302_730)],
)
def test_the_papers_models_have_the_papers_sizes(model, channels, size, dimension, parameters):
    network = split(model(), torch.randn(2, channels, size, size))
    assert sum(p.numel() for p in network.model.parameters()) == parameters
    assert (network.dimension, network.classes) == (dimension, 10)
    features, logits = network(torch.randn(2, channels, size, size))
    assert features.shape == (2, dimension)
    assert logits.shape == (2, 10)
    assert features.abs().max() < 1  # Tanh


def test_every_block_of_resnet18_is_a_sum_of_a_rectified_body_and_its_shortcut():
    block = ResNet18().features[3].eval()  # 64 -> 128 channels, half the size
    images = torch.randn(1, 64, 8, 8)
    body, shortcut = block.body(images), block.shortcut(images)
    assert body.min() >= 0
    assert shortcut.min() < 0
    assert torch.equal(block(images), body + shortcut)
    assert block(images).shape == (1, 128, 4, 4)


def test_features_and_head_together_are_the_model():
    network = split(LeNet5(), IMAGES)
    features, logits = network(IMAGES)
    assert torch.equal(logits, network.model(IMAGES))
    assert torch.equal(logits, network.head(features))


class TimmLike(nn.Module):
    """Declares its head first and a second linear layer last, so that order tells nothing."""

    def __init__(self):
        super().__init__()
        self.classifier = nn.Linear(12, 10)
        self.drop = nn.Dropout(0.5)
        self.stem = nn.Sequential(nn.Flatten(), nn.Linear(784, 12))

    def forward(self, images):
        return self.classifier(self.drop(self.stem(images).tanh()))


class HuggingFaceLike(nn.Module):
    """Takes keywords and answers with an object that has logits."""

    def __init__(self):
        super().__init__()
        self.encoder = nn.Linear(784, 20)
        self.classifier = nn.Linear(20, 10)

    def forward(self, pixel_values, scale=None):
        hidden = self.encoder(pixel_values.flatten(1)).tanh()
        return SimpleNamespace(logits=self.classifier(hidden), hidden_states=(hidden,))


class Halved(nn.Module):
    """Something follows its last linear layer."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(784, 10)

    def forward(self, images):
        return self.inner(images.flatten(1)) / 2


class Pair(TimmLike):
    """Answers with a tuple."""

    def forward(self, images):
        return super().forward(images), None


def test_split_takes_the_first_of_a_tuple():
    assert split(Pair(), IMAGES).head_name == "classifier"


def test_split_finds_the_head_by_what_it_computes_not_by_its_place():
    network = split(TimmLike(), IMAGES)
    assert network.head_name == "classifier"
    assert network.dimension == 12


def test_split_understands_keyword_inputs_and_answers_with_logits():
    network = split(HuggingFaceLike(), {"pixel_values": IMAGES})
    features, logits = network({"pixel_values": IMAGES})
    assert features.shape == (4, 20)
    assert logits.shape == (4, 10)


def test_split_takes_the_layer_it_is_told():
    assert split(TimmLike(), IMAGES, head="classifier").head_name == "classifier"
    halved = Halved()
    with pytest.raises(ModelError, match="does not end in a linear layer: none of inner gives"):
        split(halved, IMAGES)
    features, logits = split(halved, IMAGES, head="inner")(IMAGES)
    assert torch.equal(logits, halved.inner(features))
    with pytest.raises(ModelError, match=r"no linear layer 'nothing'; it has classifier, stem\.1"):
        split(TimmLike(), IMAGES, head="nothing")


def test_split_leaves_the_model_as_it_was():
    model = ResNet9()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    split(model, IMAGES)
    assert model.training
    assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (nn.Sequential(nn.Conv2d(1, 10, 28), nn.Flatten()), "no linear layer"),
        (
            nn.Sequential(nn.Flatten(), nn.Linear(784, 10), nn.Softmax(dim=1)),
            "does not end in a linear layer: none of 1",
        ),
        (nn.Sequential(nn.Flatten(), nn.Linear(99, 10)), r"cannot take the data, a batch of shape \(4, 1, 28, 28\)"),
    ],
)
def test_a_model_without_a_linear_head_is_refused_with_the_reason(model, reason):
    with pytest.raises(ModelError, match=reason):
        split(model, IMAGES)


def test_a_head_that_sees_more_than_one_vector_a_sample_is_refused():
    with pytest.raises(ModelError, match="not one vector a sample"):
        split(nn.Linear(28, 10), IMAGES)


def test_the_same_seed_builds_the_same_weights_whatever_was_drawn_before():
    def weights(seed):
        model = build("lenet5", channels=1, classes=10, dimension=None, seed=seed)
        return torch.cat([p.flatten() for p in model.parameters()])

    first = weights(3)
    torch.rand(5)
    state = torch.random.get_rng_state()
    assert torch.equal(first, weights(3))
    assert not torch.equal(first, weights(4))
    assert torch.equal(state, torch.random.get_rng_state())


def test_models_agree_on_a_dimension_when_given_one():
    widths = {
        split(build(n, channels=1, classes=7, dimension=50, seed=0), IMAGES).dimension for n in ("lenet5", "resnet9")
    }
    assert widths == {50}


def test_an_unknown_model_is_refused_by_name():
    with pytest.raises(ConfigError, match="unknown model 'lenet6': choose lenet5"):
        build("lenet6", channels=1, classes=10, dimension=None, seed=0)


def test_a_users_own_function_builds_a_model(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from torch import nn\n"
        "def small(channels, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(784 * channels, 5), nn.Tanh(), nn.Linear(5, classes))\n"
        "def wrong(channels, classes):\n"
        "    return 3\n"
    )
    model = build(f"{file}:small", channels=1, classes=10, dimension=None, seed=0)
    assert split(model, IMAGES).dimension == 5
    with pytest.raises(ModelError, match="gave a int"):
        build(f"{file}:wrong", channels=1, classes=10, dimension=None, seed=0)
    for reference in (f"{file}:absent", f"{tmp_path}/none.py:f"):
        with pytest.raises(ConfigError):
            build(reference, channels=1, classes=10, dimension=None, seed=0)


def test_a_model_with_one_logit_is_refused_with_what_to_do():
    model = nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 1))
    with pytest.raises(ModelError, match=r"two for two classes .38a6b14d is the last commit"):
        split(model, torch.randn(20, 5))


def test_an_own_model_is_given_the_arguments_that_it_takes(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from torch import nn\n\n"
        "def nothing(): return nn.Linear(3, 2)\n"
        "def columns(features, classes): return nn.Linear(features, classes)\n"
        "def everything(**given): return nn.Linear(given['features'], given['classes'])\n"
        "def images(channels, classes): return nn.Linear(channels, classes)\n"
    )
    for name in ("nothing", "columns", "everything"):
        model = build(f"{file}:{name}", features=3, classes=2, dimension=None, seed=0)
        assert (model.in_features, model.out_features) == (3, 2)
    with pytest.raises(ModelError, match=r"could not be built with classes=2: TypeError: .*'channels'"):
        build(f"{file}:images", features=3, classes=2, dimension=None, seed=0)
    with pytest.raises(ModelError, match=r"bag cannot take the data \(features=3\): choose mlp"):
        build("bag", features=3, classes=2, dimension=None, seed=0)


def test_inputs_of_another_type_than_the_weights_are_refused_with_both():
    with pytest.raises(ModelError, match=r"inputs are float64 and the weights float32.* convert the inputs"):
        split(nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 2)), torch.zeros(2, 5, dtype=torch.float64))
