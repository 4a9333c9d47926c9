"""Clients that lie: about what they share, or by what they learn from. They train like everyone else."""

import numpy as np
from numpy.typing import NDArray

from repshare.config import Attack, Setting
from repshare.learning.randomness import numpy_stream
from repshare.sharing import wire
from repshare.sharing.representations import Representations

# What a vector of a release is multiplied by. The other attacks spoil the data of those who lie.
FACTORS: dict[Attack, float] = {"flip": -1.0, "scale": 100.0}


def choose_attackers(setting: Setting, seed: int, clients: int) -> frozenset[int]:
    """Return which clients lie: a function of the setting and the seed alone."""
    count = round(setting.attackers * clients)
    return frozenset(numpy_stream(seed, "attackers").permutation(clients)[:count].tolist())


def poison(body: bytes, attack: Attack) -> bytes:
    """Return the release with every vector, mean or observation, turned round or made far too long."""

    def spoil(rows: Representations) -> Representations:
        return rows._replace(vectors=rows.vectors * FACTORS[attack])

    release = wire.decode_release(body)
    return wire.encode_release(release._replace(means=spoil(release.means), observations=spoil(release.observations)))


def spoil(
    images: NDArray[np.float32],
    labels: NDArray[np.int64],
    rows: NDArray[np.int64],
    attack: Attack,
    seed: int,
    classes: int,
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Return the data with these rows spoilt: images of white noise, or each class under the name of another."""
    images, labels, rng = images.copy(), labels.copy(), numpy_stream(seed, "spoilt")
    if attack == "noise":
        images[rows] = rng.standard_normal((len(rows), *images.shape[1:]), dtype=np.float32)
    else:
        order = rng.permutation(classes)
        renamed = np.empty_like(order)
        renamed[order] = np.roll(order, 1)  # no class keeps its name
        labels[rows] = renamed[labels[rows]]
    return images, labels
