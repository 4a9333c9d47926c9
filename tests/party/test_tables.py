"""A hospital with a table of patients joins: each wrong way is refused or named in one line before anything leaves."""

import csv
import json
import re
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from repshare import Board, Client, CommonSpaceClassifier, MemoryStore, Policy, load_classifier
from repshare.errors import ConfigError, DataError
from repshare.party.controls import make_controls
from repshare.party.party import Party, agree
from repshare.relay.page.document import make_view
from repshare.space.agreement import Agreement, check_usual, read_agreement
from repshare.space.fourier import Fourier
from repshare.table import read_table
from support.patients import CLASSES, split_patients, write_table
from support.processes import Process, eventually
from support.relays import create_task, invite, prepare, repshare, start_relay
from support.space_parties import learn_here

HEAD, PATIENTS = split_patients()
LARGEST = (40, 50, 250, 4000, 0.25, 0.5, 0.6, 0.3, 0.5, 0.15)
COLUMNS = [
    {"name": name, "unit": "mm" if name in ("radius", "perimeter") else "", "least": 0, "largest": most}
    for name, most in zip(HEAD, LARGEST, strict=False)
]
AGREED = Agreement.of_table(COLUMNS, CLASSES, options=("features=256",))
PARTY = """
from pathlib import Path
import numpy as np
from repshare import Party, Policy

LEARNS = {"policy": Policy(accept_exposure=True)}

def hospital():
    return Party(data="patients.csv", label="diagnosis", **LEARNS)

def arrays():
    rows = np.array([line.split(",") for line in Path("patients.csv").read_text().splitlines()[1:]])
    return Party(data=(rows[:, :-1].astype("float32"), (rows[:, -1] == "malignant").astype(int)), **LEARNS)

def names():
    return Party(data="patients.csv", label="diagnosis", class_names=["malignant", "benign"], **LEARNS)

def label():
    return Party(data="patients.csv", label="outcome", **LEARNS)

def no_label():
    return Party(data="patients.csv", **LEARNS)
"""


def change(column, how):
    """The patients of the south, with another column."""
    place = HEAD.index(column)
    rows = [list(row) for row in PATIENTS["south"]]
    changed = how([row[place] for row in rows])
    for row, value in zip(rows, changed, strict=True):
        row[place] = value
    return HEAD, rows


def without(column):
    place = HEAD.index(column)
    return [name for name in HEAD if name != column], [row[:place] + row[place + 1 :] for row in PATIENTS["south"]]


def standardise():
    numbers = np.array([row[:-1] for row in PATIENTS["south"]])
    scaled = (numbers - numbers.mean(0)) / numbers.std(0)
    return HEAD, [[*row, own[-1]] for row, own in zip(scaled.tolist(), PATIENTS["south"], strict=True)]


SOUTH = PATIENTS["south"]
WRONG = {  # the party's function, its table, and what it is told
    "units": (
        "hospital",
        change("radius", lambda values: [value / 10 for value in values]),
        r"column radius is 0\.\d+ to [12]\.\d+ here, .* 95% are in the lowest tenth: another unit in place of mm",
    ),
    "order": ("arrays", (HEAD, SOUTH), "the task names its 10 columns, so that no order is guessed: give a table with"),
    "range": (
        "hospital",
        change("area", lambda values: [4001, *values[1:]]),
        "row 2, column area: 4001 is not from 0 to 4000, as agreed on .1 of 159 values",
    ),
    "scale": ("hospital", standardise(), r"radius: -[\d.]+ is not from 0 to 40 mm, .* Another unit, or scaled here"),
    "classes": ("names", (HEAD, SOUTH), "classes are benign, malignant; the party's are malignant, benign"),
    "a class that nobody named": (
        "hospital",
        change("diagnosis", lambda values: ["M", *values[1:]]),
        "row 2, column diagnosis: 'M' is none of the classes benign, malignant",
    ),
    "missing column": ("hospital", without("texture"), "patients.csv has no column 'texture', which is agreed on"),
    "words": (
        "hospital",
        change("symmetry", lambda values: ["high", *values[1:]]),
        r"row 2, column symmetry: 'high' is not a number .from 0 to 0\.5",
    ),
    "nine of ten columns": ("arrays", without("texture"), "the task names its 10 columns, so that no order is guessed"),
    "label column": ("label", (HEAD, SOUTH), "patients.csv has no column 'outcome'"),
    "no label column": ("no_label", (HEAD, SOUTH), "which column of the table is the class"),
    "an unknown column": (
        "hospital",
        ([*HEAD, "age"], [[*row, 50] for row in SOUTH]),
        "a column 'age' that is not agreed on",
    ),
    "no head": ("hospital", (SOUTH[0], SOUTH[1:]), "no column 'radius', and 10 more"),
}


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    folder = tmp_path_factory.mktemp("relay")
    write_table(folder / "columns.csv", COLUMNS[0], [each.values() for each in COLUMNS])
    more = ("--class-names", *CLASSES, "--space", "fourier", "features=256")
    create_task(folder, "cells", "--columns", "columns.csv", *more)
    with start_relay(folder, "--rate", 0) as relay:
        yield relay


