"""The listing in docs/architecture.md is the layout on disk, and a folder uses only what stands above it there."""

import ast
import importlib
import re
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "repshare"


def listed():
    """The folders and files at the top of src/repshare, in the order of the listing."""
    block = re.search(r"```\nsrc/repshare/\n(.*?)```", (ROOT / "docs/architecture.md").read_text(), re.DOTALL).group(1)
    return [line.split()[0].rstrip("/").removesuffix(".py") for line in block.splitlines()]


def on_disk():
    return [path.relative_to(SOURCE) for path in SOURCE.rglob("*.py")]


def layer(path):
    """What is ordered: a folder at the top, or a file there."""
    return path.parts[0].removesuffix(".py")


def imports(path):
    """The layers that a file imports from."""
    for node in ast.walk(ast.parse((SOURCE / path).read_text())):
        if isinstance(node, ast.ImportFrom) and node.module == "repshare":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("repshare."):
            yield node.module.split(".")[1]
        elif isinstance(node, ast.Import):
            yield from (alias.name.split(".")[1] for alias in node.names if alias.name.startswith("repshare."))


def test_the_listing_is_complete_and_names_nothing_that_is_not_there():
    assert sorted(listed()) == sorted({layer(path) for path in on_disk()} - {"__init__"})


def test_a_folder_uses_only_what_is_listed_above_it():
    order = {name: place for place, name in enumerate(listed())}
    upward = [
        f"{path} uses {used}"
        for path in on_disk()
        if path != Path("__init__.py")
        for used in imports(path)
        if order.get(used, 0) > order[layer(path)]  # a public name of the package itself is no layer
    ]
    assert upward == []


def test_secure_sums_are_used_through_their_one_interface():
    """A relay must be able to import it without `cryptography`, so that its names are looked up when first used."""
    inside = re.compile(r"repshare\.secure\.\w+|from repshare\.secure import (?:\w+, )*(?:masking|meetings|exchange)\b")
    beside = [path for path in on_disk() if path.parts[0] != "secure"]
    files = [
        *(SOURCE / path for path in beside),
        *(ROOT / "benchmarks").glob("*.py"),
        *(ROOT / "examples").glob("*.py"),
    ]
    assert [path.name for path in files if inside.search(path.read_text())] == []
    code = "import sys, repshare.secure; sys.exit('cryptography' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
    public = importlib.import_module("repshare.secure")
    assert all(hasattr(public, name) for name in public.__all__)


def test_tests_are_in_the_folders_of_what_they_test():
    folders = {path.parent for path in on_disk()}
    tests = [path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")]
    assert [path for path in tests if path.parent not in folders] == []


def test_what_is_read_first_knows_no_method():
    """Nor how a method trains otherwise: that is in the method's own file, or in a learner of its own."""
    source = (SOURCE / "network/learner.py").read_text()
    words = "FD SL FL RS CS CA DP epsilon external shares_logits across SpaceLearner"
    assert [word for word in words.split() if re.search(rf"\b{word}\b", source)] == []


BETWEEN = ["sharing.representations", "sharing.wire", "stores", "board", "relay.app", "relay.server"]


@pytest.mark.parametrize("name", BETWEEN)
def test_what_is_between_clients_needs_no_pytorch(name):
    code = f"import sys, repshare.{name}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def definitions(path, *kinds):
    """The classes and functions of a file, and the file itself."""
    return (node for node in ast.walk(ast.parse((SOURCE / path).read_text())) if isinstance(node, kinds))


def test_no_class_name_is_used_twice():
    homes = defaultdict(list)
    for path in on_disk():
        for made in definitions(path, ast.ClassDef):
            homes[made.name].append(path)
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert {name: sorted(map(str, paths)) for name, paths in twice.items()} == {}


def test_lines_of_an_options_description_are_sentences():
    """The help keeps line ends: one in mid-sentence would show."""
    for path in (SOURCE / "config.py", *(SOURCE / "cli").glob("*.py")):
        for made in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)):
            for field, after in pairwise(made.body):
                if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
                    lines = ast.literal_eval(after.value).splitlines()
                    assert all(line.rstrip().endswith((".", ":")) for line in lines), (path.name, ast.unparse(field))


def test_nothing_points_outside_the_project():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    outside = "../" + "shared"
    assert [file for file in tracked if outside in (ROOT / file).read_bytes().decode("utf-8", "ignore")] == []
