"""Verified data sets kept on this machine: one file each, written whole or not at all."""

import os
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from repshare.errors import DataError
from repshare.files import write_atomically
from repshare_lab.data.contents import Arrays, verify


def root() -> Path:
    """Return the folder of all that is kept. A relative $XDG_CACHE_HOME is void by its specification."""
    told = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (told if told.is_absolute() else Path.home() / ".cache") / "repshare"


def location(name: str) -> Path:
    """Return the file of the data set."""
    return root() / f"{name}.safetensors"


def read(name: str) -> Arrays:
    """Return the kept arrays. A file that is not the data set to the byte is removed, and DataError raised."""
    path = location(name)
    try:
        tensors = load_file(path)
        arrays = Arrays(*(tensors[field] for field in Arrays._fields))
        verify(arrays, name)
    except FileNotFoundError as error:
        raise DataError("nothing kept yet") from error
    except OSError as error:
        raise DataError(f"{path.name}: {error}") from error
    except (SafetensorError, KeyError, ValueError, DataError) as error:
        path.unlink(missing_ok=True)
        raise DataError(f"{path.name} was damaged and has been removed ({error})") from error
    return arrays


def write(name: str, arrays: Arrays) -> None:
    """Keep the arrays. Readers and other writers see the old file or the whole new one, never a part."""
    path = location(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    content = save({field: np.ascontiguousarray(array) for field, array in arrays._asdict().items()})
    write_atomically(path, content)
