"""Tokens: made once, kept hashed, revocable, and worth exactly what they were given for."""

import hashlib

import pytest

from repshare.errors import ConfigError, Refused
from repshare.relay.auth import DAY_SECONDS, Access, Grant, split_token
from repshare.stores import open_database

ALICE = Grant("client", "alice", "mnist")


class Clock:
    """A clock that a test sets."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture(params=["memory", "file"])
def database(request, tmp_path):
    database = open_database("memory" if request.param == "memory" else str(tmp_path / "relay.db"))
    yield database
    database.close()


def test_a_token_gives_what_it_was_made_for(database):
    access = Access(database)
    for grant in (
        ALICE,
        Grant("viewer", "eve", None),
        Grant("viewer", "alice", "digits"),
    ):
        assert access.find(access.invite(grant)) == grant
    assert len(access.entries()) == 3


@pytest.mark.parametrize("change", [lambda t: t[:-1], lambda t: t + "x", lambda t: t.swapcase(), lambda t: t[3:]])
def test_a_token_that_is_a_little_different_is_none(database, change):
    access = Access(database)
    token = access.invite(ALICE)
    assert access.find(token) == ALICE
    assert access.find(change(token)) is None


@pytest.mark.parametrize("text", ["", "rs", "rs_", "rs__", "rs_0123456789abcdef_", "x_y_z", "rs_/../_x", "rs_é_x"])
def test_what_is_no_token_is_nobody(database, text):
    assert Access(database).find(text) is None


def test_a_token_has_256_random_bits(database):
    token_id, secret = split_token(Access(database).invite(ALICE))
    assert len(secret) >= 43  # of 6 bits
    assert secret != split_token(Access(database).invite(ALICE, renew=True))[1]
    assert len(token_id) == 16


def test_only_a_hash_of_the_secret_is_kept(tmp_path):
    database = open_database(str(tmp_path / "relay.db"))
    _, secret = split_token(Access(database).invite(ALICE))
    database.close()
    kept = b"".join(path.read_bytes() for path in tmp_path.iterdir())
    assert secret.encode() not in kept
    assert hashlib.sha256(secret.encode()).hexdigest().encode() in kept


def test_a_name_has_one_token_in_a_task(database):
    access = Access(database)
    first = access.invite(ALICE)
    with pytest.raises(Refused, match="alice has a token in mnist already: revoke it, or --renew it"):
        access.invite(ALICE)
    second = access.invite(ALICE, renew=True)
    assert access.find(first) is None
    assert access.find(second) == ALICE
    assert access.find(access.invite(ALICE._replace(task="digits"))).task == "digits"


def test_a_revoked_token_is_none_at_once(database):
    access = Access(database)
    token = access.invite(ALICE)
    assert access.find(token) == ALICE
    assert Access(database).revoke("alice", "mnist") == ALICE
    assert access.find(token) is None
    assert access.entries() == []


def test_revoking_what_is_not_there_says_so(database):
    with pytest.raises(ConfigError, match="bob has no token in mnist"):
        Access(database).revoke("bob", "mnist")


def test_all_tokens_of_a_task_end_with_it(database):
    access = Access(database)
    of_mnist = [access.invite(ALICE), access.invite(Grant("viewer", "eve", "mnist"))]
    others = [access.invite(ALICE._replace(task="digits")), access.invite(Grant("viewer", "eve", None))]
    access.revoke_all("mnist")
    assert [access.find(token) for token in of_mnist] == [None, None]
    assert all(access.find(token) for token in others)
    access.invite(ALICE)  # the name is free again


@pytest.mark.parametrize("name", ["", " ", "..", "a/b", "a\n", "a\nb", "x" * 65, "\u202e", "\x00"])
def test_names_that_could_hurt_are_refused(database, name):
    with pytest.raises(ConfigError, match="cannot name a client"):
        Access(database).invite(Grant("client", name, "mnist"))


@pytest.mark.parametrize("name", ["a", "client 1", "x" * 64, "Zürich-2", "a.b_c", "<script>", "a:b"])
def test_names_of_people_and_places_are_fine(database, name):
    access = Access(database)
    assert access.find(access.invite(Grant("client", name, "mnist"))).name == name


def test_a_client_without_a_task_makes_no_sense(database):
    with pytest.raises(ConfigError, match="a client belongs to a task"):
        Access(database).invite(Grant("client", "alice", None))


def test_a_clock_that_is_set_back_makes_no_expired_token_valid_that_it_had_not_made_yet(database):
    clock = Clock()
    clock.now = 10 * DAY_SECONDS
    access = Access(database, now=clock)
    token, lasting = access.invite(ALICE, days=2), access.invite(Grant("viewer", "eve", "mnist"))
    for days, valid in ((10, True), (11.9, True), (12.1, False), (9, False), (0, False), (9.999, True)):
        clock.now = days * DAY_SECONDS
        assert (Access(database, now=clock).find(token) == ALICE) is valid, days
        assert access.find(lasting) is not None, "a token that never expires needs no clock"


def test_a_token_that_an_earlier_version_made_for_an_admin_only_looks(database):
    access = Access(database)
    token = access.invite(Grant("viewer", "root", None))
    ((key, kept),) = database.store("access").items().items()
    before = kept.replace(b'"viewer"', b'"admin"')
    database.store("access").transact(lambda state: state.set({key: before}))
    assert Access(database).find(token) == Grant("viewer", "root", None)
