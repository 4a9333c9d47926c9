"""Parts of a common classifier, from samples."""

from repshare.sharing.parts import count_samples, weigh_samples


def make_part(vectors, weights, labels, hits, shrinkage=None, voters=None):
    """The averages of vectors (n, d) with these weights (n, C). Without a shrinkage, there had been no vote."""
    return weigh_samples(count_samples(vectors, labels, hits, weights.shape[1], voters), vectors, weights, shrinkage)
