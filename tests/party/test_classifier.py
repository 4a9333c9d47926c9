"""The classifier that a party keeps: a file of its own, from which the same predictions are made."""

import stat

import numpy as np
import pytest
import torch

from repshare import Agreement, Board, Client, LocalExchange, Policy, load_classifier
from repshare.errors import ConfigError, DataError
from repshare.exchange.relay import Membership
from repshare.party.state import State
from repshare.samples import Samples
from repshare.sharing import wire
from repshare.space import measure
from support.space_parties import COMMON, NAMES

MODULE = """
import torch
from torch import nn

def features():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh())

def others():
    torch.manual_seed(1)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.Tanh())
"""


@pytest.fixture
def keep(tmp_path, splits):
    """A function that gives a client of this agreement after three rounds, and its file."""

    def after_rounds(common):
        board, train = Board(common.task(10)), splits.train
        states = []
        for name, start in (("a", 0), ("b", 1)):
            data = train.images[start:400:2].astype("float32"), train.labels[start:400:2]
            exchange, options = LocalExchange(board, name), {"space": common}
            client = Client(None, data, exchange, name=name, classes=10, policy=Policy(held_out=0.2), **options)
            states.append(State(tmp_path / name, client, Membership("digits", name, board.task)))
        for _ in range(3):
            for state in states:
                state.play()
        return states[0].client, tmp_path / "a" / "classifier.safetensors"

    return after_rounds


def test_it_says_what_the_client_says(keep, splits):
    client, file = keep(COMMON)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    classify, images = load_classifier(file), splits.test.images.astype("float32")
    assert all(map(np.array_equal, classify.linear, client.learner.classifier()))
    assert (classify.agreement.describe(), classify.round) == (client.learner.agreement.describe(), 3)
    assert classify.samples == 320, "of both clients, without those held out"
    right = np.mean([name == NAMES[label] for name, label in zip(classify(images), splits.test.labels, strict=True)])
    assert right > 0.9
    likely = classify.probabilities(images)
    assert torch.allclose(likely.sum(dim=1), torch.ones(len(images)))
    assert torch.equal(likely.argmax(1), classify.scores(images).argmax(1))
    assert classify(np.zeros((1, 1, 8, 8), np.float32)), "a blank image is an image"
    with pytest.raises(DataError, match="the task's inputs are from 0 to 16, those of these inputs from 0 to"):
        classify(16 * images)


def test_it_needs_the_backbone_that_was_agreed_on(keep, splits, tmp_path):
    (tmp_path / "net.py").write_text(MODULE)
    space = measure(f"{tmp_path}/net.py:features", torch.zeros(1, 1, 8, 8))
    client, file = keep(Agreement(space))
    classify = load_classifier(file, backbone=f"{tmp_path}/net.py:features")
    images = splits.test.images.astype("float32")
    expected = client.learner.scores(Samples((images, splits.test.labels)))
    assert np.allclose(classify.scores(images), expected, atol=1e-5)
    assert set(classify(images)) <= set(map(str, range(10))), "without names, classes are numbers"
    with pytest.raises(ConfigError, match="is a backbone: give yours"):
        load_classifier(file)
    with pytest.raises(ConfigError, match="backbone has weights"):
        load_classifier(file, backbone=f"{tmp_path}/net.py:others")(images)


def test_what_is_no_classifier_is_refused_in_one_line(keep, tmp_path):
    _, file = keep(COMMON)
    arrays, known = wire.decode_classifier(file.read_bytes())
    agreement, round, samples = known["agreement"], known["round"], known["samples"]
    short = {**arrays, "centre": arrays["centre"][:9], "weights": arrays["weights"][:, :9]}
    for bad, words in {
        b"": "is no classifier",
        wire.encode_weights({"weights": np.zeros(3, np.float32)}, round=1, samples=1): "expected a classifier",
        wire.encode_classifier(short, agreement=agreement, round=round, samples=samples): "9 dimensions, its space 288",
        wire.encode_classifier(arrays, agreement={}, round=1, samples=1): "the task's loss is None",
        wire.encode_classifier({**arrays, "offset": arrays["offset"][:3]}, agreement=agreement, round=1, samples=1):
            "'offset' is float32 of shape",
        wire.encode_classifier({**arrays, "centre": arrays["centre"] * np.nan}, agreement={}, round=1, samples=1):
            "'centre' has numbers that are not finite",
    }.items():  # fmt: skip
        (tmp_path / "bad").write_bytes(bad)
        with pytest.raises(ConfigError, match=words) as caught:
            load_classifier(tmp_path / "bad")
        assert "\n" not in str(caught.value)
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_classifier(tmp_path / "none")
