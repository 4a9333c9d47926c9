"""A mean that few dishonest clients cannot move far, on which Cronus relies.

This is the filter of Diakonikolas et al. (2017: Being robust (in high dimensions) can be practical, under bounded
second moments). σ² bounds the variance among honest clients; the filter takes it as known.
"""

import numpy as np
from numpy.typing import NDArray

TINY = 1e-9


def robust_mean(vectors: NDArray[np.float64], spread: float, rng: np.random.Generator) -> NDArray[np.float64]:
    """Return the mean of those vectors (m, C) that the filter leaves: at least the nearest one.

    Where all are as far off as the others, none is removed.
    """
    while True:
        mean = np.asarray(vectors.mean(axis=0))
        away = vectors - mean
        variances, directions = np.linalg.eigh(away.T @ away / len(vectors))
        along = np.abs(away @ directions[:, -1])
        if variances[-1] <= 9 * spread**2 or along.min() > (1 - TINY) * along.max():
            return mean
        vectors = vectors[(along < np.sqrt(rng.random()) * along.max()) | (along == along.min())]
