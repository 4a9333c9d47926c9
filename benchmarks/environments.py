"""Environments for peers, made once and kept in the cache: what they need must not meet what repshare needs."""

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

TIMEOUT_SECONDS = 1200
TORCH = f"torch=={version('torch').split('+')[0]}"  # the same kernels for everyone
FLOWER, PFL = "1.42.0", "0.6.0"
STEPS = {
    "flower": [
        [TORCH],
        ["flwr[simulation]==1.41.0"],
        ["--no-deps", f"flwr=={FLOWER}"],
    ],  # pip pairs 1.41 with a Ray; 1.42 runs on it
    "pfl": [[TORCH], [f"pfl=={PFL}"]],
}


class NotInstalled(Exception):
    """An environment could not be made; the message ends in pip's last lines."""


def prepare(name: str) -> Path:
    """The Python of this peer's environment, which is made if it is not there."""
    folder = _cache() / name
    python, done = folder / "bin" / "python", folder / ".installed"
    if not (done.exists() and done.read_text() == repr(STEPS[name])):
        print(f"making an environment for {name} in the cache", flush=True)
        _run([sys.executable, "-m", "venv", "--clear", str(folder)], name)
        for packages in STEPS[name]:
            _run([str(python), "-m", "pip", "install", "--quiet", *packages], name)
        done.write_text(repr(STEPS[name]))
    return python


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "repshare" / "benchmarks"


def _run(command: list[str], name: str) -> None:
    try:
        outcome = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired as error:
        raise NotInstalled(f"{name}: pip took longer than {TIMEOUT_SECONDS} s") from error
    if outcome.returncode != 0:
        last = "\n".join(outcome.stderr.strip().splitlines()[-5:])
        raise NotInstalled(f"{name} could not be installed: {last}")
