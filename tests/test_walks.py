"""First hours, as scripts (examples/walks): of a researcher, hospitals, an operator without PyTorch, scikit-learn."""

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from support.patients import split_patients, write_table
from support.relays import create_task, invite, prepare, start_relay

ROOT = Path(__file__).parent.parent
NAMES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
PARTY = f"{ROOT / 'examples' / 'space_party.py'}"
AGREED = ["--input-shape", "1", "8", "8", "--input-range", "0", "16", "--class-names", *NAMES]


@pytest.fixture
def walk(tmp_path):
    """Run a walk in an empty folder, with this environment's commands; return what it printed."""

    def run(name, *arguments, **variables):
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        script = ["bash", str(ROOT / "examples" / "walks" / f"{name}.sh"), *map(str, arguments)]
        given = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", **variables}
        done = subprocess.run(script, cwd=tmp_path, env=given, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


@pytest.fixture
def no_pytorch(tmp_path):
    """A folder that hides PyTorch from the programs that look there first."""
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "torch.py").write_text("raise ModuleNotFoundError(\"No module named 'torch'\", name='torch')")
    return hidden


def test_a_researcher_compares_her_table_and_her_method_and_has_a_report(walk, tmp_path):
    shown = walk("researcher")
    for method in ("IL", "FL", "PROX", "CA", "CS"):
        assert re.search(rf"\b{method}\b.*±", shown), method
    lines = [json.loads(line) for line in (tmp_path / "runs/first/records.jsonl").read_text().splitlines()]
    assert {(line["method"], line["seed"]) for line in lines} == {
        (method, seed) for method in ("IL", "FL", "PROX", "CA", "CS") for seed in (0, 1)
    }
    assert "own mix" in shown
    assert "tumours.csv" in (tmp_path / "first.html").read_text()


def test_a_hospital_joins_is_killed_goes_on_and_uses_its_classifier(walk, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    create_task(tmp_path / "elsewhere", "digits", *AGREED)
    tokens = {name: invite(tmp_path / "elsewhere", name, "--task", "digits") for name in ("alice", "bob")}
    for name, token in tokens.items():
        (tmp_path / f"{name}.token").write_text(token)
    described = prepare("relay", "tasks", "describe", "digits", cwd=tmp_path / "elsewhere")
    (tmp_path / "agreement.json").write_text(described)
    with start_relay(tmp_path / "elsewhere") as relay:
        command = [sys.executable, "-m", "repshare", "join", relay.url, "--party", f"{PARTY}:bob", "--token-file"]
        other = subprocess.Popen(
            [*command, "bob.token", "--state", "bob", "--threads", "1"], cwd=tmp_path, stdout=subprocess.DEVNULL
        )
        try:
            shown = walk("hospital", relay.url, "alice.token", f"{PARTY}:alice")
        finally:
            other.kill()
            other.wait()
    assert "Nothing has been sent now" in shown
    assert re.search(r"together [\d.]+%, alone [\d.]+%", shown)
    assert "resuming after round" in shown
    assert (tmp_path / "predictions.csv").read_text().startswith("sample,label,class,name,probability\n0,7,")
    assert (tmp_path / "classifier.onnx").stat().st_size > 10_000
    assert "client alice in task digits" in (tmp_path / "mine.html").read_text()


def test_three_hospitals_with_a_table_each_learn_together_within_a_budget(walk, tmp_path):
    head, patients = split_patients()
    for name in ("north", "south", "east"):
        for file, rows in (("patients", patients[name]), ("others", patients["others"])):
            numbered = [[number, *row] for number, row in enumerate(rows)]
            write_table(tmp_path / name / f"{file}.csv", ["patient", *head], numbered)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    columns, party = ROOT / "examples" / "columns.csv", ROOT / "examples" / "table_party.py"
    shown = walk("tables", columns, f"{party}:hospital", port)
    assert "chosen: sums of 256 numbers a class, once, with noise (AUC at most 0.60 for any attack)" in shown
    assert (
        "patients.csv: 50 of 50 rows are used\nclasses: benign 50, malignant 0\ncolumns not for learning: patient"
        in shown
    )
    ends = re.findall(r"^together ([\d.]+)%, alone ([\d.]+)% \(test data\)$", shown, re.MULTILINE)
    assert len(ends) == 3
    assert min(float(together) for together, _ in ends) > 70, "with noise of this machine's own: 85 to 92 on average"
    assert float(ends[2][0]) > float(ends[2][1]) + 15, "the east has no ill patient, and learns of them"
    for name in ("north", "south", "east"):
        (last, *_) = reversed((tmp_path / name / "state" / "records.jsonl").read_text().splitlines())
        assert json.loads(last)["epsilon"] <= 1.3
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 298


def test_an_operator_without_pytorch_invites_from_afar_backs_up_and_restores(walk, tmp_path, no_pytorch):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    shown = walk("operator", port, PYTHONPATH=str(no_pytorch))
    assert "the client token of bob has ended" in shown
    assert re.search(r"tokens restored to \S*/relay\.db", shown)
    assert "everything that is stored can be read and is consistent" in shown
    assert re.search(r"^scans: 2 classes in the common space .*; 0 published; invited: alice\n", shown, re.MULTILINE)
    assert (tmp_path / "alice.token").stat().st_mode & 0o777 == 0o600


def test_two_hospitals_with_scikit_learn_and_no_pytorch_learn_together(tmp_path, no_pytorch):
    command = [sys.executable, str(ROOT / "examples" / "two_hospitals.py")]
    given = {**os.environ, "PYTHONPATH": str(no_pytorch), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=True)
    shares = [float(share) for share in re.findall(r": ([\d.]+)%", done.stdout)]
    assert min(shares[2:]) > max(shares[:2])


def test_three_hospitals_without_a_network_learn_together_by_files(walk, tmp_path):
    head, patients = split_patients()
    for name in ("north", "south", "east"):
        write_table(tmp_path / f"{name}/patients.csv", head, patients[name])
    write_table(tmp_path / "others.csv", head[:-1], [row[:-1] for row in patients["others"]])
    shown = walk("files", ROOT / "examples" / "columns.csv", ROOT / "examples" / "file_party.py")
    assert re.search(r"south after round 2: alone .*malignant.*, with the others .*malignant", shown)
    assert len((tmp_path / "predictions.csv").read_text().splitlines()) == 298
