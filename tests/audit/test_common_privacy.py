"""What several releases in a common space tell of a client's samples: the limits that docs/privacy.md states."""

import numpy as np

from repshare.learning.common.dual import Dual
from repshare.sharing.parts import Part
from repshare.spaces import Patches

SPACE = Patches((1, 8, 8), sizes=(3,), filters=24)


def releases(vectors, labels, size, rounds):
    """What the first of some clients with so many samples each releases, round after round, as its relay sees it."""
    clients = [Dual(vectors[i : i + size], labels[i : i + size], 10) for i in range(0, len(labels), size)]
    seen, total = [], None
    for _ in range(rounds):
        parts = []
        for client in clients:
            client.absorb(total)
            client.improve()
            parts.append(client.part())
            client.publish()
        means = [np.mean([part[field] for part in parts], axis=0, dtype=np.float64) for field in range(5)]
        total = Part(*(mean.astype(np.float32) for mean in means), len(labels))
        seen.append(np.concatenate([parts[0].vectors, parts[0].centre[None]]).astype(np.float16).astype(np.float64))
    return np.concatenate(seen)


def outside(vectors, seen):
    """How much of each vector lies outside what the releases span, from 0 to 1."""
    rows = seen / np.linalg.norm(seen, axis=1, keepdims=True)
    _, values, axes = np.linalg.svd(rows, full_matrices=False)
    basis = axes[values > 3e-3 * values[0]]
    rest = vectors - (vectors @ basis.T) @ basis
    return np.linalg.norm(rest, axis=1) / np.linalg.norm(vectors, axis=1)


def advantage(digits, size, rounds):
    """How often a member is more inside the span than another sample: ½ is a guess."""
    (images, labels), (others, _) = digits
    vectors, strangers = SPACE(images[:480]), SPACE(others[:200]).double().numpy()
    seen = releases(vectors, labels[:480], size, rounds)
    members = outside(vectors[:size].double().numpy(), seen)
    return float((members[:, None] < outside(strangers, seen)[None]).mean())


def test_releases_of_a_dozen_samples_tell_who_is_among_them(digits):
    assert advantage(digits, size=12, rounds=3) > 0.99


def test_a_release_of_many_samples_tells_less_than_several(digits):
    once, often = (advantage(digits, size=120, rounds=rounds) for rounds in (1, 8))
    assert once < 0.75
    assert once < often < 0.99
