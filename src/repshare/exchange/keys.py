"""Authenticity without a server: Ed25519 keys, trust, and signed answers.

A client that asks a peer sends a random challenge. The peer signs it together with its release, the task's name and
its own name. An answer is refused unless it is signed for this question with the key that belongs to the name. So a
recorded answer is useless: a peer that is offline teaches no other. A trust file says which key belongs to which name;
or, if wanted, the first use.
"""

import contextlib
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from repshare.errors import ConfigError, Refused
from repshare.files import HAS_MODES, explain_errors, write_atomically
from repshare.sharing import wire
from repshare.sharing.wire import Signed

CONTEXT = b"repshare answer 3\0"  # a signature made here never counts for anything else
KEY_BYTES = 32
CHALLENGE_BYTES = 32
LONGEST_KEY_FILE = 10_000  # bytes
MOST_TRUSTED = 10_000  # names in a trust file: on first use anyone can bring any number


class Key:
    """A client's private key. Anyone who has it can publish in the client's name."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        """Wrap a private key.

        Args:
            private: The Ed25519 key of the package `cryptography`.
        """
        self._private = private
        self.public = private.public_key().public_bytes_raw()

    @classmethod
    def new(cls) -> Self:
        """Make a new key."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key from a file that only its owner may read.

        Args:
            path: The file.
        """
        try:
            with explain_errors(f"the key {path} cannot be read"):
                private = load_pem_private_key(_read_private(path), None)
        except (ValueError, TypeError) as error:
            raise ConfigError(f"{path} is not a key of `repshare keys`") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise ConfigError(f"{path} is not an Ed25519 key")
        return cls(private)

    def write(self, path: Path) -> None:
        """Write the key to a new file that only its owner may read. An existing file is never replaced.

        Args:
            path: The file.
        """
        text = self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        how = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with explain_errors(f"the key cannot be kept in {path}"), os.fdopen(os.open(path, how, 0o600), "wb") as file:
            file.write(text)
            os.fsync(file.fileno())

    def sign(self, message: bytes) -> bytes:
        """Return this key's signature of a message."""
        return self._private.sign(message)


class Trust:
    """The public keys of other clients by name: a line {"name": …, "key": …} each in a file, or only in memory.

    A key belongs to one name: otherwise its owner would count as several.
    """

    def __init__(self, path: Path | None = None, *, first_use: bool = False) -> None:
        """Read the trust file, if there is one.

        Args:
            path: The trust file. Default: none; keys are kept in memory.
            first_use: Trust the first client under a name that is not in the file, and remember its key.
        """
        self.path, self.first_use = path, first_use
        self._keys: dict[str, bytes] = dict(_read(path)) if path is not None and path.exists() else {}

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return iter(sorted(self._keys.items()))

    def get(self, name: str) -> bytes | None:
        """Return the key of this name, if it is known."""
        return self._keys.get(name)

    def could_admit(self, name: str) -> bool:
        """Whether any key could be accepted for this name."""
        return self.first_use or name in self._keys

    def add(self, name: str, key: bytes) -> None:
        """Trust this key to speak for this name. A name that has another key is refused."""
        known = self._keys.get(name)
        if known == key:
            return
        if known is not None:
            raise Refused(
                f"{name} is known by the key {known.hex()}, not {key.hex()}: remove its line from the trust file first"
            )
        if owner := next((other for other, theirs in self._keys.items() if theirs == key), None):
            raise Refused(f"the key {key.hex()} is {owner}'s: {name} needs its own")
        if len(self._keys) >= MOST_TRUSTED:
            raise Refused(f"{MOST_TRUSTED:,} names are trusted already: {name} cannot be added")
        if self.path is not None:
            _append(self.path, json.dumps({"name": name, "key": key.hex()}))
        self._keys[name] = key

    def admit(self, name: str, key: bytes) -> None:
        """Raise Refused unless this key may speak for this name."""
        if not self.could_admit(name):
            raise Refused(f"its key {key.hex()} is not trusted: add it to the trust file")
        self.add(name, key)


