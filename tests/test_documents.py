"""What the documents say is true: their code runs, their links lead somewhere, their numbers are the records'."""

import importlib
import inspect
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from statistics import fmean

import pytest

from repshare.fields import field_helps
from repshare.space.exposure import Exposure
from repshare_lab.cli.audit import is_broken
from support.browsers import Visit, start_browser
from support.warm import run_warm

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").glob("*.md"))]
NOTEBOOK = [*sorted((ROOT / "lab/notebook").glob("*.md")), ROOT / "flower/README.md"]
WORDS = {  # of a page, at most; what stands in blocks of code is not counted
    "README.md": 700,
    "docs/getting-started.md": 1000,
    "docs/join.md": 1800,
    "docs/what-leaves.md": 1400,
    "docs/relay.md": 1800,
    "docs/threats.md": 1200,
    "docs/method.md": 1800,
    "docs/results.md": 1900,
    "docs/compare.md": 1400,
    "docs/extend.md": 900,
    "docs/architecture.md": 1000,
    "docs/why.md": 600,
}
OPENING_LINES = 15


def run(code, cwd):
    """Run this as a script of one's own."""
    (cwd / "mine.py").write_text(code)
    return run_warm(cwd=cwd, script=str(cwd / "mine.py"))


def opening(page):
    """The block that a page opens with: its language, if it says one, and its text."""
    return re.search(r"^```(\w*)\n(.*?)^```", (ROOT / page).read_text(), re.MULTILINE | re.DOTALL).groups()


@pytest.mark.parametrize("page", WORDS)
def test_a_page_has_no_more_words_than_its_budget(page):
    told = re.sub(r"```.*?```", " ", (ROOT / page).read_text(), flags=re.DOTALL)
    assert len(told.split()) <= WORDS[page]


def test_every_page_has_a_budget():
    assert {str(page.relative_to(ROOT)) for page in PAGES if page.parent == ROOT / "docs"} - {"docs/api.md"} <= {*WORDS}


