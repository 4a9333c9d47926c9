"""Folders of images: one folder for each class."""

from collections import Counter
from pathlib import Path

import numpy as np
import numpy.typing as npt

from repshare.errors import DataError
from repshare_lab.data.arrays import PIXELS, Half

ENDINGS = (".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
TESTED = 5  # one in so many images of each class is a test sample, without a folder of test images
SEED = 0  # of the order of the images, always the same


def read_folder(folder: Path) -> tuple[Half, Half]:
    """Return training and test images: those in `train/` and `test/`; else the test is a fifth of each class."""
    halves = [folder / name for name in ("train", "test")]
    if all(half.is_dir() for half in halves):
        files, tested = (_list(half) for half in halves)
        if set(files) != set(tested):
            raise DataError(f"{folder}: train and test differ in the classes {', '.join(set(files) ^ set(tested))}")
    else:
        files, tested = _list(folder), {}
        for name, own in files.items():
            if len(own) < 2:
                raise DataError(f"{folder / name} has one image: a class needs two, one of them for the test")
            own = [own[place] for place in np.random.RandomState(SEED).permutation(len(own))]
            last = max(1, len(own) // TESTED)
            files[name], tested[name] = own[last:], own[:last]
    order = np.random.RandomState(SEED).permutation(sum(map(len, files.values())))
    paths = [[path for own in half.values() for path in own] for half in (files, tested)]
    images = _read([*paths[0], *paths[1]])
    labels = [np.repeat(sorted(half), [len(half[name]) for name in sorted(half)]) for half in (files, tested)]
    names, first = tuple(sorted(files)), len(paths[0])
    note = (f"{len(images)} images of {images.shape[3]} × {images.shape[2]} pixels: {PIXELS}",)
    return Half(images[:first][order], labels[0][order], names, note), Half(images[first:], labels[1], names)


def _list(folder: Path) -> dict[str, list[Path]]:
    """Return the files of each class."""
    classes = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    if len(classes) < 2:
        raise DataError(f"{folder} has {len(classes)} sub-folders: there must be one for each class, two at least")
    files = {
        path.name: sorted(file for file in path.iterdir() if file.suffix.lower() in ENDINGS and file.name[0] != ".")
        for path in classes
    }
    for name, own in files.items():
        if not own:
            raise DataError(f"{folder / name} has no image ({', '.join(ENDINGS)}): fill it, or remove the folder")
    return files


def _read(paths: list[Path]) -> npt.NDArray[np.float32]:
    """Return images (n, channels, height, width) from 0 to 1: in colour if one of them is."""
    from PIL import Image, UnidentifiedImageError

    arrays = []
    for path in paths:
        try:
            with Image.open(path) as image:
                if image.mode in ("F", "I") or image.mode.startswith("I;"):
                    raise DataError(f"{path} has more than 8 bits a pixel: load it in a function, file.py:function")
                array = np.asarray(image.convert("L" if image.mode in ("1", "L") else "RGB"))
        except (OSError, UnidentifiedImageError, Image.DecompressionBombError) as error:
            raise DataError(f"{path} cannot be read as an image: {error}") from error
        arrays.append(array if array.ndim == 3 else array[:, :, np.newaxis])
    ((usual, _),) = Counter(array.shape[:2] for array in arrays).most_common(1)
    for path, array in zip(paths, arrays, strict=True):
        if array.shape[:2] != usual:
            told = f"{array.shape[1]} × {array.shape[0]} pixels, most images {usual[1]} × {usual[0]}"
            raise DataError(f"{path} has {told}: bring all to one size")
    channels = max(array.shape[2] for array in arrays)
    stacked = np.stack([np.broadcast_to(array, (*array.shape[:2], channels)) for array in arrays])
    return np.ascontiguousarray(stacked.transpose(0, 3, 1, 2)).astype(np.float32) / np.float32(255)
