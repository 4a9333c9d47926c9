"""Build the three wheels and the source archive, look into them, and try each extra alone in its own environment.

An environment is new; into it wheels are installed by pip. What they ask for is linked from where this runs,
which takes seconds; `--download` has pip fetch it instead, as a user does, which takes minutes with PyTorch.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import NamedTuple

import httpx2
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
PATIENCE_SECONDS = 120.0
AT_ONCE = 2
APART = {"flower": (ROOT / "build" / "flower", ROOT / "flower" / "constraints.txt")}  # environment, pins
SMALL = "--dataset digits --clients 2 --rounds 1 --samples 40 --methods IL RS --workers 0"
TASK = "relay tasks create digits --classes 10 --dimension 84"
IN_WHEELS = {  # what is in each, by the folder that it is built in
    "": ("repshare/py.typed", "repshare/relay/page/static/page.html"),
    "lab": ("repshare_lab/py.typed", "repshare_lab/experiments/report.html"),
    "flower": ("repshare_flower/py.typed",),
}
IN_THE_ARCHIVE = ("Makefile", "constraints.txt", "mkdocs.yml", "docs/architecture.md", "conftest.py", "lab/tests",
                  "flower/tests", "tests/support/warm.py", "examples/party.py", "deploy/package.py")  # fmt: skip


class Extra(NamedTuple):
    """An extra to try alone: commands that must work with it, and commands that must name the extra they lack."""

    works: tuple[str, ...] = ()
    lacks: dict[str, str] = {}
    imports: str = "repshare"
    not_there: str = ""
    packages: tuple[str, ...] = ()  # beside repshare, the last one with the extra


EXTRAS = {
    "": Extra(
        ("--version", "--help", "relay serve --help", TASK),
        {f"compare {SMALL}": "lab", "relay serve": "relay", "keys a.key": "peer"},
        not_there="torch",
    ),
    "lab": Extra(
        ("data list", f"compare {SMALL} --name x", "report runs/x"),
        {"privacy audit": "privacy", "relay serve": "relay"},
        "repshare_lab",
        packages=("lab",),
    ),
    "relay": Extra((TASK, "relay check"), {f"compare {SMALL}": "lab", "relay check --db redis://x": "redis"},
                   "repshare.relay.server", "torch"),
    "learn": Extra(("--version",), {f"compare {SMALL}": "lab", "relay serve": "relay"}, "repshare.client"),
    "sklearn": Extra(("--version",), {f"compare {SMALL}": "lab"}, "repshare.party.estimator", "torch"),
    "peer": Extra(("keys a.key", "keys b.key"), {f"compare {SMALL}": "lab"}, "zenoh", "torch"),
    "privacy": Extra((), {"relay serve": "relay"}, "repshare.privacy.accounting"),
    "redis": Extra(("--version",), {"relay serve": "relay"}, "repshare.stores.redis", "torch"),
    "backbone": Extra(("--version",), {f"compare {SMALL}": "lab"}, "efficientnet_lite_pytorch, repshare.space"),
    "onnx": Extra(("--version",), {f"compare {SMALL}": "lab"}, "onnx, onnxscript, onnxruntime", "torch"),
    "flower": Extra(("--version",), {"relay serve": "relay"}, "repshare_flower, flwr.app", packages=("lab", "flower")),
}  # fmt: skip


def main() -> None:
    """Build, look, try; end with 1 at the first thing that is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("extras", nargs="*", help="those to try; base for none (default: base and all)")
    parser.add_argument("--download", action="store_true", help="have pip fetch what the extras need")
    parser.add_argument("--folder", type=Path, default=ROOT / "build" / "package")
    given = parser.parse_args()
    wanted = ["" if name == "base" else name for name in given.extras] or list(EXTRAS)
    shutil.rmtree(given.folder, ignore_errors=True)
    begun = time.monotonic()
    wheels = build(given.folder)
    names = ", ".join(wheel.name for wheel in wheels.values())
    print(f"{names} and the source archive: {time.monotonic() - begun:.0f} s", flush=True)

    def try_one(name: str) -> None:
        begun, home = time.monotonic(), given.folder / (name or "base")
        python = make_environment(home, wheels, name, download=given.download)
        try_alone(python, EXTRAS[name], home)
        print(f"{name or 'base'} alone: {time.monotonic() - begun:.0f} s", flush=True)
        shutil.rmtree(home)

    with ThreadPoolExecutor(AT_ONCE) as threads:
        list(threads.map(try_one, wanted))


def build(folder: Path) -> dict[str, Path]:
    """Return the wheels by folder; repshare's is made from the source archive. All have what they should."""
    source = folder / "source"
    tracked = run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], ROOT).splitlines()
    for name in tracked:  # a copy: building leaves files behind
        if (ROOT / name).is_file():
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, source / name)
    run([sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)], folder)
    (archive,) = folder.glob("*.tar.gz")
    with tempfile.TemporaryDirectory() as unpacked:  # what is in the archive is enough for the other two
        with tarfile.open(archive) as tar:
            tar.extractall(unpacked, filter="data")
        (top,) = Path(unpacked).iterdir()
        for name in filter(None, IN_WHEELS):
            run(
                [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(top / name)],
                folder,
            )
    with tarfile.open(archive) as tar:
        held = {name.partition("/")[2] for name in tar.getnames()}
    check(not (left := set(IN_THE_ARCHIVE) - held), f"{archive.name} lacks {left}")
    wheels = {}
    for place, contents in IN_WHEELS.items():
        package = f"repshare_{place}" if place else "repshare"
        (wheels[place],) = folder.glob(f"{package}-*.whl")
        names = zipfile.ZipFile(wheels[place]).namelist()
        for wanted in contents:
            check(any(name.startswith(wanted) for name in names), f"{wheels[place].name} lacks {wanted}")
        foreign = [name for name in names if not name.startswith((f"{package}/", f"{package}-"))]
        check(not foreign, f"{wheels[place].name} has {foreign[:3]}")
    return wheels


