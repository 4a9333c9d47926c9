"""Secure sums: the messages of a group give the total of its members' vectors, and nothing else about any of them.

After Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning" (2017). Five steps, in
each of which some members may be missing from then on:

    announce   two public keys, fresh for this sum and signed, and a commitment to a seed
    deal       for every other member, encrypted for it, a share of the seed and one of the second private key
    mask       the vector, plus a mask from the seed, plus or minus one for every other dealer, which cancel in pairs;
               signed together with who announced what, and who dealt, as this member was told
    confirm    with a signature, whose vectors are there: all of these must have been told the same before
    open       of everyone whose vector is there, a share of the seed; of those who dropped out before, of the key

Enough shares (`threshold`) restore a seed or a key, so that masks that do not cancel can be subtracted. Of one member,
never both are restored: the seed still covers a vector that arrives after its sender was taken for dropped out.
Numbers are whole, modulo 2⁶⁴ (see `fixed_point`), so totals are exact. lab/notebook/secure-sums.md says against whom
this protects, and why against that many.
"""

import hashlib
import json
import secrets
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidSignature, InvalidTag
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.ciphers.algorithms import ChaCha20
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from repshare.errors import ConfigError, Malformed, Refused
from repshare.exchange.keys import Key
from repshare.sharing import fixed_point, wire

PRIME = 2**521 - 1  # shares are numbers below it: any prime above 2²⁵⁶ does
SHARE_BYTES = 66
SECRET_BYTES = 32
NONCE_BYTES = 12
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
    """The number of members that must stay to the end. Fewer than 2 · threshold − n colluders then learn nothing,
    whatever the relay tells whom. Default: over two thirds."""

    def __post_init__(self) -> None:
        if len(self.keys) < 3:
            raise ConfigError(
                f"a secure sum needs 3 members or more, not {len(self.keys)}: of 2, each learns the other's"
            )
        if len(set(self.keys.values())) < len(self.keys):
            raise ConfigError("two members of the group have the same key: each needs its own")
        if not self.threshold:
            object.__setattr__(self, "threshold", usual_threshold(len(self.keys)))
        if not len(self.keys) // 2 < self.threshold <= len(self.keys):
            least = len(self.keys) // 2 + 1
            raise ConfigError(f"threshold must be from {least} to {len(self.keys)} of them, not {self.threshold}")

    @cached_property
    def context(self) -> bytes:
        """The bytes that every key, share and signature is bound to."""
        members = sorted((name, key.hex()) for name, key in self.keys.items())
        said = json.dumps([self.session, self.length, self.threshold, members])
        return b"repshare secure sum 2\0" + hashlib.sha256(said.encode()).digest()

    def share_index(self, name: str) -> int:
        """Return the point at which a member's shares are computed: its number from 1."""
        return sorted(self.keys).index(name) + 1

    def check_enough(self, names: Collection[str], what: str) -> None:
        """Raise Refused if these are too few, or strangers are among them."""
        if strangers := set(names) - set(self.keys):
            raise Refused(f"{min(strangers)!r} is not in the group")
        if len(names) < self.threshold:
            raise Refused(f"only {len(names)} members {what}; {self.threshold} are needed")


class Announced:
    """A member's message in the first step."""

    def __init__(self, group: Group, name: str, body: bytes) -> None:
        """Raise Refused unless it is signed with the member's key for this very sum."""
        if len(body) != 3 * SECRET_BYTES + SIGNATURE_BYTES:
            raise Malformed(f"{name}'s announcement has {len(body)} bytes")
        said, signature = body[:-SIGNATURE_BYTES], body[-SIGNATURE_BYTES:]
        if not _is_signed(group, name, b"announce" + said, signature):
            asked = "all must have the same task, members and threshold"
            raise Refused(f"{name}'s announcement is not signed with its key for this sum: {asked}")
        self.cipher, self.masking, self.commitment = (said[at : at + SECRET_BYTES] for at in (0, 32, 64))


