"""A common classifier for a client that meets classes as often as in its own data: nothing of it is sent.

Scores of all clients' classifier, times a factor, are taken for logarithms of probabilities; to these, the logarithm of
how much more frequent a class is here is added (Saerens et al. 2002). The factor is the likeliest for own samples.
"""

import numpy as np

from repshare.sharing.representations import Floats, Integers
from repshare.space.model import Linear

FACTORS = (1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 12.0, 16.0, 24.0, 32.0)
FEWEST = 0.5  # samples that a class is taken to have at least: what was not met here may come
RAREST = 1e-3  # share of a class among all clients, at least


def expect_own(linear: Linear, counts: Integers, vectors: Floats, labels: Integers) -> Linear:
    """Return the classifier whose scores are logarithms of probabilities, but for a constant, by own class shares.

    Args:
        linear: All clients' classifier, whose offset is their class shares.
        counts: Number of own samples of each class (C,).
        vectors: Own samples, preferably held out (n, d).
        labels: Their classes (n,).
    """
    own = (counts + FEWEST) / (counts + FEWEST).sum()
    shift = np.log(own) - np.log(np.maximum(linear.offset.astype(np.float64), RAREST))  # (C,)
    scores = linear(vectors).astype(np.float64)
    found = [_likelihood(factor * scores + shift, labels) for factor in FACTORS]
    factor = FACTORS[int(np.argmax(found))]
    offset = (factor * linear.offset + shift).astype(np.float32)
    return Linear(np.float32(factor) * linear.weights, linear.centre, offset)


def _likelihood(logits: np.ndarray, labels: Integers) -> float:
    """The mean logarithm of the probability of the right class."""
    below = logits - logits.max(axis=1, keepdims=True)
    return float((below[np.arange(len(labels)), labels] - np.log(np.exp(below).sum(axis=1))).mean())
