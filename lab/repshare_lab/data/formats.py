"""The containers data sets come in, each read into the same four arrays.

A reader takes a folder and returns `Arrays`, or raises DataError with what is wrong with which file.
"""

import gzip
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

from repshare.errors import DataError
from repshare_lab.data.contents import Arrays

Reader = Callable[[Path], Arrays]
Batch = tuple[npt.NDArray[np.uint8], npt.NDArray[np.int64]]  # (n, channels, height, width), (n,)

IDX_FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
CIFAR_BATCHES = (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch")
CIFAR_SHAPE = (3, 32, 32)


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever a damaged file provokes into a DataError that names the file."""
    try:
        yield
    except (OSError, EOFError, ValueError, KeyError, TypeError, zlib.error, tarfile.TarError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{path.name}: {reason or type(error).__name__}") from error


def read_idx(folder: Path) -> Arrays:
    """Return the four IDX files of MNIST and Fashion-MNIST, plain or gzipped."""
    train_images, train_labels, test_images, test_labels = (_idx(folder / name) for name in IDX_FILES)
    return Arrays(
        train_images[:, np.newaxis],  # (n, 28, 28) -> (n, 1, 28, 28)
        train_labels.astype(np.int64),
        test_images[:, np.newaxis],
        test_labels.astype(np.int64),
    )


def _idx(path: Path) -> npt.NDArray[np.uint8]:
    zipped = path.with_name(path.name + ".gz")
    with _reading(path):
        content = path.read_bytes() if path.exists() else gzip.decompress(zipped.read_bytes())
        dimensions = 3 if "idx3" in path.name else 1
        if content[:4] != bytes((0, 0, 8, dimensions)):  # 8: unsigned bytes
            raise ValueError(f"not an IDX file of unsigned bytes in {dimensions} dimensions")
        shape = np.frombuffer(content, ">u4", dimensions, offset=4).tolist()
        values = np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions)
        return values.reshape(shape).copy()


def read_cifar_binary(folder: Path) -> Arrays:
    """Read CIFAR-10's binary version: each record is one label byte and 3,072 pixel bytes."""

    def batch(path: Path) -> Batch:
        records = np.fromfile(path, np.uint8).reshape(-1, 1 + 3072)
        return records[:, 1:].reshape(-1, *CIFAR_SHAPE), records[:, 0].astype(np.int64)

    return _cifar([folder / f"{name}.bin" for name in CIFAR_BATCHES], batch)


def read_cifar_pngs(folder: Path) -> Arrays:
    """Read CIFAR-10 as PNGs of one image a row, with labels as JSON next to them (their names are spelled so)."""
    from PIL import Image

    labels = {}
    for path in (folder / "train_lables.json", folder / "test_lables.json"):
        with _reading(path):
            labels[path.name] = np.asarray(json.loads(path.read_bytes()), np.int64)

    def batch(path: Path) -> Batch:
        with Image.open(path) as image:
            pixels = np.asarray(image.convert("RGB"))  # (n, 1024, 3)
        kept = labels["test_lables.json" if path.stem == "test_batch" else "train_lables.json"]
        start = 0 if path.stem == "test_batch" else 10_000 * (int(path.stem[-1]) - 1)
        images = pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
        return images, kept[start : start + len(images)]

    return _cifar([folder / f"{name}.png" for name in CIFAR_BATCHES], batch)


def _cifar(paths: list[Path], batch: Callable[[Path], Batch]) -> Arrays:
    batches = []
    for path in paths:
        with _reading(path):
            batches.append(batch(path))
    *train, (test_images, test_labels) = batches
    return Arrays(
        np.concatenate([images for images, _ in train]),
        np.concatenate([labels for _, labels in train]),
        np.ascontiguousarray(test_images),
        test_labels,
    )


def unpack(archive: Path, into: Path) -> None:
    """Extract a tar archive, refusing members that would leave the folder."""
    with _reading(archive), tarfile.open(archive) as tar:
        tar.extractall(into, filter="data")