def parse_public(text: str) -> bytes:
    """Return a public key from 64 hexadecimal digits."""
    with contextlib.suppress(ValueError):
        key = bytes.fromhex(text.strip())
        if len(key) == KEY_BYTES:
            return key
    raise ConfigError(f"{text[:80]!r} is not a public key: it must be {2 * KEY_BYTES} hexadecimal digits")


def seal(key: Key, task: str, client: str, release: bytes, challenge: bytes) -> bytes:
    """Return a signed answer to the question with this challenge. No release: this client shares nothing now."""
    unsigned = Signed(task, client, release, key.public, b"")
    return wire.encode_signed(unsigned._replace(signature=key.sign(_message(unsigned, challenge))))


def unseal(body: bytes, task: str, client: str, trust: Trust, challenge: bytes) -> Signed:
    """Return the answer in these bytes. Raises Malformed or Refused if it is not this client's, for this question."""
    signed = wire.decode_signed(body)
    if signed.task != task:
        raise Refused(f"it is for the task {signed.task[:80]!r}, not for {task!r}")
    if signed.client != client:
        raise Refused(f"it is by {signed.client[:80]!r}, not by {client!r}")
    try:
        Ed25519PublicKey.from_public_bytes(signed.key).verify(signed.signature, _message(signed, challenge))
    except (InvalidSignature, ValueError) as error:
        raise Refused("its signature is not its key's for this question: it is forged, or was recorded") from error
    trust.admit(client, signed.key)  # after the signature: on first use only what the key's owner made counts
    return signed


def _message(signed: Signed, challenge: bytes) -> bytes:
    """Return the message to sign: no two answers and questions have the same one."""
    digest = hashlib.sha256(signed.release).hexdigest()
    said = [signed.task, signed.client, challenge.hex(), digest]
    return CONTEXT + json.dumps(said).encode()


def _read_private(path: Path) -> bytes:
    """Read a regular file that only its owner may read. It is opened once, so that it cannot be swapped in between."""
    how = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)  # a pipe would keep us waiting; on Windows, none is a file
    with os.fdopen(os.open(path, how), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(f"{path} is not a file")
        if HAS_MODES and status.st_mode & 0o077:
            raise ConfigError(f"others may read the key in {path}: chmod 600 {path}")
        return file.read(LONGEST_KEY_FILE)


def _read(path: Path) -> Iterator[tuple[str, bytes]]:
    try:
        if HAS_MODES and path.stat().st_mode & 0o002:
            raise ConfigError(f"anyone on this machine may change the trust file {path}: chmod o-w {path}")
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the trust file {path} cannot be read: {getattr(error, 'strerror', 'not text')}") from error
    seen = set[str | bytes]()
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
            name, key = entry["name"], parse_public(entry["key"])
        except (ValueError, KeyError, TypeError, AttributeError, ConfigError) as error:
            raise ConfigError(f'{path}, line {number}: must be like {{"name": "bob", "key": "…"}}') from error
        if not isinstance(name, str) or name in seen:
            raise ConfigError(f"{path}, line {number}: {name!r} is not a name, or is listed twice")
        if key in seen:
            raise ConfigError(f"{path}, line {number}: the key of {name!r} is another's already; each needs its own")
        seen |= {name, key}
        yield name, key


def _append(path: Path, line: str) -> None:
    """Add a line, durably: the file is written whole or not at all."""
    try:
        before = path.read_text() if path.exists() else ""
        end = "" if before.endswith("\n") or not before else "\n"  # written by hand, without one
        write_atomically(path, f"{before}{end}{line}\n", private=not path.exists())
    except (OSError, UnicodeDecodeError) as error:
        raise Refused(f"{path} cannot be written: {getattr(error, 'strerror', 'not text')}") from error