def make_environment(home: Path, wheels: dict[str, Path], extra: str, *, download: bool) -> str:
    """Return the Python of a new environment with the wheels of an extra and what it brings."""
    chosen = [wheels[name] for name in ("", *EXTRAS[extra].packages)]
    whole = extra in wheels  # a package, and no extra of one
    venv.create(home, with_pip=False, symlinks=True)
    python = str(home / "bin" / "python")
    install = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--disable-pip-version-check"]
    if download:
        *before, asking = map(str, chosen)
        _, pins = APART.get(extra, (None, ROOT / "constraints.txt"))
        run([*install, "-c", str(pins), *before, f"{asking}[{extra}]" if extra and not whole else asking], home)
    else:
        run([*install, "--no-deps", "--no-index", *map(str, chosen)], home)
        (packages,) = (home / "lib").glob("python*/site-packages")
        link_needed(packages, extra)
    return python


def link_needed(packages: Path, extra: str) -> None:
    """Link all that the wheels in this folder ask for, with one extra, from where this runs, or the extra's own."""
    ours: dict[str, Distribution] = {canonicalize_name(one.name): one for one in distributions(path=[str(packages)])}
    apart = [str(place) for place in (APART[extra][0] / "lib").glob("python*/site-packages")] if extra in APART else []
    there = [*distributions(path=apart or sys.path)]
    installed: dict[str, Distribution] = {
        canonicalize_name(one.name): one for one in reversed(there)
    }  # the first counts
    installed |= ours
    needed: dict[str, Distribution] = {}
    for wheel in ours.values():
        collect(wheel, {extra}, installed, needed, set())
    needed = {name: one for name, one in needed.items() if name not in ours}
    roots = Counter(root for one in installed.values() for root in {path.parts[0] for path in one.files or ()})
    for one in needed.values():
        for path in {Path(file) if roots[file.parts[0]] > 1 else Path(file.parts[0]) for file in one.files or ()}:
            if ".." not in path.parts and not (link := packages / path).exists():
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(str(one.locate_file(str(path)))))


def collect(
    asking: Distribution,
    extras: set[str],
    installed: dict[str, Distribution],
    found: dict[str, Distribution],
    seen: set[tuple[str, str]],
) -> None:
    """Add what a distribution asks for, and what that asks for, as pip would."""
    for each in map(Requirement, asking.requires or ()):
        if each.marker is not None and not any(each.marker.evaluate({"extra": extra}) for extra in extras or {""}):
            continue
        name = canonicalize_name(each.name)
        check(name in installed, f"{name} is not installed: make package sets up what it needs")
        found[name] = installed[name]
        if new := {(name, extra) for extra in {"", *each.extras}} - seen:
            seen |= new
            collect(found[name], {extra for _, extra in new}, installed, found, seen)


def try_alone(python: str, extra: Extra, home: Path) -> None:
    """Run an extra's commands as a user would, in a folder of its own."""
    place = home / "work"
    place.mkdir()
    run([python, "-c", f"import {extra.imports}"], place)
    if extra.not_there:
        absent = f"from importlib.util import find_spec; assert find_spec({extra.not_there!r}) is None"
        run([python, "-c", absent], place)
    repshare = str(Path(python).with_name("repshare"))
    for command in extra.works:
        run([repshare, *command.split()], place)
    for command, named in extra.lacks.items():
        said = run([repshare, *command.split()], place, expected=2)
        check(len(said.splitlines()) == 1 and named in said, f"repshare {command}: {said}")
    if "relay.server" in extra.imports:
        serve(repshare, place)


def serve(repshare: str, place: Path) -> None:
    """Start a relay, ask it whether it is well, and stop it."""
    command, silent = [repshare, "relay", "serve", "--port", "0"], subprocess.DEVNULL
    with subprocess.Popen(command, cwd=place, stdout=subprocess.PIPE, stderr=silent, text=True) as relay:
        try:
            listening = relay.stdout.readline() if relay.stdout else ""
            check(" at http://" in listening, f"the relay says {listening!r}")
            url = listening.split(" at ")[1].split()[0]
            check(httpx2.get(f"{url}/healthz").status_code == 200, f"{url}/healthz does not answer")
        finally:
            relay.terminate()
        check(relay.wait(PATIENCE_SECONDS) == 0, f"the relay ended with {relay.returncode}")


def run(command: list[str], place: Path, expected: int = 0) -> str:
    """Return what a command printed."""
    plain = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=place, env=plain, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    check(done.returncode == expected, f"{' '.join(command)} ended with {done.returncode}: {said}")
    return said


def check(is_so: bool, otherwise: str) -> None:
    """End with a message unless it is so."""
    if not is_so:
        sys.exit(f"package: {otherwise}")


if __name__ == "__main__":
    main()
