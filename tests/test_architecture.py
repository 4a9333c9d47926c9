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
LABORATORY, FLOWER = ROOT / "lab" / "repshare_lab", ROOT / "flower" / "repshare_flower"
PACKAGES = [SOURCE, LABORATORY, FLOWER]
each_package = pytest.mark.parametrize("source", PACKAGES, ids=lambda source: source.name)


def listed(source):
    """The folders and files at the top of a package, in the order of the listing."""
    block = rf"```\n{source.relative_to(ROOT)}/\n(.*?)```"
    found = re.search(block, (ROOT / "docs/architecture.md").read_text(), re.DOTALL).group(1)
    return [line.split()[0].rstrip("/").removesuffix(".py") for line in found.splitlines()]


def on_disk(source=SOURCE):
    return [path.relative_to(source) for path in source.rglob("*.py")]


def layer(path):
    """What is ordered: a folder at the top, or a file there."""
    return path.parts[0].removesuffix(".py")


def imported(file):
    """The modules that a file imports from, with the names."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def layers_of(source, path):
    """The layers of its own package that a file imports from."""
    for name in imported(source / path):
        package, _, rest = name.partition(".")
        if package == source.name and rest:
            yield rest.partition(".")[0]


@each_package
def test_the_listing_is_complete_and_names_nothing_that_is_not_there(source):
    assert sorted(listed(source)) == sorted({layer(path) for path in on_disk(source)} - {"__init__"})


@each_package
def test_a_folder_uses_only_what_is_listed_above_it(source):
    order = {name: place for place, name in enumerate(listed(source))}
    upward = [
        f"{path} uses {used}"
        for path in on_disk(source)
        if path != Path("__init__.py")
        for used in layers_of(source, path)
        if order.get(used, 0) > order[layer(path)]  # a public name of the package itself is no layer
    ]
    assert upward == []


@pytest.mark.parametrize("place", range(len(PACKAGES)), ids=[source.name for source in PACKAGES])
def test_a_package_imports_none_that_comes_after_it(place):
    source, after = PACKAGES[place], {later.name for later in PACKAGES[place + 1 :]}
    wrong = [(path, name) for path in on_disk(source) for name in imported(source / path)
             if name.partition(".")[0] in after]  # fmt: skip
    assert wrong == []


def test_secure_sums_are_used_through_their_one_interface():
    """A relay must be able to import it without `cryptography`, so that its names are looked up when first used."""
    inside = re.compile(r"repshare\.secure\.\w+|from repshare\.secure import (?:\w+, )*(?:masking|meetings|group)\b")
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
    for source, tests in ((SOURCE, ROOT / "tests"), *((each, each.parent / "tests") for each in PACKAGES[1:])):
        folders = {path.parent for path in on_disk(source)}
        found = [path.relative_to(tests) for path in tests.rglob("test_*.py")]
        assert [path for path in found if path.parent not in folders] == []


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


def definitions(file, *kinds):
    """The classes and functions of a file, and the file itself."""
    return (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, kinds))


def test_no_class_name_is_used_twice():
    homes = defaultdict(list)
    for source in PACKAGES:
        for path in on_disk(source):
            for made in definitions(source / path, ast.ClassDef):
                homes[made.name].append(path)
    twice = {name: paths for name, paths in homes.items() if len(paths) > 1}
    assert {name: sorted(map(str, paths)) for name, paths in twice.items()} == {}


def test_lines_of_an_options_description_are_sentences():
    """The help keeps line ends: one in mid-sentence would show."""
    several = [file for source in PACKAGES for pattern in ("config.py", "cli/*.py") for file in source.glob(pattern)]
    for path in several:
        for made in (node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.ClassDef)):
            for field, after in pairwise(made.body):
                if isinstance(field, ast.AnnAssign) and isinstance(after, ast.Expr):
                    lines = ast.literal_eval(after.value).splitlines()
                    assert all(line.rstrip().endswith((".", ":")) for line in lines), (path.name, ast.unparse(field))


def test_nothing_points_outside_the_project():
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split()
    outside = "../" + "shared"
    assert [file for file in tracked if outside in (ROOT / file).read_bytes().decode("utf-8", "ignore")] == []