class Member:
    """One member's part in one sum. Each step can be taken once: a second answer could give a mask away."""

    def __init__(self, group: Group, name: str, key: Key) -> None:
        if group.keys.get(name) != key.public:
            raise ConfigError(f"the group has another key for {name!r}, or none")
        self.group, self.name, self.key = group, name, key
        self._cipher, self._masking = (X25519PrivateKey.generate() for _ in range(2))
        self._seed = secrets.token_bytes(SECRET_BYTES)
        self._told: dict[str, bytes] = {}  # what everyone announced
        self._announced: dict[str, Announced] = {}
        self._shares: dict[str, bytes] = {}  # by whose they are: of its seed, then of its key
        self._view = self._present = b""  # what this member was told: of announcements and dealers; of vectors, too
        self._masked: frozenset[str] = frozenset()  # whose vectors are there
        self._steps = ["announce", "deal", "mask", "confirm", "open"]

    def announce(self) -> bytes:
        """Return the public keys, and a commitment to the seed."""
        self._take("announce")
        public = [key.public_key().public_bytes_raw() for key in (self._cipher, self._masking)]
        said = b"".join([*public, _commit(self._seed)])
        self._told = {self.name: said + self._sign(b"announce" + said)}
        return self._told[self.name]

    def deal(self, announced: Messages) -> bytes:
        """Share both secrets out among those who announced."""
        self._take("deal")
        self._among(announced, "announced their keys")
        if announced[self.name] != self._told[self.name]:
            raise Refused(f"the sum continued with another announcement of {self.name}")
        self._told = dict(announced)
        self._announced = {name: Announced(self.group, name, body) for name, body in announced.items()}
        indexes = [self.group.share_index(name) for name in announced]
        parts = [split(each, self.group.threshold, indexes) for each in (self._seed, self._masking.private_bytes_raw())]
        return wire.encode_items({
            name: self._seal(name, b"".join(part[self.group.share_index(name)] for part in parts)) for name in announced
        })  # fmt: skip

    def mask(self, dealt: Messages, vector: Vector) -> bytes:
        """Return the vector, masked and signed. `dealt` has the messages of all who dealt shares."""
        self._take("mask")
        self._among(dealt, "dealt shares")
        most = fixed_point.LIMIT / len(self.group.keys)
        if vector.shape != (self.group.length,) or vector.dtype != np.int64 or (np.abs(vector) > most).any():
            raise Refused(f"what is summed up must be {self.group.length} int64 of at most {most:.3g}")
        self._shares = {name: self._open_share(name, body) for name, body in dealt.items()}
        masked = vector.view(np.uint64) + _stretch(self._seed, self.group.length)
        for other in set(dealt) - {self.name}:
            masked += pairwise_mask(self.group, self._masking, self._announced[other].masking, (self.name, other))
        body, self._view = masked.astype("<u8").tobytes(), _view(self._told, dealt)
        return body + self._sign(b"mask" + self._view + body)

    def confirm(self, masked: Messages) -> bytes:
        """Sign whose vectors are there, if all of them were masked with the same dealers as this member's."""
        self._take("confirm")
        self._among(masked, "sent a vector")
        if unknown := set(masked) - set(self._shares):
            raise Refused(f"{min(unknown)} sent a vector but dealt no shares")
        for name, body in masked.items():
            _read_masked(self.group, self._view, name, body)
        self._present = b"confirm" + self._view + json.dumps(sorted(masked)).encode()
        self._masked = frozenset(masked)
        return self._sign(self._present)

    def open(self, confirmed: Messages) -> bytes:
        """Return shares for removing the masks, once enough members have confirmed what this one was told."""
        self._take("open")
        alike = [
            name for name, signature in confirmed.items() if _is_signed(self.group, name, self._present, signature)
        ]
        self.group.check_enough(alike, "were told the same about who takes part")
        masked = self._masked
        cut = {name: slice(SHARE_BYTES) if name in masked else slice(SHARE_BYTES, None) for name in self._shares}
        return wire.encode_items({name: shares[cut[name]] for name, shares in self._shares.items()})

    def _take(self, step: str) -> None:
        if not self._steps or self._steps[0] != step:
            raise Refused(f"{self.name} cannot {step} {'now' if step in self._steps else 'twice'} in one sum")
        del self._steps[0]

    def _among(self, names: Collection[str], what: str) -> None:
        self.group.check_enough(names, what)
        if self.name not in names:
            raise Refused(f"the sum continued without {self.name}")

    def _sign(self, said: bytes) -> bytes:
        return self.key.sign(self.group.context + said)

    def _seal(self, to: str, shares: bytes) -> bytes:
        nonce = secrets.token_bytes(NONCE_BYTES)
        return nonce + self._box(to).encrypt(nonce, shares, json.dumps([self.name, to]).encode())

    def _open_share(self, sender: str, body: bytes) -> bytes:
        """Return the shares that a member dealt to this one."""
        if sender not in self._announced:
            raise Refused(f"{sender} dealt shares but announced no keys")
        sealed, between = wire.decode_items(body).get(self.name, b""), json.dumps([sender, self.name]).encode()
        try:
            shares = self._box(sender).decrypt(sealed[:NONCE_BYTES], sealed[NONCE_BYTES:], between)
        except (InvalidTag, ValueError) as error:
            raise Malformed(f"the shares that {sender} dealt to {self.name} cannot be read") from error
        if len(shares) != 2 * SHARE_BYTES:
            raise Malformed(f"{sender} dealt shares of {len(shares)} bytes")
        return shares

    def _box(self, other: str) -> ChaCha20Poly1305:
        public = self._announced[other].cipher
        return ChaCha20Poly1305(_agree(self.group, self._cipher, public, b"shares", (self.name, other)))