def published(relay):
    return json.loads(prepare("relay", "tasks", "list", "--json", cwd=relay.folder))["tasks"][0]["published"]


@pytest.mark.parametrize("way", WRONG)
def test_a_wrong_way_is_refused_or_named_in_one_line_before_anything_leaves(relay, tmp_path, way):
    function, table, told = WRONG[way]
    write_table(tmp_path / "patients.csv", *table)
    (tmp_path / "party.py").write_text(PARTY)
    (tmp_path / "token").write_text(invite(relay.folder, f"south {way}", "--task", "cells"))
    (tmp_path / "token").chmod(0o600)
    (tmp_path / "cells.json").write_text(prepare("relay", "tasks", "describe", "cells", cwd=relay.folder))
    before = published(relay)
    ways = {
        "join": ("join", relay.url, "--token-file", "token", "--rounds", 1),
        "dry": ("join", "--dry-run"),
    }
    for name, command in ways.items():
        arguments = (*command, "--party", f"party.py:{function}", "--agreement", "cells.json")
        named = way == "units"
        shown = repshare(*arguments, cwd=tmp_path, expect=0 if named else 2)
        lines = [line for line in shown.splitlines() if re.search(told, line)]
        assert len(lines) == 1, (name, shown)
        assert len(shown.splitlines()) == 1 or named
        if named and name == "join":
            assert shown.index(lines[0]) < shown.index("round    1")
    assert published(relay) == before + (way == "units")


@pytest.mark.parametrize("name", ["north", "south", "east"])
def test_a_hospital_that_does_right_is_not_troubled_and_one_in_cm_is(name):
    right = pd.DataFrame(PATIENTS[name], columns=HEAD)
    assert read_table(right, AGREED.columns, "diagnosis", class_names=CLASSES).found.doubts == ()
    for column in ("radius", "perimeter"):
        wrong = right.assign(**{column: right[column] / 10})
        (doubt,) = read_table(wrong, AGREED.columns, "diagnosis", class_names=CLASSES).found.doubts
        assert column in doubt


def test_the_first_client_says_at_once_that_it_waits(relay, tmp_path):
    write_table(tmp_path / "patients.csv", HEAD, SOUTH)
    (tmp_path / "party.py").write_text(PARTY)
    create_task(relay.folder, "empty", "--columns", "columns.csv", "--class-names", *CLASSES)
    (tmp_path / "token").write_text(invite(relay.folder, "south", "--task", "empty"))
    (tmp_path / "token").chmod(0o600)
    given = ("--party", "party.py:hospital", "--token-file", "token", "--accept-space", "--rounds", 2)
    process = Process("join", relay.url, *given, cwd=tmp_path, name="south")
    try:
        told = "waiting for another client (everything is saved; Ctrl-C stops)"
        eventually(lambda: told in process.out.read_text(), "it says what it waits for", 60)
        assert "round    2" not in process.out.read_text()
    finally:
        process.stop()


def test_a_table_in_another_order_makes_the_same_release():
    south = pd.DataFrame(PATIENTS["south"], columns=HEAD)
    releases = set()
    for frame in (south, south[HEAD[::-1]]):
        table = read_table(frame, AGREED.columns, "diagnosis", class_names=CLASSES)
        client = Client(data=table, space=AGREED, policy=Policy(accept_exposure=True))
        client.train()
        releases.add(client.learner.release(1))
    assert len(releases) == 1


