"""Partitions of samples: functions of the labels and a generator, each giving one array of indices a client.

Every sample goes to at most one client, and every client gets at least one. Indices are in ascending
order.
"""

import numpy as np
import numpy.typing as npt

from repshare.errors import ConfigError

Labels = npt.NDArray[np.integer]  # (n,)
Parts = list[npt.NDArray[np.int64]]  # sample indices of each client
LARGEST_ALPHA = 1e100  # beyond, NumPy's sums overflow; equal parts long before


def uniform(labels: Labels, clients: int, rng: np.random.Generator) -> Parts:
    """Divide the samples at random, in parts whose sizes differ by at most one.

    Args:
        labels: The class of each sample.
        clients: Number of clients.
        rng: The random generator.
    """
    _check(labels, clients)
    return [np.sort(part) for part in np.array_split(rng.permutation(len(labels)), clients)]


def dirichlet(labels: Labels, clients: int, rng: np.random.Generator, alpha: float, minimum: int = 1) -> Parts:
    """Divide each class among the clients in proportions drawn from Dirichlet(α).

    Drawing again until every client has `minimum` samples might never end. Here the poorest client takes a random
    sample from the richest one until no client is short: each step lowers the total shortage by one, so it ends.

    Args:
        labels: The class of each sample.
        clients: Number of clients.
        rng: The random generator.
        alpha: α. Smaller values make clients' classes more unequal.
        minimum: Number of samples that each client has at least.
    """
    _check(labels, clients)
    if not 0 < alpha <= LARGEST_ALPHA:
        raise ConfigError(f"alpha must be above 0 and at most {LARGEST_ALPHA:g}, not {alpha}")
    if minimum < 1 or clients * minimum > len(labels):
        raise ConfigError(f"{len(labels)} samples cannot give each of {clients} clients at least {minimum} ≥ 1")
    owned: list[list[int]] = [[] for _ in range(clients)]
    for label in np.unique(labels):
        members = rng.permutation(np.flatnonzero(labels == label))
        cuts = (np.cumsum(rng.dirichlet(np.full(clients, alpha)))[:-1] * len(members)).astype(np.int64)
        for mine, part in zip(owned, np.split(members, cuts), strict=True):
            mine.extend(part.tolist())
    while len(poorest := min(owned, key=len)) < minimum:
        richest = max(owned, key=len)
        poorest.append(richest.pop(rng.integers(len(richest))))
    return [np.sort(np.array(mine, np.int64)) for mine in owned]


def shards(labels: Labels, clients: int, rng: np.random.Generator, classes_per_client: int) -> Parts:
    """Give each client samples of exactly `classes_per_client` classes, all classes about as often.

    A class goes in equal parts to the clients that hold it; one that no client holds is left out.
    A class with too few samples for its even share of clients is held by as many as it has samples.

    Args:
        labels: The class of each sample.
        clients: Number of clients.
        rng: The random generator.
        classes_per_client: Number of classes that each client has.
    """
    _check(labels, clients)
    classes, counts = np.unique(labels, return_counts=True)
    wanted = clients * classes_per_client
    if not 1 <= classes_per_client <= len(classes):
        raise ConfigError(f"classes per client must be in 1…{len(classes)} (all classes), not {classes_per_client}")
    most = np.minimum(counts, clients)  # how many clients can hold each class
    if most.sum() < wanted:
        raise ConfigError(
            f"{clients} clients with {classes_per_client} classes each need {wanted} shares of a class, "
            f"but the samples make {most.sum()} only"
        )
    members = _deal_classes(_holders(most, wanted, rng), clients, classes_per_client, rng)
    owned: list[list[npt.NDArray[np.int64]]] = [[] for _ in range(clients)]
    for label, holders in zip(classes, members, strict=True):
        samples = rng.permutation(np.flatnonzero(labels == label))
        for client, part in zip(holders, np.array_split(samples, max(len(holders), 1)), strict=False):
            owned[client].append(part)
    return [np.sort(np.concatenate(mine)) for mine in owned]


def histogram(labels: Labels, parts: Parts, classes: int) -> npt.NDArray[np.int64]:
    """Count the samples of each client in each class: (clients, classes).

    Args:
        labels: The class of each sample.
        parts: The sample indices of each client.
        classes: Number of classes.
    """
    if labels.size and not 0 <= labels.min() <= labels.max() < classes:
        raise ConfigError(f"labels go from {labels.min()} to {labels.max()}, which {classes} classes cannot hold")
    return np.array([np.bincount(labels[part], minlength=classes) for part in parts], np.int64)


def _check(labels: Labels, clients: int) -> None:
    if not 1 <= clients <= len(labels):
        raise ConfigError(f"{len(labels)} samples cannot be shared among {clients} clients, one each at least")


def _holders(most: npt.NDArray[np.int64], wanted: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """The number of clients that hold each class: `wanted` in all, as even as `most` allows, the odd ones at random."""
    holders = np.zeros_like(most)
    for _ in range(wanted):
        open_classes = np.flatnonzero(holders < most)
        fewest = open_classes[holders[open_classes] == holders[open_classes].min()]
        holders[rng.choice(fewest)] += 1
    return holders


def _deal_classes(holders: npt.NDArray[np.int64], clients: int, each: int, rng: np.random.Generator) -> list[list[int]]:
    """The clients that hold each class. Taking those with most places left always works out (Gale, Ryser)."""
    left = holders.copy()
    members: list[list[int]] = [[] for _ in left]
    for client in range(clients):
        shuffled = rng.permutation(len(left))
        for label in shuffled[np.argsort(-left[shuffled], kind="stable")][:each]:
            members[label].append(client)
            left[label] -= 1
    return members
