"""The product's wheel alone: in new environments that hold it, and of other packages only what its extras ask for.

What they ask for is linked from where this runs, as `make package` does: nothing is downloaded.
"""

import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from support.processes import eventually

ROOT = Path(__file__).parent.parent
PACKAGE = runpy.run_path(str(ROOT / "deploy/package.py"))
PARTY = """
import numpy as np
from repshare import LeNet5, Party, Policy

def hold(name):
    held = np.load(f"{name}.npz")
    policy = Policy(minimum_count=2)
    return Party(LeNet5(), (held["x"], held["y"]), test=(held["test_x"], held["test_y"]), policy=policy)

def alice():
    return hold("alice")

def bob():
    return hold("bob")
"""
SPACE = ["--classes", "10", "--input-shape", "1", "8", "8", "--input-range", "-1", "1", "--space", "patches"]
ABSENT = "from importlib.util import find_spec; print([name for name in {names!r} if find_spec(name)])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wheel")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("*.egg-info", "__pycache__"))
    command = ["-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(folder)]
    subprocess.run([sys.executable, *command], check=True, capture_output=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def environments(wheel, tmp_path_factory):
    """The commands of a relay's environment and of a party's, and what they lack."""
    made = {}
    for extra, absent in {"relay": ["torch"], "learn": ["starlette"]}.items():
        home = tmp_path_factory.mktemp(extra)
        python = PACKAGE["make_environment"](home, {"": wheel}, extra, download=False)
        names = [*absent, "repshare_lab", "repshare_flower", "sklearn", "matplotlib"]
        found = subprocess.run([python, "-c", ABSENT.format(names=names)], check=True, capture_output=True, text=True)
        assert found.stdout == "[]\n"
        made[extra] = Path(python).with_name("repshare")
    return made


def carry_out(*command, cwd):
    done = subprocess.run(list(map(str, command)), cwd=cwd, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(("method", "agreed"), [("RS", ["--classes", "10", "--dimension", "84"]), ("CS", SPACE)])
def test_two_parties_and_a_relay_need_the_product_alone(environments, digits, tmp_path, method, agreed):
    relay, party = environments["relay"], environments["learn"]
    (images, labels), (test_images, test_labels) = digits
    for name, classes in {"alice": range(6), "bob": range(4, 10)}.items():
        rows = np.isin(labels.numpy(), classes).nonzero()[0][:200]
        mine = {"x": images.numpy()[rows], "y": labels.numpy()[rows]}
        np.savez(tmp_path / f"{name}.npz", **mine, test_x=test_images.numpy(), test_y=test_labels.numpy())
    (tmp_path / "party.py").write_text(PARTY)
    carry_out(relay, "relay", "tasks", "create", "digits", *agreed, cwd=tmp_path)
    for name in ("alice", "bob"):
        token = carry_out(relay, "relay", "invite", name, "--task", "digits", cwd=tmp_path)
        (tmp_path / f"{name}.token").write_text(token.split()[0])
    with (tmp_path / "relay.out").open("w") as out:
        serving = subprocess.Popen([relay, "relay", "serve", "--port", "0"], cwd=tmp_path, stdout=out, stderr=out)
    parties = []
    try:
        said = eventually(lambda: (tmp_path / "relay.out").read_text().partition(" at ")[2], "a relay that serves")
        for name in ("alice", "bob"):
            words = ["join", said.split()[0], "--party", f"party.py:{name}", "--token-file", f"{name}.token"]
            command = [
                party,
                *words,
                "--state",
                f"state-{name}",
                "--rounds",
                "3",
                "--threads",
                "1",
                "--accept-exposure",
            ]
            with (tmp_path / f"{name}.out").open("w") as out:
                parties.append(subprocess.Popen(command, cwd=tmp_path, stdout=out, stderr=out))
        for name, each in zip(("alice", "bob"), parties, strict=True):
            shown = (tmp_path / f"{name}.out").read_text
            assert each.wait(240) == 0, shown()
            assert "after 3 rounds" in shown()
            assert "received" in shown()
            assert "trouble" not in shown()
    finally:
        for each in (*parties, serving):
            each.kill()
            each.wait()
