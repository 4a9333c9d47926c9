"""Whether bounds (pyproject.toml), pins (constraints.txt), hashes (deploy/requirements.txt) and what is installed fit.

This needs no network. `--service pip-audit` then asks a service of known holes about every pin. Exit codes: 0 all is
well, 1 something is not, 3 the service could not be asked about all of them.
"""

import argparse
import json
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
EXTRAS = ("relay", "redis")  # of repshare, that the container installs
APART = {"flower": "flower/constraints.txt"}  # packages that need an environment, and so pins, of their own
BESIDE = ("lab", "flower")  # packages of this repository that need repshare
CONTAINER = {"python_version": "3.12", "python_full_version": "3.12.0", "sys_platform": "linux", "os_name": "posix",
             "platform_system": "Linux", "platform_machine": "x86_64", "implementation_name": "cpython"}  # fmt: skip
NOT_AVAILABLE = 3

Pins = dict[str, Version]


def read_bounds(root: Path) -> dict[str, list[Requirement]]:
    """What repshare asks for: by extra or package beside it, "" for what all need, "build" for what builds it."""
    project = tomllib.loads((root / "pyproject.toml").read_text())
    asked = {"": project["project"]["dependencies"], "build": project["build-system"]["requires"]}
    asked |= project["project"]["optional-dependencies"]
    for name in BESIDE:
        beside = tomllib.loads((root / name / "pyproject.toml").read_text())["project"]
        asked |= {name: beside["dependencies"], **beside.get("optional-dependencies", {})}
    return {
        extra: [each for each in map(Requirement, texts) if not canonicalize_name(each.name).startswith("repshare")]
        for extra, texts in asked.items()
    }


def read_pins(text: str) -> Pins:
    """Names and versions of lines like numpy==2.4.6."""
    pins = re.findall(r"^([\w.-]+)==([^\s;\\]+)", text, re.MULTILINE)
    return {canonicalize_name(name): Version(version) for name, version in pins}


def find_faults(root: Path) -> Iterator[str]:
    """What does not fit, in a line each."""
    bounds, pins = read_bounds(root), read_pins((root / "constraints.txt").read_text())
    hashed = (root / "deploy/requirements.txt").read_text()
    together = [each for extra, asked in bounds.items() if extra not in ("build", *APART) for each in asked]
    yield from find_faults_of_pins("constraints.txt", pins, together)
    for extra, file in APART.items():
        beside = [each for one in ("", "learn", "lab", extra) for each in bounds[one]]
        yield from find_faults_of_pins(file, read_pins((root / file).read_text()), beside)
    for name, pin in pins.items():
        there = find_installed(name)
        if there is not None and there != pin:
            yield f"{name}: {there} is installed, constraints.txt has {pin}"
    yield from find_faults_of_hashes(hashed, bounds, pins)


def find_faults_of_pins(file: str, pins: Pins, asked: list[Requirement]) -> Iterator[str]:
    """What is asked for and not pinned, or pinned to a version that is not asked for."""
    for each in asked:
        pin = pins.get(canonicalize_name(each.name))
        if pin is None:
            yield f"{each.name}: asked for in pyproject.toml, but not in {file}: make lock"
        elif pin not in each.specifier:
            yield f"{each.name}: {file} has {pin}, pyproject.toml asks for {each.specifier}"


def find_faults_of_hashes(hashed: str, bounds: dict[str, list[Requirement]], pins: Pins) -> Iterator[str]:
    """What does not fit in the file that the container installs from."""
    listed = read_pins(hashed)
    built: dict[str, Requirement] = {canonicalize_name(each.name): each for each in bounds["build"]}
    needed = set(built) | find_needed([each for extra in ("", *EXTRAS) for each in bounds[extra]])
    for name in sorted(needed ^ set(listed)):
        yield f"{name}: {'not' if name in needed else 'without need'} in deploy/requirements.txt: make hashes"
    for name, pin in listed.items():
        if name in built and pin not in built[name].specifier:
            yield f"{name}: deploy/requirements.txt has {pin}, pyproject.toml asks for {built[name].specifier} to build"
        if name not in built and pin != pins.get(name):
            yield f"{name}: deploy/requirements.txt has {pin}, constraints.txt {pins.get(name)}: make hashes"
    for entry in re.split(r"\n(?=[\w-])", hashed):
        if not entry.startswith("#") and not re.search(r"--hash=sha256:[0-9a-f]{64}\b", entry):
            yield f"{entry.split()[0]}: no hash in deploy/requirements.txt"
    if re.search(r"://|^\s*-(?!-hash)", hashed, re.MULTILINE):
        yield "deploy/requirements.txt: names a place or an option; it must have names, versions and hashes alone"


def find_needed(asked: list[Requirement]) -> set[str]:
    """What these bring along in the container, as far as the packages that are installed here know."""
    needed = set[str]()
    while asked:
        each = asked.pop()
        name = canonicalize_name(each.name)
        if name in needed or not (each.marker is None or each.marker.evaluate({**CONTAINER, "extra": ""})):
            continue
        needed.add(name)
        for text in distribution(name).requires or ():
            further = Requirement(text)
            extras = each.extras or {""}
            if further.marker is None or any(further.marker.evaluate({**CONTAINER, "extra": one}) for one in extras):
                asked.append(Requirement(text.partition(";")[0]))
    return needed


def find_installed(name: str) -> Version | None:
    """The version that is installed here, without where it was built for (+cpu)."""
    try:
        return Version(Version(distribution(name).version).public)
    except PackageNotFoundError:
        return None


def ask_service(tool: str, constraints: list[Path]) -> int:
    """Ask about every pin, and say what came of it."""
    files = [word for path in constraints for word in ("-r", str(path))]
    command = [
        tool,
        "--format",
        "json",
        "--progress-spinner",
        "off",
        "--no-deps",
        "--disable-pip",
        *files,
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
        answer: list[dict[str, Any]] = json.loads(done.stdout)["dependencies"]
    except (OSError, subprocess.TimeoutExpired) as error:
        return say_not_available(f"{tool} could not be run: {type(error).__name__}")
    except (ValueError, KeyError, TypeError):
        return say_not_available((done.stderr.strip().splitlines() or ["no answer"])[-1])
    skipped = [each["name"] for each in answer if "skip_reason" in each]
    holes = [(each, hole) for each in answer for hole in each.get("vulns", ())]
    for each, hole in holes:
        fixed = ", ".join(hole.get("fix_versions", ())) or "no version yet"
        print(f"{each['name']} {each['version']}: {hole['id']}, fixed in {fixed}")
    if holes:
        return 1
    if skipped or not answer:
        return say_not_available(f"no data about {len(skipped)} of {len(answer)} packages: {', '.join(skipped)[:300]}")
    print(f"none of {len(answer)} packages has a hole that the service knows")
    return 0


def say_not_available(reason: str) -> int:
    """Nobody may take silence for a good answer."""
    print(f"NOT AUDITED: the data about known holes is not available here ({reason})", file=sys.stderr)
    return NOT_AVAILABLE


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--root", type=Path, default=ROOT)
    parser.add_argument("--service", metavar="PIP-AUDIT", help="ask with this program, too")
    options = parser.parse_args()
    faults = list(find_faults(options.root))
    for fault in faults:
        print(fault, file=sys.stderr)
    if faults:
        return 1
    print("bounds, pins, hashes and what is installed fit together")
    pinned = [options.root / file for file in ("constraints.txt", *APART.values())]
    return ask_service(options.service, pinned) if options.service else 0


if __name__ == "__main__":
    sys.exit(main())
