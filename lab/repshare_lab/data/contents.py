"""The contents of the built-in data sets, to the byte, whatever container they came in."""

import hashlib
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from repshare.errors import DataError


class Arrays(NamedTuple):
    """The arrays that every source yields, in one form, so that one digest fits all of them."""

    train_images: npt.NDArray[Any]  # (n, …)  bytes (n, channels, height, width), if they are images
    train_labels: npt.NDArray[np.int64]  # (n,)
    test_images: npt.NDArray[Any]  # (m, …)
    test_labels: npt.NDArray[np.int64]  # (m,)


class Content(NamedTuple):
    """A data set as published."""

    shape: tuple[int, ...]  # of a sample: channels, height, width of an image; columns of a table; tokens of a text
    train: int  # samples
    test: int
    digest: str  # SHA-256 of the bytes of all arrays, in the order of `Arrays`
    classes: int = 10
    kind: Literal["images", "table", "text"] = "images"
    class_names: tuple[str, ...] = ()

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of a number of an input."""
        return np.dtype({"images": np.uint8, "table": np.float32, "text": np.int64}[self.kind])


DATASETS = {
    "mnist": Content((1, 28, 28), 60_000, 10_000, "1e35582d42a90940c55b956deb61875c020b567ed20e3c5b174f52bf7809ed9b"),
    "fashion_mnist": Content(
        (1, 28, 28), 60_000, 10_000, "ece172613115fb18b120bec8f6c02271af90b8b8f0a5af5c51cbd5ceed68e619"
    ),
    "cifar10": Content((3, 32, 32), 50_000, 10_000, "9048fcbac9c08a64d57a7c5a5a66750a974ad4eab380914df129f7e223d823df"),
    "digits": Content((1, 8, 8), 1_200, 597, "ee8736032ec717cc96fe7978ce67f37a6b3df86d909c39a106b262ea73cf3373"),
    "breast_cancer": Content(
        (30,),
        400,
        169,
        "8fb645ca6ffbdb3b424e0f658b2c5a21886221f786846ed5332bab0fabed4929",
        2,
        "table",
        ("malignant", "benign"),
    ),
    "wine": Content((13,), 120, 58, "875bd7b3fb3a0aea9726ac5dc9e2b4d28ff84bef88e3d7730abf19f0354381ee", 3, "table"),
    "colour_names": Content(
        (26,),
        649,
        300,
        "756842c16f2ac0bca9b5f135644a695cb484fca7f581e94a2801797ab1f74372",
        6,
        "text",
        ("red", "yellow", "green", "cyan", "blue", "magenta"),
    ),
}


def verify(arrays: Arrays, name: str) -> None:
    """Raise DataError unless the arrays are the named data set."""
    content = DATASETS[name]
    for part, images, labels, samples in (("train", *arrays[:2], content.train), ("test", *arrays[2:], content.test)):
        if images.shape != (samples, *content.shape) or images.dtype != content.dtype:
            raise DataError(f"not {name}: {part} images are {images.dtype} of shape {images.shape}")
        if labels.shape != (samples,) or labels.dtype != np.int64:
            raise DataError(f"not {name}: {part} labels are {labels.dtype} of shape {labels.shape}")
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.astype(array.dtype.newbyteorder("<"), order="C", copy=False).data)
    if digest.hexdigest() != content.digest:
        raise DataError(f"not {name}: the samples have another SHA-256 than those that were published")
