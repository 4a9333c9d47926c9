"""The layout in docs/architecture.md is the layout on disk, and a part uses only parts that stand above it there."""

import ast
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "repshare"


def listed():
    """Module names in the order of the listing; a package itself after its files."""
    block = re.search(r"```\nsrc/repshare/\n(.*?)```", (ROOT / "docs/architecture.md").read_text(), re.DOTALL).group(1)
    modules, package = [], None
    for line in [*block.splitlines(), "    end"]:
        depth, name = (len(line) - len(line.lstrip())) // 4, line.split()[0]
        if package and depth == 1:
            modules.append(f"repshare.{package}")
            package = None
        if name.endswith("/"):
            package = name.rstrip("/")
        elif name != "end":
            modules.append(".".join(["repshare", *([package] if depth == 2 else []), name.removesuffix(".py")]))
    return modules


def on_disk():
    for path in SOURCE.rglob("*.py"):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        yield ".".join(["repshare", *(part for part in parts if part != "__init__")]), path


def imports(path):
    """The modules of ours that a file imports, each by its most exact name."""
    known = dict(on_disk())
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "repshare":
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                yield full if full in known else node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "repshare")


def test_the_listing_is_complete_and_names_nothing_that_is_not_there():
    assert sorted(listed()) == sorted(name for name, _ in on_disk() if name != "repshare")


def test_the_tree_is_in_the_architecture_alone():
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    assert [page.name for page in pages if "```\nsrc/repshare/\n" in page.read_text()] == ["architecture.md"]


def test_every_part_uses_only_parts_listed_before_it():
    order = {name: place for place, name in enumerate(listed())}
    upward = [
        f"{name} uses {used}"
        for name, path in on_disk()
        if name != "repshare"
        for used in imports(path)
        if used != "repshare" and order[used] >= order[name]
    ]
    assert upward == []


@pytest.mark.parametrize("name", ["representations", "wire", "sums", "stores", "board", "relay.app", "relay.server"])
def test_what_is_between_clients_needs_no_pytorch(name):
    code = f"import sys, repshare.{name}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_files_and_functions_stay_small():
    for name, path in on_disk():
        assert len(path.read_text().splitlines()) <= 350, name


def test_lines_of_an_options_description_are_sentences():
    """The help keeps line ends: one in mid-sentence would show."""
    for path in (SOURCE / "config.py", *(SOURCE / "commands").glob("*.py")):
        for made in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)):
            for field, after in pairwise(made.body):
                if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
                    lines = ast.literal_eval(after.value).splitlines()
                    assert all(line.rstrip().endswith((".", ":")) for line in lines), (path.name, ast.unparse(field))


def test_nothing_points_outside_the_project():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    outside = "../" + "shared"
    assert [file for file in tracked if outside in (ROOT / file).read_bytes().decode("utf-8", "ignore")] == []