def add_up(group: Group, announced: Messages, dealt: Collection[str], masked: Messages, opened: Messages) -> Vector:
    """Return the total of the vectors that are there, from public messages alone. Anyone can compute it."""
    group.check_enough(masked, "sent a vector")
    group.check_enough(opened, "gave shares")
    if not set(masked) <= set(dealt) <= set(announced):
        raise Refused("a member takes part in a step without the one before")
    keys = {name: Announced(group, name, announced[name]) for name in dealt}
    shares = {name: _read_shares(name, body, dealt) for name, body in opened.items()}
    total, view = np.zeros(group.length, np.uint64), _view(announced, dealt)
    for name, body in masked.items():
        total += _read_masked(group, view, name, body)
    for name in dealt:
        secret = join({group.share_index(by): of[name] for by, of in shares.items()}, group.threshold)
        if name in masked:
            if _commit(secret) != keys[name].commitment:
                raise Malformed(f"the shares of {name}'s seed do not fit together")
            total -= _stretch(secret, group.length)
        else:
            total -= _left_over(group, name, secret, keys, masked)
    return total.view(np.int64)


def _view(announced: Messages, dealt: Collection[str]) -> bytes:
    """Return a hash of what a member has been told before it masks its vector."""
    said = [sorted((name, body.hex()) for name, body in announced.items()), sorted(dealt)]
    return hashlib.sha256(json.dumps(said).encode()).digest()


def masked_bytes(length: int) -> int:
    """Return the bytes of a masked vector of `length` numbers, with its signature."""
    return 8 * length + SIGNATURE_BYTES


def _read_masked(group: Group, view: bytes, name: str, body: bytes) -> NDArray[np.uint64]:
    """Return a member's masked vector, if it was told what `view` says."""
    vector, signature = body[:-SIGNATURE_BYTES], body[-SIGNATURE_BYTES:]
    if len(body) != masked_bytes(group.length):
        raise Malformed(f"{name}'s masked vector has {len(vector)} bytes; {8 * group.length} are expected")
    if not _is_signed(group, name, b"mask" + view + vector, signature):
        raise Refused(f"{name} was told of other members, or its message was changed")
    return np.frombuffer(vector, "<u8")


