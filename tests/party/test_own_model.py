"""`repshare export` and `repshare predict`: the classifier in hand, used without anyone else."""

import csv
import io
import json
import shutil
from contextlib import chdir
from pathlib import Path

import numpy as np
import pytest
import torch

from repshare import load_classifier
from repshare.errors import ConfigError
from repshare.party.exporting import classifier_as_onnx
from repshare.party.party import load_party
from repshare.samples import Samples
from repshare.sharing import wire
from repshare.space import Space
from repshare_lab import load
from support.processes import run
from support.space_parties import COMMON, NAMES, PARTY_FILE, learn_here


@pytest.fixture(scope="module")
def learned(tmp_path_factory):
    """A folder with a party's file, and the state of one that has done a round."""
    folder = tmp_path_factory.mktemp("learned")
    (folder / "party.py").write_text(PARTY_FILE)
    (folder / "digits.json").write_text(json.dumps(COMMON.describe()))
    (folder / "network").mkdir()
    (folder / "network/run.json").write_text("{}")
    with chdir(folder):
        learn_here(folder / "mine", "party.py:p0", folder / "digits.json")
    return folder


@pytest.fixture
def here(learned, monkeypatch, tmp_path):
    """The test works in that folder; what it writes goes to `tmp_path`."""
    monkeypatch.chdir(learned)
    return tmp_path


def read_table(text):
    return list(csv.DictReader(io.StringIO(text)))


def test_predictions_are_those_that_the_client_was_tested_by(here, capsys):
    shown = run(capsys, "predict", "mine", "--party", "party.py:p0")
    table = read_table(shown.out)
    assert list(table[0]) == ["sample", "label", "class", "name", "probability"]
    assert all(NAMES[int(row["class"])] == row["name"] for row in table)
    accuracy = np.mean([row["label"] == row["class"] for row in table])
    (kept,) = map(json.loads, Path("mine/records.jsonl").read_text().splitlines())
    assert accuracy == pytest.approx(kept["test_accuracy"])
    assert f"{len(table)} samples of the party's test data: accuracy {accuracy:.2%}" in shown.err
    assert max(float(row["probability"]) for row in table) <= 1


def test_inputs_come_from_a_file(here, capsys):
    images = np.asarray(load_party("party.py:p0", 0).test[0])[:20]
    np.save(here / "images.npy", images.astype(np.float64))
    run(capsys, "predict", "mine", "--input", here / "images.npy", "--output", here / "out.csv")  # no party is needed
    named = [row["name"] for row in read_table((here / "out.csv").read_text())]
    assert named == load_classifier("mine/classifier.safetensors")(images)

    np.save(here / "narrow.npy", images[..., :3])
    np.save(here / "words.npy", np.array(["a"]))
    for name, said in (
        ("narrow.npy", "has inputs of shape (20, 1, 8, 3), not (n, 1, 8, 8)"),
        ("words.npy", "is no array of numbers"),
        ("none.npy", "cannot be read as .npy"),
    ):
        assert said in run(capsys, "predict", "mine", "--input", here / name, "--output", here / "no.csv", expect=2).err
        assert not (here / "no.csv").exists()


def test_names_of_classes_are_no_formulas_of_a_spreadsheet(learned, tmp_path, capsys):
    shutil.copytree(learned / "mine", tmp_path / "mine")
    file = tmp_path / "mine" / "classifier.safetensors"
    arrays, known = wire.decode_classifier(file.read_bytes())
    agreement, round, samples = known["agreement"], known["round"], known["samples"]
    names = ["=1+1", "+1", "-1", "@x", *NAMES[4:]]
    renamed = {**agreement, "class_names": names}
    file.write_bytes(wire.encode_classifier(arrays, agreement=renamed, round=round, samples=samples))
    np.save(tmp_path / "images.npy", load("digits").test.images[:100].astype("float32"))
    command = ("predict", tmp_path / "mine", "--input", tmp_path / "images.npy")
    written = {row["name"] for row in read_table(run(capsys, *command).out)}
    assert written <= {"'=1+1", "'+1", "'-1", "'@x", *NAMES[4:]}
    assert any(name.startswith("'") for name in written)


def test_onnx_gives_the_classifiers_scores_for_a_batch_of_any_size(here, capsys):
    import onnxruntime

    run(capsys, "export", "mine", "--to", here / "mine.onnx", "--party", "party.py:p0")
    session = onnxruntime.InferenceSession(here / "mine.onnx")
    images = np.asarray(load_party("party.py:p0", 0).test[0])[:50]
    scores = load_classifier("mine/classifier.safetensors").scores(images).numpy()
    for count in (1, 7, 50):
        assert session.run(["scores"], {"input": images[:count]})[0] == pytest.approx(scores[:count], abs=1e-3)


def test_a_graph_that_differs_is_refused(here, monkeypatch):
    samples = Samples((16 * torch.rand(5, 1, 8, 8), torch.arange(5)))
    monkeypatch.setattr("repshare.party.exporting._run", lambda body, inputs: np.ones((len(inputs), 10)))
    with pytest.raises(ConfigError, match=r"patches as ONNX differs by .* on your own samples.*it was not exported"):
        classifier_as_onnx(load_classifier("mine/classifier.safetensors"), samples)


class OwnSpace(Space):
    name = "backbone"


def test_a_space_that_is_a_module_of_ones_own_is_not_traced(here):
    kept = load_classifier("mine/classifier.safetensors")
    samples = Samples((torch.rand(5, 1, 8, 8), torch.arange(5)))
    own = kept._replace(agreement=type("Own", (), {"space": OwnSpace()})())
    with pytest.raises(ConfigError, match=r"the space backbone is your own module.*in classifier.safetensors"):
        classifier_as_onnx(own, samples)


def test_models_of_a_comparison_are_no_state_and_where_they_are_is_said(here, tmp_path, capsys):
    (tmp_path / "compared/models").mkdir(parents=True)
    (tmp_path / "compared/run.json").write_text("{}")
    words = ("export", tmp_path / "compared", "--to", "x.onnx", "--party", "party.py:p0")
    assert "a network's weights are in models/ (compare --keep-models)" in run(capsys, *words, expect=2).err


@pytest.mark.parametrize(
    ("words", "said"),
    [(["export", "mine", "--to", "x.pt", "--party", "party.py:p0"], "end in .onnx; the weights alone are in mine/"),
     (["export", "nothing", "--to", "x.onnx", "--party", "party.py:p0"], "nothing is no state folder of join or peer"),
     (["predict", "network"], "network has no classifier of a space: a network's weights are in model.safetensors"),
     (["predict", "mine"], "give --input, or a --party with test data"),
     (["predict", "mine", "--party", "own.py"], "'own.py' names no function in a file: give --party own.py:function")],
)  # fmt: skip
def test_what_cannot_be_done_is_said_and_nothing_is_written(here, capsys, words, said):
    assert said in run(capsys, *words, expect=2).err
    assert not list(Path().glob("x.*"))
