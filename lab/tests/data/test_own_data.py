"""A simulation takes what a client takes, and leaves it as it is."""

import json
import re
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Features, Value
from datasets import Dataset as HuggingFace
from PIL import Image
from torch.utils.data import DataLoader, TensorDataset

from repshare.errors import ConfigError, DataError, ModelError
from repshare.methods import METHODS
from repshare_lab.config import Run, Setting
from repshare_lab.data import load
from repshare_lab.simulation import Inline, simulate
from repshare_lab.simulation.plan import make_plan, make_task, map_plan, resolve, write_plan

RNG = np.random.default_rng(0)
VALUES = RNG.normal(3, 2, (40, 5)).astype(np.float32)
TOKENS = RNG.integers(0, 9, (40, 6))
LABELS = np.arange(40) % 2


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Load what a function of one's own returns: these things."""

    def load_things(train, test=None, *classes):
        things = (train, train if test is None else test, *classes)
        monkeypatch.setitem(sys.modules, "things", SimpleNamespace(data=lambda: things))
        (tmp_path / "mine.py").write_text("from things import data\n")
        return load(f"{tmp_path}/mine.py:data")

    return load_things


def plan(splits, method="RS", **given):
    setting = Setting(dataset="mine.py:data", clients=2, rounds=1, **given)
    return make_plan(Run(method, 0, resolve(setting, splits)), splits)


def records(splits, method="RS", **given):
    setting = Setting(**{"dataset": "mine.py:data", "clients": 2, "rounds": 2, **given})
    with Inline() as workers:
        return [
            (record.ce, record.test_accuracy)
            for round in simulate(Run(method, 0, setting), splits, workers)
            for record in round
        ]


class Pairs:
    """A map-style dataset."""

    def __init__(self, *arrays):
        self.arrays = [torch.from_numpy(array) for array in arrays]

    def __len__(self):
        return len(self.arrays[0])

    def __getitem__(self, index):
        return tuple(array[index] for array in self.arrays)


class Noisy(Pairs):
    def __getitem__(self, index):
        inputs, label = super().__getitem__(index)
        return inputs + torch.randn(()), label


class Ragged(Pairs):
    def __init__(self):
        self.arrays = [torch.zeros(2), torch.zeros(2)]

    def __getitem__(self, index):
        return torch.zeros(index + 2), index


def hugging_face(**columns):
    return HuggingFace.from_dict({name: column.tolist() for name, column in columns.items()})


def test_an_own_table_is_not_standardised_unless_asked_and_then_by_column(own):
    splits = own((VALUES, LABELS))
    assert np.array_equal(plan(splits).train_inputs, VALUES)
    asked = plan(splits, samples=30, standardise=True)
    assert np.allclose(asked.train_inputs.mean(0), 0, atol=1e-5)
    assert np.allclose(asked.train_inputs.std(0), 1, atol=1e-5)
    assert np.allclose(asked.test_inputs, (VALUES - VALUES[:30].mean(0)) / VALUES[:30].std(0), atol=1e-4)


def test_token_ids_stay_whole_numbers(own):
    splits = own((TOKENS.astype(np.int32), LABELS))
    assert plan(splits).train_inputs.dtype == np.int64
    assert np.array_equal(plan(splits).train_inputs, TOKENS)
    with pytest.raises(ConfigError, match="nothing to standardise: the inputs are whole numbers"):
        plan(splits, standardise=True)


