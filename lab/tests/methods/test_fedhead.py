"""FedAvg of the head: a plain loop of it, and in the simulator beside CS in a backbone that is mapped once."""

import json
from pathlib import Path

import numpy as np
import pytest

from repshare.cli.main import main
from repshare.errors import ConfigError
from repshare_lab.config import Setting
from repshare_lab.data import load
from repshare_lab.experiments.comparison import compare
from repshare_lab.methods.fedhead import HeadModel, HeadOptions
from repshare_lab.simulation import Inline, simulate
from repshare_lab.simulation.plan import make_run, resolve

NET = """
import torch
from pathlib import Path
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        print("Loaded pretrained weights")
        torch.manual_seed(0)
        self.layers = nn.Sequential(nn.Flatten(), nn.Linear(64, 80), nn.ReLU())

    def forward(self, images):
        with (Path(__file__).parent / "mapped").open("a") as file:
            file.write(f"{len(images)} {float(images.min()):g} {float(images.max()):g}\\n")
        return self.layers(60 * images - 2)

def features(): return Net()
"""
SETTING = {"samples": 200, "clients": 3, "rounds": 6, "eval_every": 6, "model": ("mlp",), "partition": "dirichlet"}


@pytest.fixture
def space(tmp_path):
    (tmp_path / "net.py").write_text(NET)
    return (f"{tmp_path}/net.py:features",)


def mapped(space):
    path = space[0].partition("net.py")[0] + "mapped"
    return [line.split() for line in Path(path).read_text().splitlines()]


def test_a_head_descends_as_a_plain_loop_does():
    rng = np.random.default_rng(0)
    vectors, labels = rng.normal(size=(50, 4)).astype(np.float32), rng.integers(0, 3, 50)
    model = HeadModel(vectors, labels, 3)
    head = model.train(model.linear(), HeadOptions(rate=0.1, epochs=2), np.random.default_rng(1))
    weights, offset, order = np.zeros((3, 4)), np.zeros(3), np.random.default_rng(1)
    for _ in range(2):
        rows = order.permutation(50)
        for batch in (rows[:32], rows[32:]):
            slope = np.zeros((3, 4)), np.zeros(3)
            for row in batch:
                logits = weights @ vectors[row] + offset
                wrong = np.exp(logits) / np.exp(logits).sum() - np.eye(3)[labels[row]]
                slope = slope[0] + np.outer(wrong, vectors[row]) / len(batch), slope[1] + wrong / len(batch)
            weights, offset = weights - 0.1 * slope[0], offset - 0.1 * slope[1]
    assert np.allclose(head.weights, weights, atol=1e-5)
    assert np.allclose(head.offset, offset, atol=1e-5)


def test_the_average_of_heads_learns_and_travels_in_fp16(space):
    splits = load("digits")
    options = {"space_rounds": 6, "method_options": ("FH.rate=0.3", "FH.epochs=5")}
    setting = resolve(Setting(dataset="digits", space=space, **options, **SETTING), splits)
    with Inline() as workers:
        rounds = list(simulate(make_run("FH", 0, setting), splits, workers))
    assert rounds[-1][0].test_accuracy > 0.4
    assert 2 * 810 < rounds[0][0].bytes_up < 2 * 810 + 400


def test_each_sample_is_mapped_once_for_all_methods_workers_and_seeds(space):
    found = {
        workers: compare("digits", ["IL", "CA", "CS", "FH"], seeds=2, workers=workers, space=space, **SETTING)
        for workers in (0, 2)
    }
    assert sum(int(size) for size, _, _ in mapped(space) if size != "8") < 2 * (200 + 597 + 200)
    of_samples = [(float(low), float(high)) for size, low, high in mapped(space) if size != "8"]  # 8: noise, to look at
    assert min(low for low, _ in of_samples) >= 0, "raw, not standardised"
    assert max(high for _, high in of_samples) <= 1
    lines = [[{**line, "seconds": None} for line in result.records] for result in found.values()]
    assert lines[0] == lines[1]


def test_what_a_module_prints_is_not_in_the_json(space, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    given = [
        "--dataset",
        "digits",
        "--samples",
        "100",
        "--clients",
        "2",
        "--methods",
        "CA",
        "CS",
        "--space-rounds",
        "2",
    ]
    main(["compare", *given, "--space", *space, "--workers", "0", "--json", "--keep-vectors", "kept"])
    shown = capfd.readouterr()
    assert set(json.loads(shown.out)["methods"]) == {"CA", "CS"}
    assert "697 samples" not in shown.err
    assert "Loaded pretrained weights" in shown.err
    assert list((tmp_path / "kept").iterdir())


def test_attackers_with_noise_for_images_are_refused_in_a_backbone(space):
    with pytest.raises(ConfigError, match="leave noise out"):
        compare("digits", ["CS"], workers=0, space=space, noise_partners=0.4, **SETTING)
