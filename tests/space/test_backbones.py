"""Backbones: the same map at every client, from raw inputs, computed once; and the errors of those that are none."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from repshare import Client, Policy
from repshare.errors import ConfigError, DataError
from repshare.samples import Samples
from repshare.space import choose, describe, measure, read
from repshare.space.agreement import Agreement

NETS = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self, size=16, scale=1.0, pool="mean", drop=0.0, steps=0, says="", spoilt=0.0):
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.norm = nn.Conv2d(1, 24, 3, bias=False), nn.BatchNorm2d(24)
        self.last = nn.Conv2d(24, 48, 3, stride=2)
        for tensor in (self.norm.running_mean, self.norm.running_var):
            tensor.uniform_(0.5, 1.0)
        self.size, self.scale, self.pool, self.drop, self.steps = size, scale, pool, drop, steps
        self.says, self.spoilt = says, spoilt

    def forward(self, images):
        if self.says:
            print(self.says)
        images = F.interpolate(images, size=(self.size, self.size), mode="bilinear") * self.scale
        maps = torch.tanh(self.last(torch.relu(self.norm(self.stem(images)))))
        maps = F.dropout(maps, self.drop) + self.spoilt
        if self.pool == "none":
            return maps
        means = maps.mean((2, 3)) if self.pool == "mean" else maps.amax((2, 3))
        return (means * self.steps).round() / self.steps if self.steps else means

def right(): return Net()
def resized(): return Net(size=12)
def scaled(): return Net(scale=255.0)
def largest(): return Net(pool="max")
def dropping(): return Net(drop=0.1)
def rounded(): return Net(steps=100)
def unpooled(): return Net(pool="none")
def talking(): return Net(says="Loaded pretrained weights")
def spoilt(): return Net(spoilt=float("nan"))
def unseeded():
    made = Net()
    torch.seed()
    nn.init.normal_(made.last.weight)
    return made
class Named(nn.Module):
    def forward(self, images): return {"features": images}
def named(): return Named()
"""


@pytest.fixture
def net(tmp_path):
    (tmp_path / "net.py").write_text(NETS)
    return lambda name: f"{tmp_path}/net.py:{name}"


@pytest.fixture
def images():
    drawn = torch.Generator().manual_seed(0)
    labels = torch.arange(90) % 3
    noise = torch.rand(90, 1, 16, 16, generator=drawn)
    return (255 * (0.7 * noise + 0.15 * labels[:, None, None, None])).to(torch.uint8), labels


def client(agreement, data, **given):
    return Client(data=data, space=agreement, policy=Policy(minimum_count=1, accept_exposure=True), **given)


def task(net, data):
    return Agreement(measure(net("right"), data[0][:1].float()), inputs=(0.0, 255.0)).describe()


def own(described, source):
    return Agreement(read({key: described[key] for key in SPACE}, module=source), inputs=(0.0, 255.0))


SPACE = ("space", "sha256", "features", "takes", "probe", "compute", "recipe")


@pytest.mark.parametrize("name", ["resized", "scaled", "largest", "dropping", "rounded"])
def test_the_right_weights_in_another_computation_are_refused_with_the_difference(net, images, name):
    described = task(net, images)
    assert client(own(described, net("right")), images).round().trouble is None
    with pytest.raises(
        ConfigError, match=rf"net.py:{name} has the weights .*answers to the probe are [01]\.\d+ of"
    ) as told:
        client(own(described, net(name)), images)
    assert "(at most 0.01)" in str(told.value)


def test_a_task_that_allows_bf16_takes_it_and_nothing_further_off(net, images):
    described = task(net, images) | {"compute": "bf16"}
    client(own(described, net("rounded")), images)
    with pytest.raises(ConfigError, match=r"at most 0\.1\)"):
        client(own(described, net("largest")), images)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("dropping", r"net.py:dropping answers the same inputs in another way each time \(0\.\d+ .*dropout"),
        ("unseeded", "net.py:unseeded gives a module with other weights at every call: load them, or set a seed"),
        ("unpooled", r"net.py:unpooled gives maps of 48 × 6 × 6 for a sample: pool them"),
        ("named", "net.py:named cannot take the data: TypeError: it gave a dict, not a tensor"),
        ("spoilt", "net.py:spoilt gives NaN or infinity, first for sample 0"),
    ],
)
def test_a_module_that_is_no_map_is_refused_by_name_when_a_task_is_made(net, images, name, words):
    with pytest.raises((ConfigError, DataError), match=words):
        choose((net(name),), images[0][:1].float(), 0)


def test_inputs_of_another_number_of_channels_are_refused_in_one_line(net, images):
    with pytest.raises(DataError, match=r"net.py:right cannot take the data: RuntimeError: "):
        choose((net("right"),), torch.zeros(1, 3, 16, 16), 0)


def test_a_party_without_its_module_is_told_to_bring_it(net, images):
    with pytest.raises(ConfigError, match=r'which every client brings: Party\(…, backbone="file.py:function"\)'):
        client(own(task(net, images), ""), images)


