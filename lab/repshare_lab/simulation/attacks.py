"""Dishonest clients: they change what they share, or the data that they train on. They train as all clients do."""

import numpy as np
from numpy.typing import NDArray

from repshare.errors import ConfigError
from repshare.randomness import numpy_stream
from repshare.sharing import wire
from repshare.sharing.representations import Representations
from repshare_lab.config import Attack, Setting
from repshare_lab.data.arrays import Inputs

# What a vector of a release is multiplied by. The other attacks change the attackers' data.
FACTORS: dict[Attack, float] = {"flip": -1.0, "scale": 100.0}


def choose_attackers(setting: Setting, seed: int, clients: int) -> frozenset[int]:
    """Return the clients that attack: a function of the setting and the seed alone."""
    count = round(setting.attackers * clients)
    return frozenset(numpy_stream(seed, "attackers").permutation(clients)[:count].tolist())


def poison(body: bytes, attack: Attack) -> bytes:
    """Return the release with every vector, mean or observation, negated or made far too long."""

    def change(rows: Representations) -> Representations:
        return rows._replace(vectors=rows.vectors * FACTORS[attack])

    release = wire.decode_release(body)
    return wire.encode_release(release._replace(means=change(release.means), observations=change(release.observations)))


def spoil(
    inputs: Inputs,
    labels: NDArray[np.int64],
    rows: NDArray[np.int64],
    attack: Attack,
    seed: int,
    classes: int,
) -> tuple[Inputs, NDArray[np.int64]]:
    """Return the data with these rows changed: inputs of white noise, or the labels of the classes permuted."""
    labels, rng = labels.copy(), numpy_stream(seed, "spoilt")
    if attack == "noise":
        if isinstance(inputs, dict) or inputs.dtype != np.float32:
            raise ConfigError("the attack noise needs inputs that are one array of real numbers: choose another attack")
        inputs = inputs.copy()
        inputs[rows] = rng.standard_normal((len(rows), *inputs.shape[1:]), dtype=np.float32)
    else:
        order = rng.permutation(classes)
        renamed = np.empty_like(order)
        renamed[order] = np.roll(order, 1)  # no class keeps its name
        labels[rows] = renamed[labels[rows]]
    return inputs, labels