def test_an_agreement_with_columns_survives_its_description_and_has_a_name_of_its_own():
    described = json.dumps(AGREED.describe())
    assert read_agreement(described) == AGREED
    assert "low" not in json.loads(described), "it follows from the columns"
    others = [
        AGREED._replace(columns=()),
        *(Agreement.of_table([{**COLUMNS[0], **more}, *COLUMNS[1:]], CLASSES, options=("features=256",))
          for more in ({"unit": "cm"}, {"largest": 41}, {"missing": 3}, {"name": "Radius"})),
    ]  # fmt: skip
    assert len({each.name for each in (AGREED, *others)}) == 6
    assert AGREED.unusual(0, 3000, images=False) == {}
    with pytest.raises(ConfigError, match=r"width 0.1 \(usual: 0.25\)"):
        check_usual(Agreement.of_table(COLUMNS, options=("width=0.1",)).unusual(0, 1, images=False))


@pytest.mark.parametrize("columns", [7, [7], [], [{"name": "a"}], [{"name": "a", "least": 0, "largest": [1]}]])
def test_columns_that_a_relay_makes_up_are_refused(columns):
    told = {**AGREED.describe(), "columns": columns}
    with pytest.raises(ConfigError):
        read_agreement(json.dumps(told))
    task = replace(AGREED.task(2), description=json.dumps(told))
    assert json.loads(make_view("cells", Board(task), MemoryStore(), {}, [], 30))["columns"] == []
    with pytest.raises(ConfigError, match="not of a table whose bounds follow from them"):
        read_agreement(json.dumps({**AGREED.describe(), "low": [0] * 10}))


def test_parties_with_other_columns_are_told_which():
    other = Agreement.of_table([{**COLUMNS[0], "unit": "cm"}, *COLUMNS[1:]], CLASSES, options=("features=256",))
    with pytest.raises(ConfigError, match=r"columns \{'name': 'radius', 'unit': 'mm'.*client's \{.*'unit': 'cm'"):
        agree(Party(data=((), ()), space=other), AGREED.task(2))


def test_the_operator_sees_the_columns(relay):
    task, *_ = json.loads(prepare("relay", "tasks", "list", "--json", cwd=relay.folder))["tasks"]
    assert task["columns"][0] == {"name": "radius", "unit": "mm", "least": 0.0, "largest": 40.0}
    assert "of 10 named columns" in prepare("relay", "tasks", "list", cwd=relay.folder)
    told = relay.ask("GET", "/v1/tasks/cells/status", invite(relay.folder, "viewer", "--role", "viewer")).json()
    assert told["columns"][1] == {"name": "texture", "values": "from 0 to 50"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["--input-shape", 10], "needs --input-shape, or --columns, which says it"),
        (["--input-range", 0, 1], "leave --input-range out"),
        (["--space", "patches"], "columns are for the space fourier, not patches"),
        (["--space", "fourier", "features=65536", "width=99"], "width 99"),
    ],
)
def test_a_task_of_columns_has_no_other_shape_range_or_space(relay, given, told):
    create = ["relay", "tasks", "create", "new", "--columns", "columns.csv", "--classes", 2, *given]
    assert told in repshare(*create, cwd=relay.folder, expect=2)


def test_a_task_of_columns_states_the_weights_of_classes(relay):
    create = ["relay", "tasks", "create", "weighed", "--columns", "columns.csv", "--classes", 2, "--class-weights"]
    assert "2 numbers above 0" in repshare(*create, 1, 2, 3, cwd=relay.folder, expect=2)
    repshare(*create, 1, 12, cwd=relay.folder)
    described = json.loads(repshare("relay", "tasks", "describe", "weighed", cwd=relay.folder))
    assert described["class_weights"] == [1, 12]


