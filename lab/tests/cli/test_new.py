"""`repshare new` makes a project whose commands and notebook run as they stand."""

import re

import nbformat
from nbclient import NotebookClient

from support.processes import run
from support.warm import run_warm

SMALL = ["--clients", "2", "--rounds", "2", "--samples", "100", "--workers", "0"]


def commands(readme):
    return [line.split()[1:] for line in readme.read_text().splitlines() if line.startswith("repshare ")]


def test_a_new_project_runs_as_its_readme_says_and_nothing_is_overwritten(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = run(capsys, "new", "hospital").out
    assert re.search(r"^  repshare compare .* own_method.py:SHORT$", told, re.MULTILINE)
    project = tmp_path / "hospital"
    assert {path.name for path in project.iterdir()} == {"README.md", "notebook.ipynb", "own_method.py", "party.py"}
    assert (project / "README.md").read_text().startswith("# hospital\n")
    shown = commands(project / "README.md")
    assert len(shown) == 5
    for command in shown[:4]:  # the fifth needs a relay
        done = run_warm(*command, *(SMALL if command[0] == "compare" else ()), cwd=project)
        assert done.returncode == 0, done.stderr
        expected = {"compare": "SHORT", "report": "report.html", "join": "Nothing has been sent now"}[command[0]]
        assert expected in done.stdout
    (project / "party.py").write_text("mine")
    assert "hospital exists already: choose another name" in run(capsys, "new", "hospital", expect=2).err
    assert (project / "party.py").read_text() == "mine"
    (tmp_path / "file").touch()
    assert "file/project cannot be made: Not a directory" in run(capsys, "new", "file/project", expect=2).err


def test_its_notebook_compares_looks_and_predicts(tmp_path, capsys):
    run(capsys, "new", str(tmp_path / "project"))
    notebook = nbformat.read(tmp_path / "project/notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        cell.source = (
            cell.source.replace("IL RS FL", "IL")
            .replace("ROUNDS = 30", "ROUNDS = 1")
            .replace("--clients 4", "--clients 2 --samples 100")
        )
    NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(tmp_path / "project")}}).execute()
    printed = "".join(out.get("text", "") for cell in notebook.cells for out in cell.get("outputs", ()))
    assert re.search(r"^SHORT +[\d.]+% mean", printed, re.MULTILINE)
    assert re.search(r"^predicted \[\d", printed, re.MULTILINE)
    assert any("image/png" in out.get("data", {}) for cell in notebook.cells for out in cell.get("outputs", ()))
    assert (tmp_path / "project/model.pt").exists()