def test_bytes_reach_a_module_as_numbers_from_0_to_1(net, images):
    inputs, labels = images
    common = own(task(net, images), net("right"))
    raw = common.embed(Samples((inputs, labels)))[0]
    scaled = Agreement(common.space, inputs=(0.0, 1.0)).embed(Samples((inputs.float() / 255, labels)))[0]
    assert np.allclose(raw, scaled, atol=1e-5)
    assert np.linalg.norm(raw, axis=1) == pytest.approx(math.sqrt(48), rel=1e-5)
    with pytest.raises(DataError, match="from 0 to 255, those of client from 0"):
        client(common, (inputs.float() / 255, labels))


def test_a_client_maps_each_sample_once_and_says_how_far_it_is(net, images):
    seen, made = [], []
    space = measure(net("right"), images[0][:1].float()).attended(watch=lambda *told: seen.append(told))
    space._module.register_forward_hook(lambda _, given, __: made.append(len(given[0])))
    learning = client(Agreement(space, inputs=(0.0, 255.0)), images, test=(images[0][:40], images[1][:40]))
    before = sum(made)
    assert list(learning.rounds(5))[-1].test_accuracy is not None
    assert seen == [(90, 90), (40, 40)]
    assert sum(made) == before + 40, "test samples were mapped in the first round only"


def test_a_cache_keeps_vectors_for_their_owner_and_resumes_where_it_was_interrupted(net, tmp_path):
    images = torch.rand(700, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    samples, cache = Samples((images, torch.arange(700) % 3)), tmp_path / "kept"
    space = measure(net("right"), images[:1])
    expected = Agreement(space).embed(samples)[0]

    def stop(done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Agreement(space.attended(cache=cache, watch=stop)).embed(samples)
    assert len(list(cache.iterdir())) == 1
    assert {path.stat().st_mode & 0o777 for path in (cache, *cache.iterdir())} == {0o700, 0o600}
    made = []
    again = space.attended(cache=cache)
    again._module.register_forward_hook(lambda _, given, __: made.append(len(given[0])))
    assert np.array_equal(Agreement(again).embed(samples)[0], expected)
    assert sum(made) == 700 - 256
    next(iter(sorted(cache.iterdir()))).write_bytes(b"damaged")
    assert np.array_equal(Agreement(space.attended(cache=cache)).embed(samples)[0], expected)
    other = measure(net("largest"), images[:1]).attended(cache=cache)
    assert not np.allclose(Agreement(other).embed(samples)[0], expected, atol=1e-2), "another map, other files"


def test_vectors_do_not_depend_on_the_number_of_threads(net):
    images = torch.rand(300, 1, 16, 16, generator=torch.Generator().manual_seed(0))
    space, before, made = measure(net("right"), images[:1]), torch.get_num_threads(), []
    try:
        for threads in (1, 3):
            torch.set_num_threads(threads)
            made.append(Agreement(space).embed(Samples((images, torch.zeros(300, dtype=torch.int64))))[0])
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(*made)


def test_fused_layers_give_the_same_and_batch_normalisation_is_gone(net, images):
    space = measure(net("right"), images[0][:1].float())
    assert not any(isinstance(each, torch.nn.BatchNorm2d) for each in space._module.modules())
    plain = space.graph()(images[0][:32].float() / 255)
    assert torch.allclose(space(images[0][:32].float() / 255), plain, atol=1e-4)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"takes": "float[99999,99999]"}, "which is none, or too large"),
        ({"takes": "float[3"}, "which is none, or too large"),
        ({"takes": ""}, "says nothing of a backbone's inputs"),
        ({"probe": [0.5]}, "answers to the probe are inf of"),
        ({"recipe": "lenet", "sha256": "0" * 64}, "there is no recipe 'lenet': there are efficientnet-lite0"),
    ],
)
def test_a_description_of_no_backbone_is_refused(net, images, changed, words):
    source = "" if "recipe" in changed else net("right")
    with pytest.raises(ConfigError, match=words):
        client(own(task(net, images) | changed, source), images)


def test_token_ids_are_probed_as_whole_numbers(tmp_path):
    (tmp_path / "text.py").write_text(
        "import torch\nfrom torch import nn\n"
        "class Text(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n        torch.manual_seed(0)\n        self.words = nn.Embedding(100, 32)\n"
        "    def forward(self, ids, mask):\n"
        "        return torch.tanh(0.5 + (self.words(ids) * mask[..., None]).mean(1))\n"
        "def features():\n    return Text()\n"
    )
    tokens = {"ids": torch.randint(0, 100, (60, 7)), "mask": torch.ones(60, 7, dtype=torch.int64)}
    space = measure(f"{tmp_path}/text.py:features", tokens)
    assert space.takes == "ids:whole[7] mask:mask[7]"
    again = read(json.loads(json.dumps(describe(space))), module=f"{tmp_path}/text.py:features")
    *_, record = client(Agreement(again), (tokens, torch.arange(60) % 3)).rounds(2)
    assert record.train_accuracy > 0.5
    assert replace(space, module="") == again
