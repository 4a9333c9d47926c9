"""Feature vectors kept on disk for later processes: a file for each batch of inputs, the least recently used removed.

Only for data that anyone may have: a simulation of a built-in data set. A party's vectors stay in its memory, unless
its own program asks for such a folder.
"""

import hashlib
import os
import platform
import shutil
import warnings
from contextlib import suppress
from functools import cache as remembered
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from repshare.data import cache
from repshare.errors import ConfigError
from repshare.files import write_atomically

VARIABLE = "REPSHARE_FEATURES_GB"  # of disk that may be used. 0: none
USUAL_GB = 6.0
LEAST_BYTES = 1 << 16  # smaller batches are computed about as fast as they are read
CHECKED = 32  # times within the limit: how often files are counted
ENDING = ".features"


class Embedded(NamedTuple):
    """A batch of vectors, and the seconds that it took to make them."""

    vectors: Tensor  # (n, d)
    seconds: float


class Disk:
    """A folder of vectors. Processes may share it: a file is there whole or not at all, and a damaged one is removed.

    Bits may depend on the machine, on PyTorch, and on the code of the spaces. So all are part of a file's name.
    """

    def __init__(self, folder: Path, most_bytes: int) -> None:
        """`most_bytes`: the files' size together, up to a part of it that others write at the same time."""
        self.folder, self.most_bytes = folder, most_bytes
        self._written = most_bytes  # bytes since files were counted: count them at the first

    def read(self, key: str) -> Embedded | None:
        """Return the vectors of this key, if they are there."""
        path = self._locate(key)
        try:
            with safe_open(path, framework="pt") as file:
                vectors, told = file.get_tensor("vectors"), file.metadata()
            if told["digest"] != _digest(vectors):
                raise ValueError("its checksum is another")
            with suppress(OSError):  # another process has just removed it
                os.utime(path)
            return Embedded(vectors, float(told["seconds"]))
        except OSError:
            return None
        except (SafetensorError, KeyError, ValueError, TypeError):
            path.unlink(missing_ok=True)
            return None

    def write(self, key: str, embedded: Embedded) -> None:
        """Keep the vectors of this key, and remove those that were used least recently where there is no room."""
        if not LEAST_BYTES <= embedded.vectors.nbytes <= self.most_bytes:
            return
        vectors = embedded.vectors.cpu().contiguous()
        told = {"digest": _digest(vectors), "seconds": repr(embedded.seconds)}
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._written += vectors.nbytes
            if self._written * CHECKED > self.most_bytes:
                self._make_room(vectors.nbytes)
            write_atomically(self._locate(key), save({"vectors": vectors}, told), private=True)
        except OSError as error:  # a full or read-only disk: the vectors themselves are good
            self.most_bytes = 0  # say so once
            warnings.warn(f"features will be computed again next time: {error}", stacklevel=2)

    def _locate(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(f'{key} {_machine()}'.encode()).hexdigest()[:32]}{ENDING}"

    def _make_room(self, wanted: int) -> None:
        cache.remove_orphans(self.folder)
        files = []
        for path in self.folder.glob(f"*{ENDING}"):
            with suppress(FileNotFoundError):  # another process was first
                found = path.stat()
                files.append((found.st_mtime_ns, found.st_size, path))
        held = sum(size for _, size, _ in files)
        most = min(self.most_bytes, (held + shutil.disk_usage(self.folder).free) // 2)
        total = held + wanted + self.most_bytes // CHECKED
        for _, size, path in sorted(files):
            if total <= most:
                break
            path.unlink(missing_ok=True)
            total -= size
        self._written = wanted


def usual_disk() -> Disk | None:
    """Return the folder in repshare's cache; None if the environment allows it no room."""
    given = os.environ.get(VARIABLE, str(USUAL_GB))
    try:
        room = float(given)
    except ValueError:
        room = -1.0
    if not 0 <= room < float("inf"):
        raise ConfigError(f"{VARIABLE} is {given!r}: it must be a number of gigabytes, or 0 for no files")
    return Disk(cache.root() / "features", int(room * 2**30)) if room else None


def _digest(vectors: Tensor) -> str:
    return hashlib.blake2b(vectors.numpy().data, digest_size=16).hexdigest()


def _machine() -> str:
    """Return what the bits of a vector depend on, beside the space and the inputs."""
    capability = torch.backends.cpu.get_cpu_capability()
    system = f"{platform.system()} {platform.machine()} {capability} {torch.get_num_threads()}"
    return f"{_code()} {torch.__version__} {system}"


@remembered
def _code() -> str:
    digest = hashlib.sha256()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()