def _is_signed(group: Group, name: str, said: bytes, signature: bytes) -> bool:
    """Return whether a member has signed this for this sum."""
    try:
        Ed25519PublicKey.from_public_bytes(group.keys[name]).verify(signature, group.context + said)
    except (KeyError, InvalidSignature, ValueError):
        return False
    return True


def _left_over(
    group: Group, name: str, secret: bytes, keys: Mapping[str, Announced], masked: Iterable[str]
) -> NDArray[np.uint64]:
    """Return the other members' masks with one who dropped out, which nothing cancels."""
    private = X25519PrivateKey.from_private_bytes(secret)
    if private.public_key().public_bytes_raw() != keys[name].masking:
        raise Malformed(f"the shares of {name}'s key do not fit together")
    left = np.zeros(group.length, np.uint64)
    for other in masked:
        left += pairwise_mask(group, private, keys[other].masking, (other, name))
    return left


def pairwise_mask(
    group: Group, private: X25519PrivateKey, public: bytes, between: tuple[str, str]
) -> NDArray[np.uint64]:
    """Return the mask that the first of two members adds, and the other subtracts. No one else can compute it."""
    mask = _stretch(_agree(group, private, public, b"mask", between), group.length)
    return mask if between[0] < between[1] else -mask


def usual_threshold(members: int) -> int:
    """Return how many members must stay to the end of a sum, unless a group says otherwise."""
    return 2 * members // 3 + 1


def split(secret: bytes, threshold: int, indexes: Iterable[int]) -> dict[int, bytes]:
    """Return shares of a secret (Shamir, 1979): with fewer than `threshold` of them it may be anything."""
    terms = [int.from_bytes(secret), *(secrets.randbelow(PRIME) for _ in range(threshold - 1))]
    values = {index: sum(term * pow(index, power, PRIME) for power, term in enumerate(terms)) for index in indexes}
    return {index: (value % PRIME).to_bytes(SHARE_BYTES) for index, value in values.items()}


def join(shares: Mapping[int, bytes], threshold: int) -> bytes:
    """Return the secret behind these shares: the polynomial's value at 0. If they do not fit, it is any number."""
    chosen = sorted(shares.items())[:threshold]
    total = 0
    for index, share in chosen:
        value = int.from_bytes(share)
        for other, _ in chosen:
            if other != index:
                value = value * other * pow(other - index, -1, PRIME) % PRIME
        total += value
    return (total % PRIME).to_bytes(SHARE_BYTES)[-SECRET_BYTES:]


def _read_shares(name: str, body: bytes, dealt: Collection[str]) -> dict[str, bytes]:
    shares = wire.decode_items(body)
    if set(shares) != set(dealt) or any(len(share) != SHARE_BYTES for share in shares.values()):
        raise Malformed(f"{name} must give one share of {SHARE_BYTES} bytes for each of {len(dealt)} members")
    return shares


def _agree(group: Group, private: X25519PrivateKey, public: bytes, purpose: bytes, between: tuple[str, str]) -> bytes:
    """Return a secret of two members. It depends on their names: announcing another's key undoes no mask."""
    try:
        agreed = private.exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError as error:  # a point of small order: what is agreed on would be known to all
        raise Refused("a public key is invalid") from error
    info = group.context + purpose + json.dumps(sorted(between)).encode()
    return HKDF(SHA256(), SECRET_BYTES, salt=None, info=info).derive(agreed)


def _stretch(seed: bytes, length: int) -> NDArray[np.uint64]:
    """Expand a seed to `length` numbers modulo 2⁶⁴: ChaCha20's stream. No seed is used for anything else."""
    stream = Cipher(ChaCha20(seed, bytes(16)), mode=None).encryptor().update(bytes(8 * length))
    return np.frombuffer(stream, "<u8").astype(np.uint64)


def _commit(seed: bytes) -> bytes:
    return hashlib.sha256(b"repshare seed\0" + seed).digest()
