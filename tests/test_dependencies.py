"""What is installed is what was tested: bounds past known holes, pins, hashes, and an audit that never stays silent."""

import json
import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import repshare
from repshare.imports import EXTRAS

ROOT = Path(__file__).parent.parent
PROJECTS = ("pyproject.toml", "lab/pyproject.toml", "flower/pyproject.toml")
FILES = (*PROJECTS, "constraints.txt", "deploy/requirements.txt", "flower/constraints.txt")
HASHED, FLOWERS = FILES[-2:]
HOLES = {  # the last version with the hole, by package
    "torch": "2.9.1",  # CVE-2026-24747, and CVE-2025-32434 in 2.5
    "pillow": "12.2.0",  # CVE-2026-55379, and CVE-2024-28219 in 10.2
    "h11": "0.15.0",  # CVE-2025-43859
    "starlette": "1.3.0",  # CVE-2026-54283
    "cryptography": "49.0.0",  # CVE-2026-69247
    "jinja2": "3.1.5",  # CVE-2025-27516
    "idna": "3.14",  # CVE-2026-45409
    "setuptools": "78.1.0",  # CVE-2025-47273
}


def audit(root=ROOT, *options):
    command = [sys.executable, ROOT / "deploy/audit.py", "--root", root, *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def copy(tmp_path):
    """The files, to be tampered with."""
    for name in FILES:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def change(path, pattern, text):
    before = path.read_text()
    path.write_text(re.sub(pattern, text, before, count=1, flags=re.MULTILINE))
    assert path.read_text() != before


def test_bounds_pins_hashes_and_what_is_installed_fit_together():
    done = audit()
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", HOLES)
def test_no_version_with_a_known_hole_is_within_the_bounds(name):
    asked = []
    for project in (tomllib.loads((ROOT / name).read_text()) for name in PROJECTS):
        extras = project["project"].get("optional-dependencies", {}).values()
        several = [project["build-system"]["requires"], project["project"]["dependencies"], *extras]
        asked += [Requirement(text) for texts in several for text in texts]
    bounds = [each.specifier for each in asked if each.name == name]
    assert bounds
    assert not any(HOLES[name] in bound for bound in bounds)


WRONG = {
    "a pin below its bound": ("constraints.txt", r"^torch==.*", "torch==2.4.0", "torch: constraints.txt has 2.4.0"),
    "a pin that is not installed": ("constraints.txt", r"^mdurl==.*", "mdurl==0.0.1", "mdurl: 0.1.2 is installed"),
    "no pin": ("constraints.txt", r"^redis==.*\n", "", "redis: asked for in pyproject.toml"),
    "a bound above the pin": ("pyproject.toml", r'"h11>=0.16"', '"h11>=99"', "pyproject.toml asks for >=99"),
    "another version with hashes": (HASHED, r"^numpy==\S+", "numpy==2.0.0", "numpy: deploy/requirements.txt has 2"),
    "an old builder": (HASHED, r"^setuptools==\S+", "setuptools==70.0.0", "asks for >=78.1.1 to build"),
    "a package too many": (HASHED, r"^idna", f"evil==1.0 --hash=sha256:{'0' * 64}\nidna", "evil: without need"),
    "a package too few": (HASHED, r"^idna==\S+ \\\n(    .*\n)+", "", "idna: not in"),
    "no hash": (HASHED, r"^idna==(\S+) \\\n(    .*\n)+", r"idna==\1\n", ": no hash in deploy"),
    "a short hash": (HASHED, r"^idna==(\S+) \\\n(    .*\n)+", r"idna==\1 --hash=sha256:0\n", ": no hash in deploy"),
    "an old Flower": (FLOWERS, r"^flwr==.*", "flwr==1.0.0", "flwr: flower/constraints.txt has 1.0.0"),
    "no pin of Flower's": (FLOWERS, r"^torch==.*\n", "", "but not in flower/constraints.txt"),
    "another place": (HASHED, r"\A", "--index-url https://example.org/simple\n", "names a place"),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_what_does_not_fit_is_named(copy, what):
    file, pattern, text, reason = WRONG[what]
    change(copy / file, pattern, text)
    done = audit(copy)
    assert done.returncode == 1
    assert reason in done.stderr


def test_the_container_installs_by_hash_and_asks_nobody_else():
    lines = (ROOT / "deploy/Containerfile").read_text()
    installs = re.findall(r"pip install [^\\&]*", lines)
    assert len(installs) == 2
    assert "--require-hashes" in installs[0]
    assert "-r /src/deploy/requirements.txt" in installs[0]
    assert {"--no-index", "--no-deps", "--no-build-isolation"} <= set(installs[1].split())


def stand_in(folder, output, code=0):
    """A program that answers as pip-audit does."""
    path = folder / "pip-audit"
    path.write_text(f"#!{sys.executable}\nimport sys\nsys.stdout.write({output!r})\nsys.exit({code})\n")
    path.chmod(0o755)
    return str(path)


def entry(name, **found):
    return {"name": name, "version": "1.0", **found} if "skip_reason" not in found else {"name": name, **found}


ANSWERS = {
    "nothing": ([entry("a", vulns=[]), entry("b", vulns=[])], 0, "none of 2 packages"),
    "a hole": ([entry("a", vulns=[{"id": "CVE-1", "fix_versions": ["2.0"]}])], 1, "a 1.0: CVE-1, fixed in 2.0"),
    "a hole, and no data": (
        [entry("a", vulns=[{"id": "CVE-1", "fix_versions": []}]), entry("b", skip_reason="?")], 1, "no version yet",
    ),
    "no data": ([entry("a", skip_reason="?"), entry("b", skip_reason="?")], 3, "NOT AUDITED"),
    "some data": ([entry("a", vulns=[]), entry("b", skip_reason="?")], 3, "no data about 1 of 2 packages: b"),
    "no packages": ([], 3, "NOT AUDITED"),
}  # fmt: skip


@pytest.mark.parametrize("what", ANSWERS)
def test_an_audit_says_what_it_found_and_what_it_could_not_look_at(tmp_path, what):
    answer, code, said = ANSWERS[what]
    done = audit(ROOT, "--service", stand_in(tmp_path, json.dumps({"dependencies": answer}), min(code, 1)))
    assert done.returncode == code
    assert said in done.stdout + done.stderr


def test_an_audit_without_its_program_or_its_data_is_no_good_news(tmp_path):
    for tool in (
        str(tmp_path / "missing"),
        stand_in(tmp_path, "", 1),
        stand_in(tmp_path, "[]"),
        stand_in(tmp_path, "{}"),
    ):
        done = audit(ROOT, "--service", tool)
        assert done.returncode == 3
        assert "NOT AUDITED: the data about known holes is not available here" in done.stderr


def test_every_extra_is_named_to_those_who_lack_it_and_tried_alone():
    projects = [tomllib.loads((ROOT / name).read_text())["project"] for name in PROJECTS]
    extras = {extra for project in projects for extra in project.get("optional-dependencies", {})} | {"lab", "flower"}
    assert set(EXTRAS) == extras - {"docs", "dev"}
    tried = runpy.run_path(str(ROOT / "deploy/package.py"))["EXTRAS"]
    assert set(tried) == {"", *EXTRAS}


def test_the_three_packages_have_one_version_and_need_each_other_in_it():
    for name in PROJECTS:
        project = tomllib.loads((ROOT / name).read_text())
        assert project["project"]["dynamic"] == ["version"]
        assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "repshare.__version__"}
        ours = [Requirement(text) for text in project["project"]["dependencies"] if text.startswith("repshare")]
        assert [str(each.specifier) for each in ours] == [f"=={repshare.__version__}"] * (name != "pyproject.toml")