def test_a_classifier_predicts_tables_by_name_with_the_rows_that_it_could_use(tmp_path, monkeypatch):
    write_table(tmp_path / "patients.csv", HEAD, PATIENTS["south"])
    (tmp_path / "party.py").write_text(PARTY)
    (tmp_path / "cells.json").write_text(json.dumps(AGREED.describe()))
    monkeypatch.chdir(tmp_path)
    learn_here(tmp_path / "mine", "party.py:hospital", tmp_path / "cells.json")
    others = [[*row[:-1], 7] for row in PATIENTS["others"]]
    others[1][3] = "NA"
    turned = [row[::-1] for row in others]
    write_table(tmp_path / "new.csv", ["patient", *HEAD[:-1][::-1]], turned)
    command = ("predict", "mine", "--input", "new.csv", "--output", "out.csv")
    assert repshare(*command, cwd=tmp_path) == ""
    rows = list(csv.DictReader((tmp_path / "out.csv").read_text().splitlines()))
    assert [row["sample"] for row in rows[:2]] == ["0", "2"], "row 1 has no area"
    classify = load_classifier(tmp_path / "mine" / "classifier.safetensors")
    assert [row["name"] for row in rows] == classify(tmp_path / "new.csv")
    frame = pd.DataFrame(PATIENTS["others"], columns=HEAD)
    assert classify(frame.drop(index=1)) == classify(tmp_path / "new.csv")
    assert classify(frame.iloc[:, :10].to_numpy()) == classify(frame)
    with pytest.raises(DataError, match=r"row 0 has .* as number 3, from 0 to 4000 is agreed on"):
        classify(frame.iloc[:, :10].to_numpy() + 4000 * np.eye(10)[3])
    with pytest.raises(DataError, match=r"column area: .* is not from 0 to 4000"):
        classify(frame.assign(area=frame["area"] + 4000))


def test_onnx_says_what_goes_in_and_what_comes_out(tmp_path, monkeypatch):
    onnx = pytest.importorskip("onnx")
    write_table(tmp_path / "patients.csv", HEAD, PATIENTS["south"])
    (tmp_path / "party.py").write_text(PARTY)
    (tmp_path / "cells.json").write_text(json.dumps(AGREED.describe()))
    given = ("--party", "party.py:hospital")
    monkeypatch.chdir(tmp_path)
    learn_here(tmp_path / "mine", "party.py:hospital", tmp_path / "cells.json")
    repshare("export", "mine", "--to", "cells.onnx", *given, cwd=tmp_path)
    about = {each.key: each.value for each in onnx.load(tmp_path / "cells.onnx").metadata_props}
    assert json.loads(about["repshare.inputs"]) == HEAD[:-1]
    assert json.loads(about["repshare.classes"]) == [*CLASSES]
    assert json.loads(about["repshare.agreement"]) == AGREED.describe()
    assert about["repshare.samples"] == "159"


def test_scikit_learns_client_reads_a_tasks_table_by_name():
    south = pd.DataFrame(PATIENTS["south"], columns=HEAD)
    task, others = AGREED.task(2), pd.DataFrame(PATIENTS["others"], columns=HEAD)
    there = CommonSpaceClassifier(task=task).fit(south.drop(columns="diagnosis"), south["diagnosis"])
    again = CommonSpaceClassifier(task=task).fit(south[HEAD[:-1][::-1]], south["diagnosis"])
    asked = others.drop(columns="diagnosis")
    assert np.array_equal(there.predict(asked), again.predict(asked[HEAD[:-1][::-1]]))
    with pytest.raises(DataError, match="the task names its 10 columns"):
        CommonSpaceClassifier(task=task).fit(south.drop(columns="diagnosis").to_numpy(), south["diagnosis"])


def test_a_network_beside_learns_from_columns_of_the_same_scale():
    table = read_table(pd.DataFrame(SOUTH, columns=HEAD), AGREED.columns, "diagnosis", class_names=CLASSES)
    network = nn.Sequential(nn.Linear(10, 8), nn.Tanh(), nn.Linear(8, 2))
    client = Client(network, table, space=AGREED, test=table, policy=Policy(accept_exposure=True))
    controls = make_controls(client)
    seen = {title: each.samples.batch(torch.arange(159))[0] for title, each in controls.items()}
    assert np.array_equal(seen["alone"], table.inputs)
    assert float(seen["alone with short features"].abs().max()) <= 1


def test_bounds_are_the_columns_and_categories_are_0_and_1():
    made = Agreement.of_table([*COLUMNS[:1], {"name": "sex", "categories": "f|m"}])
    assert isinstance(made.space, Fourier)
    assert (made.space.low, made.space.high) == ((0, 0, 0), (40, 1, 1))
