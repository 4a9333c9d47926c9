"""Clients that lie: what they share in place of their releases. They train like everyone else."""

from repshare import wire
from repshare.config import Attack, Setting
from repshare.randomness import numpy_stream
from repshare.representations import Representations

FACTORS: dict[Attack, float] = {"flip": -1.0, "scale": 100.0}


def choose_attackers(setting: Setting, seed: int, clients: int) -> frozenset[int]:
    """Which clients lie: a function of the setting and the seed alone."""
    count = round(setting.attackers * clients)
    return frozenset(numpy_stream(seed, "attackers").permutation(clients)[:count].tolist())


def poison(body: bytes, attack: Attack) -> bytes:
    """The release with every vector, mean or observation, turned round or made far too long."""

    def spoil(rows: Representations) -> Representations:
        return rows._replace(vectors=rows.vectors * FACTORS[attack])

    release = wire.decode_release(body)
    return wire.encode_release(release._replace(means=spoil(release.means), observations=spoil(release.observations)))
