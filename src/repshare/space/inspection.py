"""The inspection of a space, whose parameters a task's operator chooses, before anything of a client leaves.

Ranges bound each parameter, and with them memory and time. Then the space is tried on the client's own samples: a sum
of vectors hides a sample only among others that are like it, and hides inputs only where the map is not linear.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.errors import ConfigError, DataError
from repshare.space.space import Space, as_array

MOST_DIMENSIONS = 1 << 16
RANGES: dict[str, dict[str, tuple[float, float]]] = {
    "fourier": {"features": (1, MOST_DIMENSIONS), "width": (0.1, 10), "low": (-1e12, 1e12), "high": (-1e12, 1e12)},
    "patches": {
        "sizes": (2, 16), "filters": (1, 1024), "threshold": (0, 2), "epsilon": (1e-6, 1),
        "grid": (1, 8), "deep": (0, 2048), "deep_grid": (1, 8), "fourier": (0, MOST_DIMENSIONS), "width": (0.1, 10),
    },
    "backbone": {"features": (1, MOST_DIMENSIONS), "probe": (-1e3, 1e3)},
}  # fmt: skip
MOST = {  # as `Space.extent` counts
    "dimensions": MOST_DIMENSIONS,
    "sizes of filters": 8,
    "numbers an image": 1 << 18,  # 512 × 512, of which 300 are drawn
    "multiplications an image": 1 << 32,  # about a second
    "frequencies (columns × cosines)": 1 << 24,  # 64 MB
}

FEWEST_TRIED, TRIED = 8, 256  # samples, spread over all; fewer than the first tell nothing of a space
PAIRS = 32  # pairs of samples, between which the map is examined
FEWEST_READ = 40  # samples from which inputs are read back out of vectors
MOST_READ = 4096  # numbers of an input that are read back
PENALTIES = (1e-6, 1e-4, 1e-2)  # of the regression that reads them
SAME = 1e-6  # of a vector's squared length: vectors that differ by less are the same

LIKE = 0.05  # |cosine| of two samples' vectors: the package's spaces have 0.1 to 0.8, a hash 0.02
RANDOM = 0.8  # |cosine| times √d: of random vectors it is 0.67
BENT = 0.02  # how far from linear: the package's spaces have 0.08 to 1, straight ones below 0.012
BEARING = 0.25  # of the samples, behind the differences of vectors: the package's spaces have 0.6 to 1
READ = 0.97  # R² of images read back: the package's spaces have 0.4 to 0.9


class Findings(NamedTuple):
    """The making of a client's own samples in a space. None: it could not be tried."""

    likeness: float
    """|cosine| of two samples' vectors, the median. Near 0, a sum shows each sample's label."""
    bend: float | None
    """How far the vector between two samples is from the mean of theirs. Near 0, sums of vectors are sums of inputs."""
    bearers: float
    """The share of the samples that makes up the differences between vectors. Near 0, sums show single samples."""
    read: float | None
    """R² of a linear regression of inputs on vectors, for samples that it was not made of."""

    def __str__(self) -> str:
        bend = "" if self.bend is None else f", bend {self.bend:.2g} (linear: below {BENT:g})"
        alike = f"|cosine| of two samples {self.likeness:.2f} (a hash: below {LIKE:g}){bend}"
        read = "" if self.read is None else f"\nA regression reads inputs from vectors with R² {max(self.read, 0):.2f}"
        return f"{alike}; {self.bearers:.0%} of the samples make up the differences{read and read + ' (all: 1)'}"


def check_ranges(space: Space) -> None:
    """Raise ConfigError if a parameter is out of range, or the space too large to be computed."""
    for name, (least, most) in RANGES[space.name].items():
        value = getattr(space, name)
        for each in value if isinstance(value, tuple) else (value,):
            if not least <= each <= most:
                raise ConfigError(
                    f"the space {space.name} has {name} {each:,.6g}: from {least:,.6g} to {most:,.6g} is accepted"
                )
    for what, number in space.extent().items():
        if number > MOST[what]:
            raise ConfigError(f"a space of {number:,} {what} is too large: at most {MOST[what]:,} are accepted")


