"""Secure sums: the messages of a group give the total of its members' vectors, and nothing else about any of them.

Two steps:

    announce   a public key, fresh for this sum, signed with the member's own key
    mask       the vector, plus or minus a mask for each other member that announced, which cancel in pairs; signed
               together with who announced what, as this member was told

All who announced must send their vectors: if one does not, its masks do not cancel, and there is no total. Members who
were told different things have other masks, which do not cancel either. Numbers are whole, modulo 2⁶⁴ (see
`fixed_point`), so totals are exact. lab/notebook/secure-sums.md says against whom this protects, and why.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from repshare.errors import ConfigError, Malformed, Refused
from repshare.exchange.keys import Key
from repshare.sharing import fixed_point

KEY_BYTES = 32
SIGNATURE_BYTES = 64

Vector = NDArray[np.int64]
Messages = Mapping[str, bytes]  # by sender


@dataclass(frozen=True)
class Group:
    """The members of a sum. They are fixed beforehand, so that nobody else can be added."""

    keys: Mapping[str, bytes]
    """The public half of each member's key (`repshare keys new`), by name."""
    session: str
    """The name of this sum, the same for all members, and of no other sum: for example a task and a round."""
    length: int
    """Numbers in a vector."""
    threshold: int = 0
    """The number of members that must take part. A relay and threshold − 2 colluders then learn the total only.
    Default: over two thirds."""

    def __post_init__(self) -> None:
        if len(self.keys) < 3:
            raise ConfigError(
                f"a secure sum needs 3 members or more, not {len(self.keys)}: of 2, each learns the other's"
            )
        if len(set(self.keys.values())) < len(self.keys):
            raise ConfigError("two members of the group have the same key: each needs its own")
        if not self.threshold:
            object.__setattr__(self, "threshold", usual_threshold(len(self.keys)))
        least = max(3, len(self.keys) // 2 + 1)
        if not least <= self.threshold <= len(self.keys):
            raise ConfigError(f"threshold must be from {least} to {len(self.keys)} of them, not {self.threshold}")

    @cached_property
    def context(self) -> bytes:
        """The bytes that every mask and signature is bound to."""
        members = sorted((name, key.hex()) for name, key in self.keys.items())
        said = json.dumps([self.session, self.length, self.threshold, members])
        return b"repshare secure sum 3\0" + hashlib.sha256(said.encode()).digest()

    def check_signed(self, name: str, said: bytes, signature: bytes, reason: str) -> None:
        """Raise Refused, for this reason, unless a member has signed this for this sum."""
        try:
            Ed25519PublicKey.from_public_bytes(self.keys[name]).verify(signature, self.context + said)
        except (KeyError, InvalidSignature, ValueError) as error:
            raise Refused(f"{name}{reason}") from error


class Member:
    """One member's part in one sum. Each step can be taken once: a second vector would show how the first differs."""

    def __init__(self, group: Group, name: str, key: Key) -> None:
        if group.keys.get(name) != key.public:
            raise ConfigError(f"the group has another key for {name!r}, or none")
        self.group, self.name, self.key = group, name, key
        self._private: X25519PrivateKey | None = X25519PrivateKey.generate()
        self._announcement = b""

    def announce(self) -> bytes:
        """Return a fresh public key, signed."""
        if self._announcement or self._private is None:
            raise Refused(f"{self.name} cannot announce twice in one sum")
        public = self._private.public_key().public_bytes_raw()
        self._announcement = public + self.key.sign(self.group.context + b"announce" + public)
        return self._announcement

    def mask(self, announced: Messages, vector: Vector) -> bytes:
        """Return the vector, masked and signed. `announced` has the messages of all who take part."""
        private, self._private = self._private, None
        if private is None:
            raise Refused(f"{self.name} cannot mask twice in one sum")
        public = read_announced(self.group, announced)
        if announced.get(self.name) != self._announcement:
            raise Refused(f"the sum continued without {self.name}, or with another announcement of it")
        most = fixed_point.LIMIT / len(self.group.keys)
        if vector.shape != (self.group.length,) or vector.dtype != np.int64 or (np.abs(vector) > most).any():
            raise Refused(f"what is summed up must be {self.group.length} int64 of at most {most:.3g}")
        context, masked = self.group.context + _view(announced), vector.view(np.uint64).copy()
        for other in public.keys() - {self.name}:
            mask = pairwise_mask(private, public[other], context, (self.name, other), self.group.length)
            masked += mask if self.name < other else -mask
        body = masked.astype("<u8").tobytes()
        return body + self.key.sign(self.group.context + b"mask" + _view(announced) + body)


def add_up(group: Group, announced: Messages, masked: Messages) -> Vector:
    """Return the total of all vectors, from public messages alone. Anyone can compute it."""
    read_announced(group, announced)
    if missing := announced.keys() - masked.keys():
        raise Refused(f"{min(missing)} announced a key but sent no vector: this sum has no total, the next one may")
    if strangers := masked.keys() - announced.keys():
        raise Refused(f"{min(strangers)} sent a vector but announced no key")
    total, view = np.zeros(group.length, np.uint64), _view(announced)
    for name, body in masked.items():
        if len(body) != masked_bytes(group.length):
            raise Malformed(f"{name}'s masked vector has {len(body)} bytes; {masked_bytes(group.length)} are expected")
        vector, signature = body[:-SIGNATURE_BYTES], body[-SIGNATURE_BYTES:]
        group.check_signed(
            name, b"mask" + view + vector, signature, " was told of other members, or its message was changed"
        )
        total += np.frombuffer(vector, "<u8")
    return total.view(np.int64)


def read_announced(group: Group, announced: Messages) -> dict[str, bytes]:
    """Return each member's public key for this sum. Raises Refused unless enough members have signed theirs for it."""
    if strangers := announced.keys() - group.keys.keys():
        raise Refused(f"{min(strangers)!r} is not in the group")
    if len(announced) < group.threshold:
        raise Refused(f"only {len(announced)} members announced their keys; {group.threshold} are needed")
    for name, body in announced.items():
        if len(body) != KEY_BYTES + SIGNATURE_BYTES:
            raise Malformed(f"{name}'s announcement has {len(body)} bytes")
        reason = "'s announcement is not signed with its key for this sum: all must have the same task, members and "
        group.check_signed(name, b"announce" + body[:KEY_BYTES], body[KEY_BYTES:], f"{reason}threshold")
    return {name: body[:KEY_BYTES] for name, body in announced.items()}


def masked_bytes(length: int) -> int:
    """Return the bytes of a masked vector of `length` numbers, with its signature."""
    return 8 * length + SIGNATURE_BYTES


def usual_threshold(members: int) -> int:
    """Return the number of members that must take part in a sum, unless a group says otherwise."""
    return 2 * members // 3 + 1


def pairwise_mask(
    private: X25519PrivateKey, public: bytes, context: bytes, between: tuple[str, str], length: int
) -> NDArray[np.uint64]:
    """Return the mask of two members (length,). It depends on their names: announcing another's key undoes no mask."""
    try:
        agreed = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # a point of small order: what is agreed on would be known to all
        raise Refused(f"the public key that {between[1]} announced is invalid") from error
    info = context + json.dumps(sorted(between)).encode()
    seed = HKDF(SHA256(), KEY_BYTES, salt=None, info=info).derive(agreed)
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(8 * length))
    return np.frombuffer(stream, "<u8").astype(np.uint64)


def _view(announced: Messages) -> bytes:
    """Return a hash of what a member has been told before it masks its vector."""
    said = sorted((name, body.hex()) for name, body in announced.items())
    return hashlib.sha256(json.dumps(said).encode()).digest()
