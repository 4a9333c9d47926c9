"""Who may do what: tokens, of which only a hash is kept.

A token is `rs_<id>_<secret>`. The id finds the entry; the secret's SHA-256 must be the one that stands in it. The
secret has 256 random bits, so a slow hash would add nothing.
"""

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

from repshare.errors import ConfigError
from repshare.relay.names import check_client_name, check_name
from repshare.stores import Database, Transaction

Role = Literal["client", "admin", "viewer"]

REMEMBERED_SECONDS = 1.0  # how long a revoked token may still work in a relay that has just seen it
MOST_REMEMBERED = 100_000


class Grant(NamedTuple):
    """What a token allows: to publish as `name` in `task`, to look at it, or to look after it (None: all tasks)."""

    role: Role
    name: str
    task: str | None


class Entry(NamedTuple):
    """A token as it is kept."""

    id: str
    grant: Grant
    digest: bytes
    created: float  # seconds since 1970


class Access:
    """The tokens in a database. Every relay and command on the same database sees the same ones."""

    def __init__(self, database: Database, clock: Callable[[], float] = time.monotonic) -> None:
        self._store, self._clock = database.store("access"), clock
        self._remembered: dict[str, tuple[float, Entry]] = {}  # by id, with the time until which it may be used

    def invite(self, grant: Grant, *, renew: bool = False) -> str:
        """A new token, which is kept nowhere. A name has one token in a task: `renew` ends the one before."""
        _check(grant)
        token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        entry = Entry(token_id, grant, _digest(secret), time.time())

        def work(state: Transaction) -> None:
            (before,) = state.get([_holder(grant)])
            if before is not None and not renew:
                where = f" in {grant.task}" if grant.task is not None else ""
                raise ConfigError(f"{grant.name} has a token{where} already: revoke it, or --renew it")
            if before is not None:
                state.delete([f"token/{before.decode()}"])
            state.set({f"token/{token_id}": _encode(entry), _holder(grant): token_id.encode()})

        self._store.transact(work)
        return f"rs_{token_id}_{secret}"

    def revoke(self, name: str, task: str | None) -> Grant:
        """End the token that this name has in this task."""

        def work(state: Transaction) -> Entry:
            holder = _holder(Grant("client", name, task))
            (token_id,) = state.get([holder])
            if token_id is None:
                where = f" in {task}" if task is not None else " for all tasks"
                raise ConfigError(f"{name} has no token{where}")
            (kept,) = state.get([f"token/{token_id.decode()}"])
            state.delete([holder, f"token/{token_id.decode()}"])
            return _decode(token_id.decode(), kept or b"")

        entry = self._store.transact(work)
        self._remembered.pop(entry.id, None)
        return entry.grant

    def revoke_all(self, task: str) -> None:
        """End all tokens of a task."""
        gone = [entry for entry in self.entries() if entry.grant.task == task]
        keys = [key for entry in gone for key in (f"token/{entry.id}", _holder(entry.grant))]
        self._store.transact(lambda state: state.delete(keys))
        for entry in gone:
            self._remembered.pop(entry.id, None)

    def find(self, token: str) -> Grant | None:
        """What this token allows; None if it is not one of ours, or not any more."""
        return self.find_all([token])[0]

    def find_all(self, tokens: Sequence[str]) -> list[Grant | None]:
        """What each of these tokens allows."""
        parts = [split(token) for token in tokens]
        kept = self._store.read(lambda state: state.get([f"token/{token_id}" for token_id, _ in parts]))
        found = []
        for (token_id, secret), each in zip(parts, kept, strict=True):
            entry = self._remember(token_id, each)
            good = entry and hmac.compare_digest(entry.digest, _digest(secret))
            found.append(entry.grant if entry and good else None)
        return found

    def recall(self, token: str) -> Grant | None:
        """What `find` said a moment ago, without asking the database; None if it must be asked."""
        token_id, secret = split(token)
        until, entry = self._remembered.get(token_id, (0.0, None))
        if entry is None or self._clock() > until or not hmac.compare_digest(entry.digest, _digest(secret)):
            return None
        return entry.grant

    def entries(self) -> list[Entry]:
        """All tokens, without their secrets, the oldest first."""
        kept = self._store.items()
        found = [_decode(key[6:], value) for key, value in kept.items() if key.startswith("token/")]
        return sorted(found, key=lambda entry: entry.created)

    def _remember(self, token_id: str, kept: bytes | None) -> Entry | None:
        if kept is None:
            self._remembered.pop(token_id, None)
            return None
        if len(self._remembered) >= MOST_REMEMBERED:
            self._remembered.clear()
        entry = _decode(token_id, kept)
        self._remembered[token_id] = (self._clock() + REMEMBERED_SECONDS, entry)
        return entry


def split(token: str) -> tuple[str, str]:
    """A token's id and its secret; both empty if this is no token."""
    mark, _, rest = token.partition("_")
    token_id, _, secret = rest.partition("_")
    return (token_id, secret) if mark == "rs" and token_id.isalnum() and token_id.isascii() else ("", "")


def _check(grant: Grant) -> None:
    check_client_name(grant.name)
    if grant.task is not None:
        check_name(grant.task)
    elif grant.role == "client":
        raise ConfigError(f"a client belongs to a task: invite {grant.name} with --task")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _holder(grant: Grant) -> str:
    return f"holder/{json.dumps([grant.task, grant.name])}"


def _encode(entry: Entry) -> bytes:
    kept = {**entry.grant._asdict(), "sha256": entry.digest.hex(), "created": entry.created}
    return json.dumps(kept).encode()


def _decode(token_id: str, kept: bytes) -> Entry:
    values = json.loads(kept)
    grant = Grant(values["role"], values["name"], values["task"])
    return Entry(token_id, grant, bytes.fromhex(values["sha256"]), values["created"])