FORMS = {
    "dataset": lambda: Pairs(VALUES, LABELS),
    "tensor dataset": lambda: TensorDataset(torch.from_numpy(VALUES), torch.from_numpy(LABELS)),
    "columns": lambda: hugging_face(**{f"x{i}": VALUES[:, i] for i in range(5)}, label=LABELS),
    "one column": lambda: hugging_face(row=VALUES, labels=LABELS),
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_whatever_form_samples_come_in_they_are_the_same(own, form):
    splits, expected = own(form(), (VALUES, LABELS)), own((VALUES, LABELS))
    assert np.array_equal(splits.train.inputs, VALUES)
    assert np.array_equal(splits.train.labels, LABELS)
    assert splits.notes == expected.notes == ()


NAMED = """
import torch
from torch import nn

class Masked(nn.Module):
    def __init__(self, tokens, classes):
        super().__init__()
        self.embed, self.dense, self.head = nn.Embedding(tokens, 4), nn.Linear(4, 3), nn.Linear(3, classes)

    def forward(self, input_ids, attention_mask):
        mask = attention_mask[:, :, None]
        mean = (self.embed(input_ids) * mask).sum(1) / mask.sum(1)
        return self.head(torch.tanh(self.dense(mean)))
"""


def test_dictionaries_reach_the_model_by_name_in_any_process(own, tmp_path):
    columns = {"input_ids": TOKENS, "attention_mask": np.ones((40, 6), np.float32)}
    splits, again = own((columns, LABELS)), own(hugging_face(**columns, label=LABELS))
    (tmp_path / "model.py").write_text(NAMED)
    model = (f"{tmp_path}/model.py:Masked",)
    seen = records(splits, model=model)
    assert seen == records(again, model=model)
    made = plan(splits, model=model)
    write_plan(made, tmp_path)
    mapped = map_plan(made.run, made.classes, tmp_path)
    assert list(mapped.train_inputs) == list(columns)
    assert all(np.array_equal(mapped.train_inputs[name], columns[name]) for name in columns)
    assert (mapped.sizes, mapped.starts.tolist()) == ({"tokens": 9}, [0, 20, 40])
    with pytest.raises(ConfigError, match="there is no usual model for such inputs"):
        make_task(plan(own(({"a": VALUES, "b": VALUES}, LABELS))))


def test_words_are_numbered_and_their_names_kept(own):
    words = np.array(["no", "yes"])[LABELS]
    splits = own((VALUES, words))
    assert np.array_equal(splits.train.labels, LABELS)
    assert splits.class_names == ("no", "yes")
    assert splits.notes == ("classes: 0 no, 1 yes",)
    assert own((VALUES, words), None, ["yes", "no"]).train.labels.tolist() == (1 - LABELS).tolist()
    with pytest.raises(DataError, match="test label 'maybe' at index 1 is not one of no, yes"):
        own((VALUES, words), (VALUES[:2], ["yes", "maybe"]))
    with pytest.raises(DataError, match="labels of one part are words, of the other numbers"):
        own((VALUES, words), (VALUES, LABELS))


def test_the_names_of_a_hugging_face_data_set_are_kept(own):
    features = Features({"x": Value("float32"), "y": Value("float32"), "label": ClassLabel(names=["ill", "well"])})
    data = HuggingFace.from_dict({"x": [1, 2], "y": [3, 4], "label": [1, 0]}, features=features)
    splits = own(data)
    assert splits.class_names == ("ill", "well")
    assert splits.train.inputs.tolist() == [[1, 3], [2, 4]]


def test_random_transforms_are_frozen_and_said_to_be(own):
    splits = own(Noisy(VALUES, LABELS), (VALUES, LABELS))
    assert ["random transforms, which are frozen" in note for note in splits.notes] == [True]


def test_samples_that_cannot_become_arrays_are_refused(own):
    for data, message in (
        (
            hugging_face(text=np.array(["a", "b"]), x=np.arange(2.0), label=np.arange(2)),
            r"column text .*remove_columns",
        ),
        (hugging_face(x=np.arange(2.0), target=np.arange(2)), "dictionaries of x, target: one of these must be called"),
        (Pairs(VALUES, VALUES, LABELS), r"a pair \(inputs, label\).* not 3 values"),
        ([(VALUES[:1], 0), (VALUES[:2], 1), (VALUES, 1)], "train has 3 things, not a pair"),
        ([torch.zeros(2), torch.zeros(3)], "labels are float32"),
        (Ragged(), "samples cannot be put into one batch"),
        (DataLoader(Pairs(VALUES, LABELS)), "give the loader's dataset"),
    ):
        with pytest.raises(DataError, match=message) as caught:
            own(data)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_learns_from_a_table(method):
    splits = load("wine")
    (*_, last) = records(splits, method, dataset="wine", rounds=12, eval_every=12)
    assert last[1] > 0.6  # the largest class is 36 %


def test_methods_without_a_space_learn_from_text_and_those_with_one_say_what_they_lack():
    splits = load("colour_names")
    (*_, last) = records(splits, "RS", dataset="colour_names", rounds=15, eval_every=15)
    assert last[1] > 0.35  # the largest class is 27 % of the test samples
    for method in ("CA", "CS"):
        with pytest.raises(ConfigError, match=f"{method} needs a common space, and there is none for token ids"):
            records(splits, method, dataset="colour_names")


def test_a_model_of_another_kind_of_data_is_refused(own):
    with pytest.raises(ModelError, match=r"lenet5 cannot take the data \(features=5\): choose mlp"):
        make_task(plan(own((VALUES, LABELS)), model=("lenet5",)))


def test_the_command_leaves_out_what_does_not_suit_text(tmp_path, capsys, monkeypatch):
    from repshare.cli.main import main

    monkeypatch.chdir(tmp_path)
    main(["compare", "--dataset", "colour_names", "--rounds", "1", "--clients", "2", "--workers", "0", "--json"])
    told = capsys.readouterr()
    assert set(json.loads(told.out)["methods"]) == {"CL", "IL", "FL", "FD", "RS"}
    assert "CA and CS are left out" in told.err
    assert "classes: 0 red, 1 yellow" in told.err


PAGE = Path(__file__).parents[3] / "docs/compare.md"


@pytest.mark.parametrize("function", ["table", "text", "named", "loaded", "columns"])
def test_the_functions_in_the_documents_work_as_they_stand(function, tmp_path):
    (code,) = re.findall(r"```python\n(import numpy.*?)```", PAGE.read_text(), re.DOTALL)
    (tmp_path / "mine.py").write_text(code)
    (tmp_path / "model.py").write_text(NAMED)
    splits = load(f"{tmp_path}/mine.py:{function}")
    assert (len(splits.train.labels), len(splits.test.labels), splits.classes) == (60, 30, 3)
    model = (f"{tmp_path}/model.py:Masked",) if function == "named" else ()
    assert len(records(splits, "RS", model=model)) == 4


def test_the_commands_in_the_documents_work_as_they_stand(tmp_path, monkeypatch, capsys):
    from repshare.cli.main import main

    (tmp_path / "examples").symlink_to(PAGE.parents[1] / "examples")
    for name in ("table.csv", "later.csv"):
        rows = [f"{diagnosis},{i},{-i}" for i in range(20) for diagnosis in ("ill", "well")]
        (tmp_path / name).write_text("\n".join(["diagnosis,age,dose", *rows]))
    for kind in ("cat", "dog"):
        (tmp_path / "pets" / kind).mkdir(parents=True)
        for number in range(5):
            Image.new("RGB", (8, 8), (number, 0, 0)).save(tmp_path / "pets" / kind / f"{number}.png")
    monkeypatch.chdir(tmp_path)
    (section,) = re.findall(r"## Your data\n(.*?)\n## ", PAGE.read_text(), re.DOTALL)
    commands = re.findall(r"^repshare (compare .*)$", section, re.MULTILINE)
    assert len(commands) == 5
    for command in commands:
        main([*shlex.split(command), "--rounds", "1", "--methods", "IL", "CS", "--workers", "0", "--json"])
        assert set(json.loads(capsys.readouterr().out)["methods"]) == {"IL", "CS"}