@pytest.mark.parametrize("page", WORDS)
def test_a_page_opens_with_a_short_block_that_runs(page, tmp_path):
    language, code = opening(page)
    assert len(code.splitlines()) <= OPENING_LINES
    for name in ("examples", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    if language == "python":
        done = run(code, tmp_path)
    else:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        script = "set -euo pipefail\n" + re.sub(r"^repshare relay serve$", SERVED, code, flags=re.MULTILINE)
        done = subprocess.run(
            ["bash", "-c", script],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stdout + done.stderr


SERVED = """repshare relay serve --port 0 > served & relay=$!
until grep -q 'repshare relay at' served; do sleep 0.1; done
kill -TERM $relay && wait $relay"""


@pytest.mark.parametrize("page", ["docs/results.md", "docs/what-leaves.md"])
def test_rows_of_tables_are_those_of_the_records(page):
    """Each row in a section that links a table of records is one of that table, as it stands there."""
    for section in re.split(r"^## ", (ROOT / page).read_text(), flags=re.MULTILINE):
        tables = [ROOT / "docs" / place for place in re.findall(r"\]\((results/[\w-]+/\w+\.md)\)", section)]
        rows = {row for table in tables for row in table.read_text().splitlines()}
        heads = re.compile(r"\| (\w.* )?\| .*\n\|[-:|]+\|\n((?:\|.*\n)+)")
        told = {row for _, body in heads.findall(section) for row in body.splitlines()} if tables else set()
        assert told - rows == set()


def test_what_attacks_come_to_is_said_as_the_records_have_it():
    allowed, known = [], []
    for file in (ROOT / "docs/results").glob("leakage-*/records.jsonl"):
        classes = 2 if "breast_cancer" in file.parent.name else 10
        for line in map(json.loads, file.read_text().splitlines()):
            if line["method"] == "CS" and Exposure(line["d"], classes, line["behind"], sums=False).allowed:
                allowed.append(fmean(line["auc"]))
                known += [fmean(line["half_known"])] if line["half_known"] else []
    told = (ROOT / "docs/what-leaves.md").read_text()
    said = "attacks come to (\\d\\.\\d\\d) at most, by one who knows half of the members to (\\d\\.\\d\\d)"
    assert re.findall(said, told) == [(f"{max(allowed):.2f}", f"{max(known):.2f}")]
    audits = [
        json.loads((ROOT / f"docs/results/privacy-audit/{name}.json").read_text())
        for name in ("common", "broken-common")
    ]
    right, broken = ([is_broken(line) for line in audit["membership"]] for audit in audits)
    said = "attacked in (\\d+) settings: none proved more than the accounted ε; with half .* on purpose, (\\d+) did"
    assert not any(right)
    assert re.findall(said, told) == [(str(len(right)), str(sum(broken)))]


def test_the_space_the_exchange_and_the_method_of_ones_own_fulfil_their_contracts(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs/extend.md").read_text(), re.DOTALL)
    assert len(blocks) == 3
    for number, code in enumerate(blocks):
        (tmp_path / f"test_{number}.py").write_text(code)
    command = [sys.executable, "-m", "pytest", "-q", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout


def test_the_example_of_two_parties_runs(tmp_path):
    done = run((ROOT / "examples/two_parties.py").read_text(), tmp_path)
    assert done.returncode == 0, done.stderr
    last = done.stdout.splitlines()[-1]
    assert float(re.search(r"([\d.]+)%", last).group(1)) > 60, last


def test_in_the_readmes_block_parties_learn_classes_they_have_never_seen(tmp_path):
    done = run(opening("README.md")[1], tmp_path)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert [share for share in re.findall(r"([\d.]+)%", first) if float(share) > 60] == []
    assert [share for share in re.findall(r"([\d.]+)%", last) if float(share) < 90] == []


def test_in_the_example_of_a_common_space_parties_learn_classes_they_have_never_seen(tmp_path):
    done = run((ROOT / "examples/common_space.py").read_text(), tmp_path)
    assert done.returncode == 0, done.stderr
    first, *_, last = done.stdout.splitlines()
    assert all(float(share) < 60 for share in re.findall(r"([\d.]+)%", first)), first
    assert all(float(share) > 90 for share in re.findall(r"([\d.]+)%", last)), last


def test_the_example_of_a_comparison_runs(tmp_path):
    done = run((ROOT / "examples/compare.py").read_text(), tmp_path)
    assert done.returncode == 0, done.stderr
    assert "worst_client" in done.stdout
    assert done.stdout.count("client 4: ") == 5  # rounds


def test_the_example_of_ones_own_data_and_model_runs(tmp_path):
    own = ROOT / "examples/own.py"
    arguments = ["--dataset", f"{own}:data", "--model", f"{own}:model", "--rounds", "5", "--workers", "0"]
    done = run_warm("compare", *arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("example", "most_lines"), [("fedprox.py:PROX", 40), ("own_loss.py:CONTRAST", 45)])
def test_the_examples_of_ones_own_method_run_as_they_say(example, most_lines, tmp_path):
    path = ROOT / "examples" / example.partition(":")[0]
    assert len(path.read_text().splitlines()) <= most_lines
    (command,) = re.findall(r"^repshare (compare .*)$", path.read_text(), re.MULTILINE)
    assert f"examples/{example}" in command
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    small = ["--dataset", "digits", "--clients", "2", "--rounds", "2", "--samples", "100", "--workers", "0"]
    done = run_warm(*command.split(), *small, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert example.partition(":")[2] in done.stdout


@pytest.mark.parametrize("page", [*PAGES, *NOTEBOOK], ids=lambda page: str(page.relative_to(ROOT)))
def test_links_within_the_project_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text()):
        if "://" not in target:
            assert (page.parent / target).exists(), target


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_shown_exist_with_their_options(page):
    from repshare.cli.groups import LAYOUTS
    from repshare.cli.main import CommandGroup, all_commands
    from repshare.cli.parsing import options_of

    text = page.read_text().replace("\\\n", " ")
    for command in re.findall(r"(?:^[$>]? *|`)(repshare [a-z][^`\n#|&]*)", text, re.MULTILINE):
        (_, *words), chosen, path = command.split(), CommandGroup("", all_commands()), []
        while isinstance(chosen, CommandGroup) and words and words[0] in chosen.commands:
            path.append(words.pop(0))
            chosen = chosen.commands[path[-1]]
        if isinstance(chosen, CommandGroup):
            assert path or re.match(r"[^a-z]|COMMAND", words[0]), command
            continue
        layout = chosen.layout or LAYOUTS.get(" ".join(path))
        flags = {option.flag for option in options_of(chosen.load(), layout)} | {"--help"}
        assert {word for word in words if re.fullmatch("--[a-z-]+", word)} <= flags, command


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_tests_that_are_named_exist(page):
    for file, name in re.findall(r"`((?:lab/|flower/)?tests/[\w/]+\.py)::(\w+)`", page.read_text()):
        assert re.search(rf"^def {name}\(", (ROOT / file).read_text(), re.MULTILINE), f"{file}::{name}"


def test_every_threat_has_a_test():
    (section,) = re.findall(r"^## What is promised\n(.*?)^## ", (ROOT / "docs/threats.md").read_text(), re.M | re.S)
    rows = [line for line in section.splitlines() if line.startswith("| ") and not line.startswith("| attacker")]
    assert len(rows) > 25
    assert [row for row in rows if "tests/" not in row] == []


def test_the_changelog_and_the_citation_are_of_this_version():
    version = importlib.import_module("repshare").__version__
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^## (\d.*)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)[1] == version


REFERENCE = re.compile(r"^::: ([\w.]+)\n(?:    options:\n      members: \[(.*?)\]\n)?", re.MULTILINE)


def referred():
    """What docs/api.md describes: its name, the object, and the members that are shown of a class."""
    for entry in REFERENCE.finditer((ROOT / "docs/api.md").read_text()):
        module, _, last = entry[1].rpartition(".")
        found = getattr(importlib.import_module(module), last)
        public = [name for name, value in vars(found).items() if inspect.isfunction(value) and name[0] != "_"]
        members = public if entry[2] is None else entry[2].split(", ") if entry[2] else []
        yield entry[1], found, members if inspect.isclass(found) else []


def undescribed(function):
    """Parameters that the section Args of a docstring says nothing of."""
    _, _, told = (inspect.getdoc(function) or "").partition("Args:\n")
    names = [name for name in inspect.signature(function).parameters if name not in ("self", "cls", "_")]
    return [name for name in names if not re.search(rf"^    {name}: \S", told, re.MULTILINE)]


def undescribed_fields(made):
    """Fields of a class, or of one that it inherits, that no docstring follows."""
    names = [field.name for field in fields(made)] if is_dataclass(made) else list(made._fields)
    return [name for name in names if name not in field_helps(made)]


def test_the_reference_has_every_public_name():
    names = {name for name, _, _ in referred()}
    modules = {"repshare", "repshare.space", "repshare_lab", "repshare_lab.data", "repshare_flower"}
    for module in modules:
        public = importlib.import_module(module)
        called = {name for name in public.__all__ if callable(getattr(public, name))}
        assert {f"{module}.{name}" for name in called} - names - {"repshare_lab.data.load"} == set()


def test_every_public_name_is_there_after_importing_the_package_alone(tmp_path):
    code = "import repshare; [getattr(repshare, name) for name in repshare.__all__]"
    command = [sys.executable, "-c", code]  # from nothing: what others have imported would be there
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_every_parameter_in_the_reference_is_described():
    missing = []
    for name, found, members in referred():
        if inspect.ismodule(found):
            continue
        if is_dataclass(found) or hasattr(found, "_fields"):
            missing += [f"{name}.{field}" for field in undescribed_fields(found)]
        elif not getattr(found, "_is_protocol", False) and not (
            inspect.isclass(found) and found.__init__ is object.__init__
        ):
            asked = found.__init__ if inspect.isclass(found) else found
            missing += [f"{name}({parameter})" for parameter in undescribed(asked)]
        for member in members:
            asked = getattr(found, member, None)  # None: an attribute of instances
            if callable(asked):
                missing += [f"{name}.{member}({parameter})" for parameter in undescribed(asked)]
    assert missing == []


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it: its folder."""
    folder = tmp_path_factory.mktemp("documents")
    pages, site = folder / "pages", folder / "site"
    shutil.copytree(ROOT, pages, ignore=shutil.ignore_patterns(".*", "build", "runs", "src", "tests", "repshare_*"))
    config = (ROOT / "mkdocs.yml").read_text()
    ours = {
        "[src, lab, flower]": f"[{ROOT / 'src'}, {ROOT / 'lab'}, {ROOT / 'flower'}]",
        "[deploy/": f"[{ROOT}/deploy/",
    }
    for name, place in {"build/pages": pages, "build/site": site, **ours}.items():
        config = config.replace(name, str(place))
    (folder / "mkdocs.yml").write_text(config)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(folder / "mkdocs.yml")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return site


def test_the_site_is_built_with_every_link_leading_somewhere_and_nothing_from_elsewhere(site):
    loaded = re.compile(
        r"<(?:script|img|iframe)[^>]*src=\"(?:https?:)?//|<link[^>]*rel=\"stylesheet\"[^>]*href=\"https?://"
    )
    for page in site.rglob("*.html"):
        assert not loaded.search(page.read_text()), page


def test_the_sites_search_finds_pages_when_it_is_opened_from_the_disk(site):
    with start_browser() as browser:
        visit = Visit(browser)
        visit.page.goto((site / "docs" / "join.html").as_uri())
        visit.page.click('[data-bs-target="#mkdocs_search_modal"]')
        visit.page.wait_for_selector("#mkdocs-search-query:focus")
        visit.page.keyboard.type("resume sca")  # half a word
        visit.wait_text("#mkdocs-search-results h3", "Repeat, resume, scale")
        visit.page.click("#mkdocs-search-results h3 a")
        visit.wait_text("h1", "Compare methods")
        assert visit.page.url.endswith("/docs/compare.html#repeat-resume-scale")
        visit.page.goto((site / "index.html").as_uri() + "?q=%3Cb%3Exyzzy")  # nothing, and no markup of ours
        visit.wait_text("#mkdocs-search-results", "No results found")
        assert visit.errors == []
        assert visit.hosts <= {""}
