"""The example in Flower's two runtimes, with real processes on loopback: the simulator's bits, and no call outside."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from flower_nodes import SMALL, LocalNodes, context, same_run
from flower_processes import BIN, QUIET, ROOT, flower
from safetensors.numpy import load_file

from repshare.board import Wants
from repshare_flower import runs
from repshare_flower.messages import NodeQuestion
from repshare_lab.simulation import Inline, simulate
from support.processes import eventually

HERE = Path(__file__).parent
RS = SMALL | {"method": "RS"}


def check_same_bits(config, folder, splits, there):
    """Each node has written what the simulator's client has learned, to the bit."""
    with Inline() as inline:
        *_, records = simulate(same_run(config, splits), splits, inline, models=there)
    expected = {path.name: path.read_bytes() for path in there.iterdir()}
    assert len(expected) == 2
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == expected
    return ", ".join(f"{record.client} {record.test_accuracy:.2%}" for record in records)


def check_methods(link, outside, folder, splits, *options):
    for method in ("RS", "CS"):
        learned, simulated = folder / f"learned {method}", folder / f"simulated {method}"
        config = SMALL | {"method": method, "folder": str(learned)}
        shown = link.run(config, *options)
        assert "test accuracy after round 2" in shown, (shown, link.logs())
        assert check_same_bits(config, learned, splits, simulated) in shown.replace("\n", " ")
    assert outside.hosts() == []


OWN = """
from repshare import LeNet5
from repshare_lab import load

def my_model():
    return LeNet5(classes=10, channels=1)

def my_samples():
    train, _, _ = load("digits").normalised()
    return train.images[:60], train.labels[:60]
"""


def write_own_app(folder):
    """The app that flower/README.md describes, with a model and samples, and fewer rounds."""
    shutil.copytree(ROOT / "examples" / "flower", folder)
    client, server = re.findall(r"```python\n(.*?)```", (ROOT / "flower/README.md").read_text(), re.DOTALL)
    (folder / "digits_app" / "client.py").write_text(OWN + client)
    assert "rounds=20" in server
    (folder / "digits_app" / "server.py").write_text(server.replace("rounds=20", "rounds=3"))
    return folder


def test_superlink_and_supernodes_give_the_same_bits_as_the_simulator(splits, tmp_path):
    with flower(tmp_path) as (link, outside):
        for node in range(2):
            link.add_node(f"partition-id={node}")
        check_methods(link, outside, tmp_path, splits)


def test_the_simulation_runtime_gives_the_same_bits_as_the_simulator(splits, tmp_path):
    with flower(tmp_path, "--simulation") as (link, outside):
        nodes = ("--federation-config", "num-supernodes=2")
        check_methods(link, outside, tmp_path, splits, *nodes)
        shown = link.run({}, *nodes, app=write_own_app(tmp_path / "own"))
        assert shown.count("2 clients, 2 releases accepted") == 3, (shown, link.logs())


@pytest.fixture(scope="module")
def said():
    """Messages of one node's app, and of a server, in Flower's environment."""
    command = [BIN / "python", HERE / "flower_apps.py", json.dumps(RS)]
    done = subprocess.run(command, env=os.environ | QUIET, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "the patient is called Ada" not in done.stdout
    return json.loads(done.stdout.splitlines()[-1])


def test_a_message_has_the_release_and_the_wants_and_no_error_tells_its_reason(said):
    query, train, evaluate, error, *_ = said
    assert all(each["records"] == ["repshare"] for each in (query, train, evaluate))
    wants = {"name", "observations", "seed", "precision"}
    assert [set(each["fields"]) for each in (query, train, evaluate)] == [wants, wants | {"release"}, wants]
    nodes = LocalNodes(RS)
    board = runs.describe(context(RS)).server
    released = nodes.answer("train", 0, NodeQuestion(1, board.teach("client 1", Wants(1, 0))))["release"]
    assert train["fields"]["release"] == released.hex()
    assert train["bytes"] < len(released) + 1000  # Flower's own words about a message
    assert error["text"] == "RuntimeError: the client failed: see the log of its node"


def test_a_nodes_state_lasts_from_message_to_message(said):
    told, nodes = said[-3], LocalNodes(RS, report=True)
    teacher = runs.describe(context(RS)).server.teach("client 1", Wants(1, 0))
    released = [nodes.answer("train", 0, NodeQuestion(number, teacher))["release"].hex() for number in (1, 2)]
    assert told["releases"] == released
    assert told["accuracy"] == nodes.answer("evaluate", 0, NodeQuestion(2))["accuracy"]
    assert told["kept"] == [2]


def test_a_server_begins_when_all_clients_are_there(said):
    assert said[-2] == [["query", 2], ["train", 2], ["evaluate", 2]]


def test_a_node_that_fails_has_no_answer_and_others_have_theirs(said):
    assert said[-1] == {"sent": [[5, "train", "3"], [6, "train", "3"]], "timeout": 7.5, "answers": {"5": {"name": "a"}}}


def test_a_flower_client_app_as_a_method_here_learns_what_fl_does(tmp_path):
    command = [BIN / "python", HERE / "flower_as_method.py", tmp_path]
    paths = os.pathsep.join(str(ROOT / place) for place in ("src", "lab", "flower", "tests"))
    quiet = os.environ | QUIET | {"PYTHONPATH": paths}
    done = subprocess.run(command, env=quiet, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told.pop("trouble") == [None] * 9
    assert told == {"same_in_processes": True, "same_if_resumed": True}
    flower, fl = (load_file(tmp_path / method / "model.safetensors") for method in ("FLOWER", "FL"))
    assert flower.keys() == fl.keys()
    assert max(np.abs(flower[name] - fl[name]).max() for name in fl) < 1e-6


def test_a_call_outside_would_be_heard(tmp_path):
    with flower(tmp_path, quiet=False) as (_, outside):
        eventually(outside.hosts, "Flower calls home, as it does unless told not to")
        assert any("flower.ai" in call for call in outside.hosts())
