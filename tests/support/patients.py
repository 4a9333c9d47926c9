"""Three hospitals' tables of patients, of breast_cancer's ten means: 63, 159 and 50, the last ones all well."""

import csv

import numpy as np
from sklearn.datasets import load_breast_cancer

ILL_AND_WELL = {"north": (60, 3), "south": (12, 147), "east": (0, 50)}
CLASSES = ("benign", "malignant")


def write_table(path, head, rows):
    path.parent.mkdir(exist_ok=True, parents=True)
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([head, *rows])


def split_patients(seed=0):
    """The names of the columns, the label last; and the rows of each hospital, and of others."""
    cells, rng = load_breast_cancer(), np.random.default_rng(seed)
    names = [name.removeprefix("mean ") for name in cells.feature_names[:10]]
    ill, well = (rng.permutation(np.flatnonzero(cells.target == value)) for value in (0, 1))
    parts = {}
    for name, (sick, healthy) in ILL_AND_WELL.items():
        (own, ill), (rest, well) = np.split(ill, [sick]), np.split(well, [healthy])
        parts[name] = rng.permutation(np.concatenate([own, rest]))
    parts["others"] = np.concatenate([ill, well])
    words = ("malignant", "benign")
    rows = {
        name: [[*cells.data[row, :10].tolist(), words[cells.target[row]]] for row in part]
        for name, part in parts.items()
    }
    return [*names, "diagnosis"], rows
