"""The contents of the built-in data sets, to the byte, whatever container they came in."""

import hashlib
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from repshare.errors import DataError


class Arrays(NamedTuple):
    """The arrays that every source yields, in one form, so that one digest fits all of them."""

    train_images: npt.NDArray[np.uint8]  # (n, channels, height, width)
    train_labels: npt.NDArray[np.int64]  # (n,)
    test_images: npt.NDArray[np.uint8]  # (m, channels, height, width)
    test_labels: npt.NDArray[np.int64]  # (m,)


class Content(NamedTuple):
    """A data set as published."""

    shape: tuple[int, int, int]  # channels, height, width
    train_histogram: tuple[int, ...]  # samples of each class
    test_histogram: tuple[int, ...]
    digests: tuple[str, str, str, str]  # SHA-256 of the bytes of each array, in the order of `Arrays`

    @property
    def classes(self) -> int:
        """The number of labels."""
        return len(self.train_histogram)


DATASETS = {
    "mnist": Content(
        (1, 28, 28),
        (5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949),
        (980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009),
        (
            "741c988805d008ac6e4c904b69001ba184c24b2c540a4ef403f4c71b676cf757",
            "e474323ac02fc156161b0bbb1f8c9cfeb327a74bcd9f9680a8385269a24f566c",
            "6d87418db22cc8025d05968bec9bd5c3932904b23485740db143a061a2c9d161",
            "2fd8de6bdb8d11780b4b96dc57847bcfe6953f7c32aa48bfcd8237c3b7847243",
        ),
    ),
    "fashion_mnist": Content(
        (1, 28, 28),
        (6000,) * 10,
        (1000,) * 10,
        (
            "2e487a6c89124f78f2d7521542223cafe96f7123c3ca13d447772ac6ecbb3012",
            "e3245b63f7c40d1c8b652835f19744d970c1613b40ddac6bcfc87b9c46e16a0b",
            "c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a",
            "d51d859896c55775b9e9e219b77ff03bcec1b6ac322f313544dc3f9e7bc94fae",
        ),
    ),
    "cifar10": Content(
        (3, 32, 32),
        (5000,) * 10,
        (1000,) * 10,
        (
            "9d5c2eddadb0deff02c14c350c0385aab7b1d5ff1edfeb4997c8dc8644960111",
            "f5cfe00b0f00968c0cc5ff3b1d2de51b10e33efa277c2986f4e0fa63e58c9f4f",
            "177777c33ba79825320efa646ad04a94bdc3c80e4ebe3bd21724f8cdfd4b9d56",
            "cbb7365de8ed11f05cc4c3a1e7f78144127c5e851efd83762fb18202461230bb",
        ),
    ),
    "digits": Content(
        (1, 8, 8),
        (119, 121, 117, 121, 120, 123, 120, 118, 119, 122),
        (59, 61, 60, 62, 61, 59, 61, 61, 55, 58),
        (
            "a7b8b8bc577ab3d83afaeae466ff8db4abb93f60d8c3b56ac6175b59bcae88d7",
            "567ef87644a71a9ea7f3b4f8dbe985f4004d1ba3b90b8a8f0656511f8a3d2546",
            "6ca767e72340f0bdb86090baafa7479db2f0b1a545f74e638a1e26e6654b6b27",
            "b14b44633acdb450d5ef5940cfde8a37ba6a5a74adcfe85ea9679f945eac5be8",
        ),
    ),
}


def verify(arrays: Arrays, name: str) -> None:
    """Raise DataError unless the arrays are the named data set.

    Classes and shapes come first, as they explain more than a wrong digest.
    """
    content = DATASETS[name]
    for part, images, labels, expected in (
        ("train", *arrays[:2], content.train_histogram),
        ("test", *arrays[2:], content.test_histogram),
    ):
        found = tuple(np.unique(labels, return_counts=True)[1].tolist())
        if found != expected:
            raise DataError(f"not {name}: {part} classes have {found} samples, expected {expected}")
        if images.shape != (len(labels), *content.shape) or images.dtype != np.uint8:
            raise DataError(f"not {name}: {part} images are {images.dtype} of shape {images.shape}")
        if labels.shape != (sum(expected),) or labels.dtype != np.int64:
            raise DataError(f"not {name}: {part} labels are {labels.dtype} of shape {labels.shape}")
    for (part, array), digest in zip(arrays._asdict().items(), content.digests, strict=True):
        if _digest(array) != digest:
            raise DataError(f"not {name}: {part} {array.shape} has another SHA-256 than published")


def _digest(array: npt.NDArray[np.generic]) -> str:
    little_endian = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return hashlib.sha256(little_endian.data).hexdigest()
