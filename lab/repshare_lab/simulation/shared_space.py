"""What a worker's clients of one space share: vectors of inputs that come again, the total, and its test."""

import hashlib
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from repshare.measures import Representation
from repshare.sharing.representations import Floats
from repshare.sharing.sums import Sums
from repshare.space.agreement import BATCH, Agreement
from repshare.space.model import Linear
from repshare.space.solution import Total
from repshare.space.space import as_array, fingerprint

MOST_BYTES = 1 << 30


class Embedded(NamedTuple):
    """A batch of vectors, and the seconds that it took to make them."""

    vectors: Floats  # (n, d)
    seconds: float


class Memory:
    """A cache of the vectors of whole batches of inputs in this process; the oldest are forgotten first.

    Batches are remembered as a whole: the last bits of a vector may depend on the batch that it was computed in, and
    must not depend on what happened to be remembered.
    """

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self.most_bytes = most_bytes
        self._bytes = 0
        self._batches: dict[tuple[str, str], Embedded] = {}

    def embed(self, agreement: Agreement, inputs: Any) -> Embedded:
        """The space's vectors of these inputs (n, …)."""
        digest = hashlib.blake2b(digest_size=16)
        for name, each in sorted(inputs.items()) if isinstance(inputs, Mapping) else [("", inputs)]:
            array = np.ascontiguousarray(as_array(each))
            digest.update(f"{name} {array.shape} {array.dtype}".encode())
            digest.update(array.data)
        key = fingerprint(agreement.space), digest.hexdigest()
        if key not in self._batches:
            started = time.perf_counter()
            vectors = agreement.vectors(inputs)
            self._remember(key, Embedded(vectors, time.perf_counter() - started))
        return self._batches[key]

    def _remember(self, key: tuple[str, str], embedded: Embedded) -> None:
        self._batches[key] = embedded
        self._bytes += embedded.vectors.nbytes
        while self._bytes > self.most_bytes and len(self._batches) > 1:
            self._bytes -= self._batches.pop(next(iter(self._batches))).vectors.nbytes


MEMORY = Memory()  # of this process: runs of one seed have their samples in common


class SharedAgreement(Agreement):
    """An agreement of a worker's clients: what follows from the same bytes is computed once, to the same bits."""

    def __init__(self, *_: Any) -> None:
        self.test: Any = None  # samples that all clients are tested on
        self.has_vectors = False  # whether samples are vectors of a backbone already
        self._test_vectors: tuple[Floats, float] | None = None
        self._total: tuple[bytes, Total | Sums | None] = b"", None
        self._scored: tuple[Linear, Floats] | None = None

    @property
    def is_simulated(self) -> bool:
        """Nothing leaves this process."""
        return True

    def vectors(self, inputs: Any) -> Floats:
        """Map a batch of inputs to the space (n, d)."""
        return as_array(inputs) if self.has_vectors else super().vectors(inputs)

    def representation(self, samples: Any) -> Representation:
        """Describe what a vector is made of. That of a backbone was examined when samples were mapped."""
        if self.has_vectors:
            return Representation(self.space.dimension, 0, 0, is_inputs=False, source="a backbone")
        return super().representation(samples)

    def embed(self, samples: Any, *, at_once: bool = True) -> tuple[Floats, float]:
        """Map samples to the space, or remember; beside them, the seconds that it takes without a memory."""
        if self.has_vectors:
            return np.concatenate([as_array(inputs) for inputs, _ in samples.in_order(len(samples))]), 0.0
        if samples is self.test:
            self._test_vectors = self._test_vectors or super().embed(samples)
            return self._test_vectors
        if not at_once:
            return super().embed(samples, at_once=at_once)
        pieces = [MEMORY.embed(self, inputs) for inputs, _ in samples.in_order(BATCH)]
        return self._checked(np.concatenate([each.vectors for each in pieces])), sum(each.seconds for each in pieces)

    def read(self, body: bytes, classes: int) -> Total | Sums | None:
        """Read all clients' total, once for all of them."""
        if self._total[0] != body:
            self._total = body, super().read(body, classes)
        return self._total[1]

    def scores(self, linear: Linear, samples: Any) -> Floats:
        """Compute a classifier's scores. Those of the test samples are remembered: clients of one total share it."""
        if samples is not self.test:
            return super().scores(linear, samples)
        if self._scored is None or not _same(self._scored[0], linear):
            self._scored = linear, super().scores(linear, samples)
        return self._scored[1]


def _same(one: Linear, other: Linear) -> bool:
    return one is other or all(map(np.array_equal, one, other))
