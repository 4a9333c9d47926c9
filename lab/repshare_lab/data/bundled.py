"""Data sets that come with packages which are installed anyway: nothing is downloaded."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt

from repshare_lab.data.contents import DATASETS, Arrays, verify

Array = npt.NDArray[np.generic]
BUNDLED = ("digits", "breast_cancer", "wine", "colour_names")
FILES = {"digits": "digits.csv.gz", "breast_cancer": "breast_cancer.csv", "wine": "wine_data.csv"}  # of scikit-learn
SEED = 0  # of the order in which samples are divided into training and test ones


def read_bundled(name: str) -> Arrays:
    """Return the data set, verified to the byte."""
    arrays = {"digits": _digits, "colour_names": _colour_names}.get(name, lambda: _table(name))()
    verify(arrays, name)
    return arrays


def _digits() -> Arrays:
    inputs, labels = _read_sklearn("digits")
    images = inputs.astype(np.uint8).reshape(-1, 1, 8, 8)  # values 0 … 16
    return Arrays(images[:1200], labels[:1200], images[1200:], labels[1200:])


def _table(name: str) -> Arrays:
    """Return a table of scikit-learn's. Its rows may be sorted by class, so that they are shuffled, always alike."""
    inputs, labels = _read_sklearn(name)
    return _divide(name, inputs.astype(np.float32), labels)


def _read_sklearn(name: str) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Return inputs (n, columns) and labels (n,) of a data set of scikit-learn's.

    Its file is read without importing the package, which takes as long as importing PyTorch. A version that keeps
    the file elsewhere is asked for the data.
    """
    spec = find_spec("sklearn")
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn")
    file = Path(spec.submodule_search_locations[0], "datasets", "data", FILES[name])
    if file.is_file():
        rows = np.loadtxt(file, delimiter=",", skiprows=0 if name == "digits" else 1)  # a table's first line: its sizes
        return rows[:, :-1], rows[:, -1].astype(np.int64)
    from sklearn import datasets

    found = getattr(datasets, f"load_{name}")()
    return found.data, found.target.astype(np.int64)


def _colour_names() -> Arrays:
    """Return 949 names that people gave to colours (a survey by Randall Munroe, CC0), from Matplotlib.

    A token is three letters in a row of " name ", numbered from 2 in alphabetical order of those in training names;
    1 is any other, and 0 fills up. The class is the nearest of six hues.
    """
    from matplotlib.colors import XKCD_COLORS, rgb_to_hsv, to_rgb

    names = [name.removeprefix("xkcd:") for name in XKCD_COLORS]
    hues = rgb_to_hsv(np.array([to_rgb(colour) for colour in XKCD_COLORS.values()]))[:, 0]  # 0 … 1
    labels = np.floor(6 * hues + 0.5).astype(np.int64) % 6
    content = DATASETS["colour_names"]
    trigrams = [[f" {name} "[at : at + 3] for at in range(len(name))] for name in names]
    order = np.random.RandomState(SEED).permutation(len(names))
    known = sorted({each for row in order[: content.train] for each in trigrams[row]})
    number = {each: place for place, each in enumerate(known, start=2)}
    tokens = np.zeros((len(names), *content.shape), np.int64)
    for row, found in enumerate(trigrams):
        tokens[row, : len(found)] = [number.get(each, 1) for each in found][: content.shape[0]]
    return _divide("colour_names", tokens, labels)


def _divide(name: str, inputs: npt.NDArray[np.generic], labels: npt.NDArray[np.int64]) -> Arrays:
    """Divide the samples in an order that never changes: RandomState's numbers are frozen by NumPy."""
    order = np.random.RandomState(SEED).permutation(len(labels))
    first, last = np.split(order, [DATASETS[name].train])
    return Arrays(inputs[first], labels[first], inputs[last], labels[last])
