"""Authorisation: tokens, of which only a hash is kept.

A token is `rs_<id>_<secret>`. The id finds the entry; the secret's SHA-256 must be the one that stands in it. The
secret has 256 random bits, so a slow hash would add nothing.
"""

import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from repshare.errors import ConfigError, Damaged, Refused
from repshare.stores import Database, Transaction, decoded, find_faults

TASK_NAME = re.compile(r"[\w .\-]{1,64}")
LONGEST = 64  # characters of a client's name


def is_name(text: str) -> bool:
    """Whether this may name a task."""
    return TASK_NAME.fullmatch(text) is not None and text.strip(" .") != ""


def is_client_name(text: str) -> bool:
    """Whether this may name a client: any printable text that can be a part of a path."""
    return 1 <= len(text) <= LONGEST and text.isprintable() and "/" not in text and text.strip(" .") != ""


def check_name(text: str) -> None:
    """Raise ConfigError if this cannot name a task."""
    if not is_name(text):
        allowed = "1 to 64 letters, digits, spaces, dots, _ and -, not only dots and spaces"
        raise ConfigError(f"{text[:80]!r} cannot name a task: {allowed}")


def check_client_name(text: str) -> None:
    """Raise ConfigError if this cannot name a client."""
    if not is_client_name(text):
        allowed = "1 to 64 printable characters without /, not only dots and spaces"
        raise ConfigError(f"{text[:80]!r} cannot name a client: {allowed}")


Role = Literal["client", "viewer"]

MOST_DAYS = 36_500
DAY_SECONDS = 86_400.0
SKEW_SECONDS = 300.0  # by which clocks of relays over one database may differ


class Grant(NamedTuple):
    """A token's permission: to publish as `name` in `task`, or to look at it (None: at all tasks)."""

    role: Role
    name: str
    task: str | None


class TokenEntry(NamedTuple):
    """A token as it is kept."""

    id: str
    grant: Grant
    digest: bytes
    created: float  # seconds since 1970
    expires: float | None = None  # seconds since 1970; None: never


class Access:
    """The tokens in a database. Every relay and command on the same database sees the same ones."""

    def __init__(self, database: Database, now: Callable[[], float] = time.time) -> None:
        """`now` says when a token expires."""
        self.store, self._now = database.store("access"), now

    def invite(
        self,
        grant: Grant,
        *,
        renew: bool = False,
        days: float | None = None,
    ) -> str:
        """A new token, which is kept nowhere. A name has one token in a task: `renew` ends the one before.

        It expires after this number of days; None: never.
        """
        check_client_name(grant.name)
        if grant.task is not None:
            check_name(grant.task)
        elif grant.role == "client":
            raise ConfigError(f"a client belongs to a task: invite {grant.name} with --task")
        if days is not None and not 0 < days <= MOST_DAYS:
            raise ConfigError(f"a token can be valid for up to {MOST_DAYS:,} days, not for {days:g}")
        token_id, secret = secrets.token_hex(8), secrets.token_urlsafe(32)
        now = self._now()
        expires = None if days is None else now + days * DAY_SECONDS
        entry = TokenEntry(token_id, grant, _digest(secret), now, expires)

        def work(state: Transaction) -> None:
            before = _tokens_of(state, grant.task, grant.name)
            if before and not renew:
                where = f" in {grant.task}" if grant.task is not None else ""
                raise Refused(f"{grant.name} has a token{where} already: revoke it, or --renew it")
            _end(state, before)
            state.set({f"token/{token_id}": _encode(entry)})

        self.store.transact(work)
        return f"rs_{token_id}_{secret}"

    def revoke(self, name: str, task: str | None) -> Grant:
        """End the token that this name has in this task."""

        def work(state: Transaction) -> list[TokenEntry]:
            ended = _tokens_of(state, task, name)
            if not ended:
                where = f" in {task}" if task is not None else " for all tasks"
                raise ConfigError(f"{name[:80]} has no token{where}")
            _end(state, ended)
            return ended

        return self.store.transact(work)[0].grant

    def revoke_all(self, task: str) -> None:
        """End all tokens of a task."""
        self.store.transact(lambda state: _end(state, _tokens_of(state, task)))

    def find(self, token: str) -> Grant | None:
        """The grant of a token; None if it is unknown, revoked or expired."""
        return self.store.read(lambda state: self.find_in(state, token))

    def find_in(self, state: Transaction, token: str) -> Grant | None:
        """The grant of a token, read within a transaction of the store."""
        token_id, secret = split_token(token)
        (kept,) = state.get([f"token/{token_id}"])
        entry = None if kept is None else _decode(token_id, kept)
        return entry.grant if entry and self._is_valid(entry, secret) else None

    def _is_valid(self, entry: TokenEntry, secret: str) -> bool:
        """Whether this is the token's secret, and the token has not expired.

        By a clock from before it was made, a token that expires is not valid: whether it has expired is not known.
        """
        expired = entry.expires is not None and not entry.created - SKEW_SECONDS <= self._now() < entry.expires
        return hmac.compare_digest(entry.digest, _digest(secret)) and not expired

    def entries(self) -> list[TokenEntry]:
        """All tokens, without their secrets, the oldest first."""
        kept = self.store.read(lambda state: list(state.scan("token/")))
        return sorted((_decode(key[6:], value) for key, value in kept), key=lambda entry: entry.created)

    def find_faults(self) -> dict[str, str]:
        """The tokens that cannot be read: key -> reason."""

        def decode(key: str, kept: bytes) -> None:
            if key.startswith("token/"):  # versions up to commit 15ddcbb kept names as keys, too
                _decode(key[6:], kept)

        return self.store.read(lambda state: find_faults(state, decode))


def _tokens_of(state: Transaction, task: str | None, name: str | None = None) -> list[TokenEntry]:
    """The tokens of this name in this task; without a name, all of the task's. What cannot be read opens nothing."""
    found = list[TokenEntry]()
    for key, kept in state.scan("token/"):
        with suppress(Damaged):
            found.append(_decode(key[6:], kept))
    return [entry for entry in found if entry.grant.task == task and name in (None, entry.grant.name)]


def _end(state: Transaction, ended: Sequence[TokenEntry]) -> None:
    """Delete these tokens."""
    state.delete([f"token/{entry.id}" for entry in ended])


def split_token(token: str) -> tuple[str, str]:
    """A token's id and its secret; both empty if this is no token."""
    mark, _, rest = token.partition("_")
    token_id, _, secret = rest.partition("_")
    return (token_id, secret) if mark == "rs" and token_id.isalnum() and token_id.isascii() else ("", "")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()


def _encode(entry: TokenEntry) -> bytes:
    kept = {**entry.grant._asdict(), "sha256": entry.digest.hex(), "created": entry.created, "expires": entry.expires}
    return json.dumps(kept).encode()


def _decode(token_id: str, kept: bytes) -> TokenEntry:
    def read() -> TokenEntry:
        values = json.loads(kept)
        role: Role = "client" if values["role"] == "client" else "viewer"  # admins, up to commit 38a6b14d, only look
        grant = Grant(role, values["name"], values["task"])
        return TokenEntry(token_id, grant, bytes.fromhex(values["sha256"]), values["created"], values.get("expires"))

    return decoded(f"token/{token_id}", read)
