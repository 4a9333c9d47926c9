"""`repshare export` and `repshare predict`: what a party has learned, used without anyone else."""

import csv
import io
import json
import math
import shutil
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from repshare import Client, load_classifier
from repshare.cli.main import main
from repshare.errors import ConfigError
from repshare.exchange.relay import Membership
from repshare.network.learner import FILE as MODEL
from repshare.party.exporting import classifier_as_onnx, model_as_onnx
from repshare.party.party import load_party
from repshare.party.rounds import take_part
from repshare.party.state import State
from repshare.samples import Samples
from repshare.sharing import wire
from repshare.space import Space
from repshare_lab import load
from support.processes import records, run
from support.space_parties import COMMON, NAMES, PARTY_FILE

OWN = """
import torch
from torch import nn
from repshare import Party, Policy
from repshare_lab import load

train, test, classes = load("digits").normalised()

def model():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, classes))

def mine():
    return Party(model(), (train.images[:100], train.labels[:100]), test=(test.images[:50], test.labels[:50]))

def another():
    return Party(nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.Linear(9, classes)), (test.images, test.labels))
"""


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A folder with three states: of a model, of a common classifier, and of both as a pair."""
    folder = tmp_path_factory.mktemp("learned")
    (folder / "own.py").write_text(OWN)
    (folder / "party.py").write_text(PARTY_FILE)
    (folder / "digits.json").write_text(json.dumps(COMMON.describe()))
    with chdir(folder):
        alone = ["join", "--alone", "--threads", "1", "--party"]
        main([*alone, "own.py:mine", "--rounds", "5", "--state", "model"])
        main([*alone, "party.py:p0", "--agreement", "digits.json", "--state", "classifier"])
    return folder


@pytest.fixture
def here(learned, monkeypatch, tmp_path):
    """The test works in that folder; what it writes goes to `tmp_path`."""
    monkeypatch.chdir(learned)
    return tmp_path


def read_table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_predictions_are_those_that_the_client_was_tested_by(here, capsys):
    shown = run(capsys, "predict", "model", "--party", "own.py:mine")
    table = read_table(shown.out)
    assert list(table[0]) == ["sample", "label", "class", "probability"]
    accuracy = np.mean([row["label"] == row["class"] for row in table])
    assert accuracy == pytest.approx(records("model")[-1]["test_accuracy"])
    assert f"50 samples of the party's test data: accuracy {accuracy:.2%}" in shown.err

    shown = run(capsys, "predict", "classifier", "--party", "party.py:p0", "--json").out
    lines = [json.loads(line) for line in shown.splitlines()]
    assert all(NAMES[line["class"]] == line["name"] for line in lines)
    assert np.mean([line["label"] == line["class"] for line in lines]) == records("classifier")[-1]["test_accuracy"]
    assert max(line["probability"] for line in lines) <= 1


def test_inputs_come_from_a_file(here, capsys):
    party = load_party("own.py:mine", 0)
    inputs = np.asarray(party.test[0])
    np.save(here / "new.npy", inputs.astype(np.float64))
    rows = [",".join(map(repr, map(float, row))) for row in inputs.reshape(len(inputs), -1)]
    (here / "new.csv").write_text("\n".join([",".join(f"pixel {n}" for n in range(64)), *rows]))
    tested = [row["class"] for row in read_table(run(capsys, "predict", "model", "--party", "own.py:mine").out)]
    for name in ("new.npy", "new.csv"):
        run(capsys, "predict", "model", "--party", "own.py:mine", "--input", here / name, "--output", here / "out.csv")
        assert [row["class"] for row in read_table((here / "out.csv").read_text())] == tested
    images = np.asarray(load_party("party.py:p0", 0).test[0])[:20]
    np.save(here / "images.npy", images)
    shown = run(capsys, "predict", "classifier", "--input", here / "images.npy").out  # no party is needed
    assert [row["name"] for row in read_table(shown)] == load_classifier("classifier/classifier.safetensors")(images)

    np.save(here / "narrow.npy", inputs[..., :3])
    np.save(here / "words.npy", np.array(["a"]))
    (here / "broken.csv").write_text("1,2\n3,x\n")
    for name, said in (
        ("narrow.npy", "has inputs of shape (50, 1, 8, 3), not (n, 1, 8, 8)"),
        ("words.npy", "is no array of numbers"),
        ("broken.csv", "sample 1 is not 2 numbers"),
        ("none.npy", "cannot be read as .npy"),
    ):
        command = ("predict", "model", "--party", "own.py:mine", "--input", here / name, "--output", here / "not.csv")
        assert said in run(capsys, *command, expect=2).err
        assert not (here / "not.csv").exists()


def test_names_of_classes_are_no_formulas_of_a_spreadsheet(learned, tmp_path, capsys):
    shutil.copytree(learned / "classifier", tmp_path / "classifier")
    file = tmp_path / "classifier" / "classifier.safetensors"
    arrays, known = wire.decode_classifier(file.read_bytes())
    agreement, round, samples = known["agreement"], known["round"], known["samples"]
    names = ["=1+1", "+1", "-1", "@x", *NAMES[4:]]
    renamed = {**agreement, "class_names": names}
    file.write_bytes(wire.encode_classifier(arrays, agreement=renamed, round=round, samples=samples))
    np.save(tmp_path / "images.npy", load("digits").test.images[:100].astype("float32"))
    command = ("predict", tmp_path / "classifier", "--input", tmp_path / "images.npy")
    written = {row["name"] for row in read_table(run(capsys, *command).out)}
    assert written <= {"'=1+1", "'+1", "'-1", "'@x", *NAMES[4:]}
    assert any(name.startswith("'") for name in written)
    assert {json.loads(line)["name"] for line in run(capsys, *command, "--json").out.splitlines()} <= set(names)


def test_weights_that_are_not_finite_are_refused(learned, tmp_path, capsys):
    shutil.copytree(learned / "model", tmp_path / "model")
    weights = safetensors.torch.load_file(tmp_path / "model" / MODEL)
    name = next(iter(weights))
    safetensors.torch.save_file({**weights, name: weights[name] * math.nan}, tmp_path / "model" / MODEL)
    told = run(capsys, "predict", tmp_path / "model", "--party", learned / "own.py:mine", expect=2).err
    assert f"has numbers that are not finite in {name}" in told


def test_a_network_beside_a_classifier_of_an_earlier_version_is_refused(here, capsys):
    party = load_party("party.py:p0", 0)
    client = Client(party.model, party.data, test=party.test, space=COMMON, name="p0")
    state = State(here / "pair", client, Membership("digits", "p0", COMMON.task(10)))
    state.restore()
    list(take_part(state, 2))
    shutil.copy("model/model.safetensors", here / "pair/model.safetensors")
    said = run(capsys, "predict", here / "pair", "--party", "party.py:p0", expect=2).err
    assert "a network beside a common classifier: the last version that reads it is 055caf8" in said


def test_onnx_gives_the_models_logits_for_a_batch_of_any_size(here, capsys):
    import onnxruntime

    run(capsys, "export", "model", "--to", here / "model.onnx", "--party", "own.py:mine")
    session = onnxruntime.InferenceSession(here / "model.onnx")
    party = load_party("own.py:mine", 0)
    party.model.load_state_dict(safetensors.torch.load_file("model/model.safetensors"))
    images = torch.as_tensor(party.test[0])
    with torch.no_grad():
        logits = party.model.eval()(images)
    for count in (1, 7, 50):
        (scores,) = session.run(["scores"], {"input": images[:count].numpy()})
        assert scores == pytest.approx(logits[:count].numpy(), abs=1e-5)


class Unlike(nn.Module):
    """A network that computes something else while it is being exported."""

    def __init__(self):
        super().__init__()
        self.last = nn.Linear(64, 10)

    def forward(self, images):
        return self.last(images.flatten(1)) + (1.0 if torch.compiler.is_exporting() else 0.0)


def test_a_graph_that_differs_is_refused(here):
    samples = Samples((torch.rand(5, 1, 8, 8), torch.arange(5)))
    with pytest.raises(ConfigError, match=r"Unlike as ONNX differs by 1 on your own samples.*it was not exported"):
        model_as_onnx(Unlike(), samples)


class OwnSpace(Space):
    name = "backbone"


def test_a_space_that_is_a_module_of_ones_own_is_not_traced(here):
    kept = load_classifier("classifier/classifier.safetensors")
    samples = Samples((torch.rand(5, 1, 8, 8), torch.arange(5)))
    own = kept._replace(agreement=type("Own", (), {"space": OwnSpace()})())
    with pytest.raises(ConfigError, match=r"the space backbone is your own module.*in classifier.safetensors"):
        classifier_as_onnx(own, samples)


@pytest.mark.parametrize(
    ("words", "said"),
    [(["export", "model", "--to", "x.pt", "--party", "own.py:mine"], "end in .onnx; the weights alone are in model/"),
     (["export", "nothing", "--to", "x.onnx", "--party", "own.py:mine"], "nothing is no state folder of join or peer"),
     (["export", "model", "--to", "x.onnx", "--party", "own.py:another"], "the weights in model are not of Sequential"),
     (["predict", "model"], "give --input, or a --party with test data"),
     (["predict", "model", "--party", "own.py:another"], "give --input, or a --party with test data"),
     (["predict", "model", "--party", "own.py"], "'own.py' names no function in a file: give --party own.py:function")],
)  # fmt: skip
def test_what_cannot_be_done_is_said_and_nothing_is_written(here, capsys, words, said):
    assert said in run(capsys, *words, expect=2).err
    assert not list(Path().glob("x.*"))
