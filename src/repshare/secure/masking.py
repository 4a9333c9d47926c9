"""Secure sums: the messages of a group give the total of its members' vectors, and nothing else about any of them.

    announce   a public key, fresh for this meeting, signed with the member's own key
    mask       a vector, plus or minus a mask for each other member, which cancel in pairs; signed together with who
               announced what, as this member was told. One key masks several vectors of a meeting, by their names

All must send their vectors: if one does not, its masks do not cancel, and there is no total. Members who were told
different things have other masks, which do not cancel either. Numbers are whole, modulo 2⁶⁴ (see `fixed_point`), so
totals are exact. lab/notebook/secure-sums.md says against whom this protects, and why.
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
FEWEST = 3  # members: of 2, each learns the other's vector

Vector = NDArray[np.int64]
Messages = Mapping[str, bytes]  # by sender


@dataclass(frozen=True)
class Group:
    """The members of a meeting. The relay and all members but two together learn the total of these two only."""

    keys: Mapping[str, bytes]
    """The public half of each member's key, by name."""
    session: str
    """The name of this meeting, the same for all members, and of no other: for example a task and a number."""

    def __post_init__(self) -> None:
        if len(self.keys) < FEWEST:
            raise ConfigError(f"a secure sum needs {FEWEST} members or more, not {len(self.keys)}")
        if len(set(self.keys.values())) < len(self.keys):
            raise ConfigError("two members of the group have the same key: each needs its own")

    @cached_property
    def context(self) -> bytes:
        """The bytes that every mask and signature is bound to."""
        members = sorted((name, key.hex()) for name, key in self.keys.items())
        said = json.dumps([self.session, members])
        return b"repshare secure sum 4\0" + hashlib.sha256(said.encode()).digest()

    def check_signed(self, name: str, said: bytes, signature: bytes, reason: str) -> None:
        """Raise Refused, for this reason, unless a member has signed this for this meeting."""
        try:
            Ed25519PublicKey.from_public_bytes(self.keys[name]).verify(signature, self.context + said)
        except (KeyError, InvalidSignature, ValueError) as error:
            raise Refused(f"{name}{reason}") from error


class Member:
    """One member's part in one meeting. Each step is taken once: a second vector would show how the first differs."""

    def __init__(self, group: Group, name: str, key: Key) -> None:
        if group.keys.get(name) != key.public:
            raise ConfigError(f"the group has another key for {name!r}, or none")
        self.group, self.name, self.key = group, name, key
        self._private = X25519PrivateKey.generate()
        self._announcement, self._masked = b"", set[str]()

    def announce(self) -> bytes:
        """Return a fresh public key, signed."""
        if self._announcement:
            raise Refused(f"{self.name} cannot announce twice in one meeting")
        public = self._private.public_key().public_bytes_raw()
        self._announcement = public + self.key.sign(self.group.context + b"announce" + public)
        return self._announcement

    def mask(self, announced: Messages, what: str, vector: Vector) -> bytes:
        """Return the vector of this name, masked and signed. `announced` has the messages of all members."""
        if what in self._masked:
            raise Refused(f"{self.name} cannot mask twice in one sum")
        public = read_announced(self.group, announced)
        if announced[self.name] != self._announcement:
            raise Refused(f"the sum continued without {self.name}, or with another announcement of it")
        most = fixed_point.LIMIT / len(self.group.keys)
        if vector.ndim != 1 or vector.dtype != np.int64 or (np.abs(vector) > most).any():
            raise Refused(f"what is summed up must be int64 of at most {most:.3g}")
        self._masked.add(what)
        view = _view(announced, what, len(vector))
        context, masked = self.group.context + view, vector.view(np.uint64).copy()
        for other in public.keys() - {self.name}:
            mask = pairwise_mask(self._private, public[other], context, (self.name, other), len(vector))
            masked += mask if self.name < other else -mask
        body = masked.astype("<u8").tobytes()
        return body + self.key.sign(self.group.context + b"mask" + view + body)


def add_up(group: Group, announced: Messages, masked: Messages, what: str, length: int) -> Vector:
    """Return the total of all vectors of this name, from public messages alone. Anyone can compute it."""
    read_announced(group, announced)
    if masked.keys() != announced.keys():
        raise Refused(f"{min(masked.keys() ^ announced.keys())} did not both announce a key and send a vector")
    total, view = np.zeros(length, np.uint64), _view(announced, what, length)
    for name, body in masked.items():
        if len(body) != masked_bytes(length):
            raise Malformed(f"{name}'s masked vector has {len(body)} bytes; {masked_bytes(length)} are expected")
        vector, signature = body[:-SIGNATURE_BYTES], body[-SIGNATURE_BYTES:]
        group.check_signed(
            name, b"mask" + view + vector, signature, " was told of other members, or its message was changed"
        )
        total += np.frombuffer(vector, "<u8")
    return total.view(np.int64)


def read_announced(group: Group, announced: Messages) -> dict[str, bytes]:
    """Return each member's public key for this meeting. Raises Refused unless all members have signed theirs for it."""
    if strangers := announced.keys() ^ group.keys.keys():
        raise Refused(f"{min(strangers)!r} is not in the group, or announced no key")
    for name, body in announced.items():
        if len(body) != KEY_BYTES + SIGNATURE_BYTES:
            raise Malformed(f"{name}'s announcement has {len(body)} bytes")
        reason = "'s announcement is not signed with its key for this sum: all must have the same task and members"
        group.check_signed(name, b"announce" + body[:KEY_BYTES], body[KEY_BYTES:], reason)
    return {name: body[:KEY_BYTES] for name, body in announced.items()}


def masked_bytes(length: int) -> int:
    """Return the bytes of a masked vector of `length` numbers, with its signature."""
    return 8 * length + SIGNATURE_BYTES


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


def _view(announced: Messages, what: str, length: int) -> bytes:
    """Return a hash of what a member has been told before it masks a vector, and of the vector's name and length."""
    said = sorted((name, body.hex()) for name, body in announced.items())
    return hashlib.sha256(json.dumps([said, what, length]).encode()).digest()
