"""What the documents say is true: their code runs, their links lead somewhere."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.warm import run_warm

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]


def run(code, cwd):
    return subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, capture_output=True, text=True, timeout=120, check=False
    )


def test_the_readmes_python_works_as_it_stands(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert float(re.search(r"([\d.]+)%", last).group(1)) > 60, last


def test_the_example_of_two_parties_is_the_readmes():
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    example = (ROOT / "examples/two_parties.py").read_text()
    for line in code.splitlines():
        assert line in example, line


def test_in_the_example_of_a_common_space_parties_learn_classes_they_have_never_seen(tmp_path):
    done = run((ROOT / "examples/common_space.py").read_text(), tmp_path)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert all(float(share) < 60 for share in re.findall(r"([\d.]+)%", first)), first
    assert all(float(share) > 90 for share in re.findall(r"([\d.]+)%", last)), last


def test_the_example_of_ones_own_data_and_model_runs(tmp_path):
    own = ROOT / "examples/own.py"
    arguments = ["--dataset", f"{own}:data", "--model", f"{own}:model", "--rounds", "5", "--inline"]
    done = run_warm("compare", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("example", "most_lines"), [("fedprox.py:FEDPROX", 40), ("own_loss.py:CONTRAST", 45)])
def test_the_examples_of_ones_own_method_run_as_they_say(example, most_lines, tmp_path):
    path = ROOT / "examples" / example.partition(":")[0]
    assert len(path.read_text().splitlines()) <= most_lines
    (command,) = re.findall(r"^repshare (compare .*)$", path.read_text(), re.MULTILINE)
    assert f"examples/{example}" in command
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    small = ["--dataset", "digits", "--clients", "2", "--rounds", "2", "--samples", "100", "--inline"]
    done = run_warm(*command.split(), *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert example.partition(":")[2] in done.stdout


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_within_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_shown_exist(page):
    from repshare.cli.main import COMMANDS

    for command in re.findall(r"^\$? ?repshare (\w+)", page.read_text(), re.MULTILINE):
        assert command in COMMANDS, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_are_named_exist(page):
    for file, name in re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", page.read_text()):
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"


def test_every_threat_has_a_test():
    """Or says which file will have it."""
    rows = [line for line in (ROOT / "docs/threats.md").read_text().splitlines() if line.startswith("| ")]
    tables = [line for line in rows if not line.startswith(("| asset", "| promised", "| who has", "| what happens"))]
    assets = 9  # the first table says what is worth protecting
    assert all("tests/" in line for line in tables[assets:])
    assert len(tables) > 40


def test_the_site_is_built_with_every_link_leading_somewhere_and_nothing_from_elsewhere(tmp_path):
    pages, site = tmp_path / "pages", tmp_path / "site"
    shutil.copytree(ROOT, pages, ignore=shutil.ignore_patterns(".*", "build", "runs", "src", "tests"))
    config = (ROOT / "mkdocs.yml").read_text()
    (tmp_path / "mkdocs.yml").write_text(config.replace("build/pages", str(pages)).replace("build/site", str(site)))
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(tmp_path / "mkdocs.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]*src=\"(?:https?:)?//|<link[^>]*rel=\"stylesheet\"[^>]*href=\"https?://"
    )
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text()), page