def inspect(
    vectors: NDArray[Any], represent: Callable[[Any], NDArray[Any]], take: Callable[[NDArray[np.int64]], Any]
) -> Findings:
    """Try a space on a client's samples, whose vectors (n, d) these are.

    Args:
        vectors: The vectors of all samples.
        represent: The space, with whatever prepares inputs for it.
        take: The inputs of samples, by their rows in `vectors`.
    """
    rows = np.unique(np.linspace(0, len(vectors) - 1, min(TRIED, len(vectors))).astype(np.int64))
    if len(rows) < FEWEST_TRIED:
        return Findings(1.0, None, 1.0, None)
    rows = np.random.default_rng(0).permutation(rows)  # neighbours may be of one class
    chosen, inputs = vectors[rows].astype(np.float64), take(rows)
    units = chosen / np.linalg.norm(chosen, axis=1, keepdims=True).clip(1e-12)
    cosines = np.abs(units @ units.T)[np.triu_indices(len(rows), 1)]
    given = None if isinstance(inputs, Mapping) else _flatten(inputs)
    differ = given is None or bool((given != given[0]).any())
    return Findings(
        float(np.median(cosines)),
        None if given is None else _bend(chosen, inputs, represent),
        _bearers(vectors) if differ else 1.0,
        None if given is None else _read(chosen, given),
    )


def check(found: Findings, space: Space, *, images: bool) -> None:
    """Raise ConfigError where sums of vectors would give away single samples, their labels, or inputs.

    Args:
        found: What `inspect` returned.
        space: The space.
        images: Whether inputs are images. A table's few columns can be read from any map that tells its rows apart.
    """
    if found.bearers < BEARING:
        fault = f"of your samples, {found.bearers:.1%} make up all differences between vectors, so that sums show these"
    elif found.likeness < max(LIKE, RANDOM / math.sqrt(space.dimension)):
        fault = f"two samples' vectors have nothing in common (|cosine| {found.likeness:.2g}): a sum shows each label"
    elif found.bend is not None and found.bend < BENT:
        fault = f"it is linear (bend {found.bend:.2g}; {BENT:g} is the least): sums of vectors are sums of your inputs"
    elif images and found.read is not None and found.read > READ:
        fault = f"your images can be read back from vectors (R² {found.read:.3f})"
    else:
        return
    raise ConfigError(
        f"the space {space.name} hides nothing of your data: {fault}. Ask the task's operator for the package's own "
        "space; or say --share-inputs (share_inputs in the policy) if your data may leave"
    )


def _bearers(vectors: NDArray[Any]) -> float:
    """The effective share of samples in the squared distances from the mean; 0 if all vectors are the same."""
    mean = vectors.mean(axis=0, dtype=np.float64).astype(vectors.dtype)
    squares = np.square(vectors - mean).sum(axis=1, dtype=np.float64)
    if squares.mean() <= SAME * vectors.shape[1]:
        return 0.0
    return float(squares.sum() ** 2 / (np.square(squares).sum() * len(squares)))


def _bend(chosen: NDArray[Any], inputs: Any, represent: Callable[[Any], NDArray[Any]]) -> float | None:
    """‖ψ((a + b) / 2) − (ψ(a) + ψ(b)) / 2‖² over ‖(ψ(a) − ψ(b)) / 2‖² for pairs of samples, the median."""
    pairs = min(PAIRS, len(chosen) // 2)
    one, other = chosen[:pairs], chosen[pairs : 2 * pairs]
    apart = np.square(one - other).sum(axis=1) / 4
    try:
        between = represent((inputs[:pairs] + inputs[pairs : 2 * pairs]) / 2).astype(np.float64)
    except DataError:  # a backbone of whole numbers, as token ids are
        return None
    told = apart > SAME * chosen.shape[1]
    off = np.square(between - (one + other) / 2).sum(axis=1)
    return float(np.median(off[told] / apart[told])) if told.any() else None


def _read(chosen: NDArray[Any], given: NDArray[np.float64]) -> float | None:
    """R² of a ridge regression of inputs on vectors, for the last quarter of the samples, by the others."""
    first = len(chosen) * 3 // 4
    given = given[:, :: -(-given.shape[1] // MOST_READ)]
    given = given - given[:first].mean(axis=0)
    spread = float(np.square(given[first:]).sum())
    if len(chosen) < FEWEST_READ or not spread:
        return None
    centred = chosen - chosen[:first].mean(axis=0)
    gram = centred[:first] @ centred[:first].T
    across, usual, best = centred[first:] @ centred[:first].T, max(float(gram.diagonal().mean()), 1e-12), -math.inf
    for penalty in PENALTIES:
        weights = np.linalg.solve(gram + penalty * usual * np.eye(first), given[:first])
        best = max(best, 1 - float(np.square(across @ weights - given[first:]).sum()) / spread)
    return best


def _flatten(inputs: Any) -> NDArray[np.float64]:
    array = as_array(inputs)
    return np.asarray(array.reshape(len(array), -1), np.float64)
