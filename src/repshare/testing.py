"""The contracts of stores, exchanges, spaces and methods, as tests to run on one of your own. Needs pytest.

Subclass a contract in a test file, and give it the fixtures that it asks for:

    class TestMyStore(StoreContract):
        @pytest.fixture
        def database(self): ...

        @pytest.fixture
        def store(self, database): ...
"""

import json
import threading
from collections.abc import Callable
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from repshare.board import Wants
from repshare.errors import Malformed, Outdated, Refused
from repshare.exchange import Exchange
from repshare.exchange.local import LocalExchange
from repshare.sharing import wire
from repshare.sharing.representations import Floats, Release, Teacher, stack
from repshare.sharing.task import Task
from repshare.space import Space, describe, fingerprint
from repshare.space.space import as_array
from repshare.stores import Database, Store, Transaction

if TYPE_CHECKING:
    from repshare.client import Client
    from repshare.measures import Record

TASK = Task(classes=2, dimension=2)
"""The task of the exchanges under test."""
MANY = 8
"""M↓. A board draws that many observations a class; peers ask that many of each other."""

Join = Callable[[str], Exchange]
"""A function from a client's name to its exchange. All of one test's meet each other."""

Make = Callable[[str], "Client"]
"""A function from a name to a new client without an exchange. The same name is the same client, as it begins."""


def get(store: Store, *keys: str) -> list[bytes | None]:
    """The values of these keys, in one transaction."""
    return store.transact(lambda state: state.get(keys))


def put(store: Store, **items: str) -> None:
    """Set these keys, in one transaction."""
    store.transact(lambda state: state.set({key: value.encode() for key, value in items.items()}))


class StoreContract:
    """The promise of a store. Fixtures: `database`, empty; `store`, one of its stores."""

    def test_what_was_set_is_there(self, store: Store) -> None:
        put(store, a="1", b="2")
        assert get(store, "b", "nothing", "a") == [b"2", None, b"1"]
        assert store.items() == {"a": b"1", "b": b"2"}

    def test_any_bytes_and_any_name_are_kept_as_they_are(self, store: Store) -> None:
        value = bytes(range(256)) * 100
        items = {"": value, "ü/{x}*?[a]\\ '": b"", "release/a b": value}
        store.transact(lambda state: state.set(items))
        assert store.items() == items
        assert get(store, *items) == list(items.values())

    def test_reads_see_the_writes_before_them(self, store: Store) -> None:
        put(store, a="old", b="old")

        def work(state: Transaction) -> object:
            state.set({"a": b"new"})
            state.delete(["b"])
            return state.get(["a", "b", "c"])

        assert store.transact(work) == [b"new", None, None]
        assert store.items() == {"a": b"new"}

    def test_what_is_deleted_and_set_again_is_there(self, store: Store) -> None:
        put(store, a="old")

        def work(state: Transaction) -> None:
            state.delete(["a", "never was"])
            state.set({"a": b"new"})

        store.transact(work)
        assert store.items() == {"a": b"new"}

    def test_nothing_is_kept_of_work_that_failed(self, store: Store) -> None:
        put(store, a="old")

        def work(state: Transaction) -> object:
            state.set({"a": b"new", "b": b"new"})
            raise ValueError("stop")

        with pytest.raises(ValueError, match="stop"):
            store.transact(work)
        assert store.items() == {"a": b"old"}
        put(store, a="next")
        assert store.items() == {"a": b"next"}

    def test_stores_of_one_database_know_nothing_of_each_other(self, database: Database) -> None:
        one, two = database.store("task:a"), database.store("task:a b")
        put(one, x="1")
        put(two, x="2")
        assert (get(one, "x"), get(two, "x")) == ([b"1"], [b"2"])
        one.clear()
        assert (one.items(), two.items()) == ({}, {"x": b"2"})
        put(one, x="3")
        assert get(database.store("task:a"), "x") == [b"3"]

    def test_thousands_of_keys_at_once(self, store: Store) -> None:
        items = {f"key {number}": str(number).encode() for number in range(5_000)}
        store.transact(lambda state: state.set(items))
        assert get(store, *items) == list(items.values())
        assert store.items() == items
        store.clear()
        assert store.items() == {}

    def test_no_update_is_lost_among_threads(self, store: Store) -> None:
        put(store, count="0")

        def add(state: Transaction) -> None:
            state.set({"count": str(int(state.get(["count"])[0] or b"") + 1).encode()})

        def work() -> None:
            for _ in range(50):
                store.transact(add)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert get(store, "count") == [b"200"]

    def test_a_check_of_a_sound_database_passes(self, database: Database) -> None:
        database.check()


def release(value: float, label: int = 0, round: int = 1) -> bytes:
    """A release with one class mean and one observation of four samples."""
    rows = stack([(np.full(2, value), label, 4)], 2)
    return wire.encode_release(Release(round, rows, rows))


def collect(exchange: Exchange, observations: int = MANY) -> Teacher:
    """The teacher of an exchange."""
    return wire.decode_teacher(exchange.collect(Wants(observations, seed=0)))


class ExchangeContract:
    """The promise of an exchange.

    Fixtures: `join`, a function from a client's name to its exchange for TASK; `own_counts`, whether the client's own
    release counts in the global means that it gets.
    """

    def test_a_client_alone_collects_a_teacher_without_rows(self, join: Join) -> None:
        alone = join("a")
        alone.publish(release(1.0))
        assert len(collect(alone).means.labels) == 0

    def test_two_clients_are_enough(self, join: Join, own_counts: bool) -> None:
        a, b = join("a"), join("b")
        a.publish(release(1.0))
        b.publish(release(3.0))
        for exchange, others in ((a, 3.0), (b, 1.0)):
            teacher = collect(exchange)
            mean = 2.0 if own_counts else others
            assert teacher.means.vectors.tolist() == [[mean, mean]]
            assert teacher.observations.vectors.tolist() == [[others, others]]

    def test_a_client_learns_from_others_but_never_from_itself(self, join: Join) -> None:
        a, b = join("a"), join("b")
        a.publish(release(1.0, label=0))
        b.publish(release(3.0, label=1))
        assert collect(a).means.labels.tolist() == [1]
        assert collect(b).observations.labels.tolist() == [0]

    def test_a_client_may_collect_before_it_has_published(self, join: Join) -> None:
        join("a").publish(release(1.0))
        assert collect(join("b")).means.vectors.tolist() == [[1.0, 1.0]]

    def test_publishing_twice_changes_nothing(self, join: Join, own_counts: bool) -> None:
        a, b = join("a"), join("b")
        for _ in range(3):
            a.publish(release(1.0))
        b.publish(release(3.0))
        assert collect(b).means.counts.tolist() == [8 if own_counts else 4]

    def test_a_newer_release_replaces_the_older_one(self, join: Join) -> None:
        a, b = join("a"), join("b")
        a.publish(release(1.0))
        a.publish(release(5.0, label=1, round=2))
        assert collect(b).means.labels.tolist() == [1]

    def test_what_is_refused_leaves_the_others_unharmed(self, join: Join) -> None:
        a, b = join("a"), join("b")
        a.publish(release(1.0))
        with pytest.raises(Refused):
            b.publish(release(float("nan")))
        assert collect(b).means.vectors.tolist() == [[1.0, 1.0]]

    def test_an_older_release_is_outdated_and_changes_nothing(self, join: Join) -> None:
        a, b = join("a"), join("b")
        a.publish(release(5.0, round=2))
        with pytest.raises(Outdated):
            a.publish(release(1.0, round=1))
        assert collect(b).means.vectors.tolist() == [[5.0, 5.0]]

    def test_bytes_that_are_no_release_are_malformed(self, join: Join) -> None:
        with pytest.raises(Malformed):
            join("a").publish(b"not a release")

    def test_the_same_question_has_the_same_answer_until_something_changes(self, join: Join) -> None:
        a, b, c = join("a"), join("b"), join("c")
        a.publish(release(1.0))
        first = c.collect(Wants(MANY, 0))
        assert c.collect(Wants(MANY, 0)) == first
        b.publish(release(3.0))
        assert c.collect(Wants(MANY, 0)) != first


def embed(space: Space, inputs: Any) -> Floats:
    """The vectors of a batch (n, d)."""
    return as_array(space(inputs))


class SpaceContract:
    """The promise of a space. Fixtures: `space`; `inputs`, four or more samples that it takes, no two of them alike."""

    def test_the_same_inputs_have_the_same_vectors(self, space: Space, inputs: Any) -> None:
        assert np.array_equal(embed(space, inputs), embed(space, inputs))

    def test_vectors_are_finite_and_of_the_stated_dimension_and_length(self, space: Space, inputs: Any) -> None:
        vectors = embed(space, inputs)
        assert vectors.dtype == np.float32
        assert vectors.shape == (len(inputs), space.dimension)
        assert np.isfinite(vectors).all()
        assert np.linalg.norm(vectors, axis=1) == pytest.approx(space.dimension**0.5, rel=1e-4)

    def test_a_vector_does_not_depend_on_the_others_of_its_batch(self, space: Space, inputs: Any) -> None:
        vectors = embed(space, inputs)
        assert np.allclose(embed(space, inputs[1:3]), vectors[1:3], atol=1e-3)
        assert not np.allclose(vectors[1], vectors[2], atol=0.1)

    def test_equal_descriptions_make_equal_vectors(self, space: Space, inputs: Any) -> None:
        again = type(space)(**{each.name: getattr(space, each.name) for each in fields(space)})  # type: ignore[arg-type]
        assert json.loads(json.dumps(describe(space))) == describe(again)
        assert fingerprint(again) == fingerprint(space)
        assert np.array_equal(embed(again, inputs), embed(space, inputs))

    def test_a_client_in_it_continues_to_the_same_bits(self, space: Space, inputs: Any) -> None:
        from repshare.client import Client
        from repshare.methods import CA

        data = inputs, np.arange(len(inputs)) % 2
        first, again = (Client(data=data, space=space, method=CA, classes=2) for _ in range(2))
        first.round()
        again.load(first.save())
        assert np.array_equal(again.predict(inputs), first.predict(inputs))
        assert np.array_equal(again.probabilities(inputs), first.probabilities(inputs))


def meet(make: Make, rounds: int) -> "list[tuple[Client, list[Record]]]":
    """Two clients and their records, after so many rounds through the method's own server."""
    clients = [make("a"), make("b")]
    method = clients[0].method
    if method.serve is not None:
        server = method.serve(clients[0].learner.task(), None, method.options)
        for client in clients:
            client.exchange = LocalExchange(server, client.name)
    records = [[client.round() for client in clients] for _ in range(rounds)]
    return list(zip(clients, map(list, zip(*records, strict=True)), strict=True))


def scores(client: "Client") -> Any:
    """A client's scores of its own samples (n, C)."""
    return client.learner.scores(client.samples)


class MethodContract:
    """The promise of a method. Fixture: `make`, a function from a name to a new client, with test data, of the method.

    The same name makes the same client, as it begins. A server that needs a network to start from has tests of its own.
    """

    def test_two_clients_account_for_their_rounds(self, make: Make) -> None:
        for client, records in meet(make, 2):
            assert [(each.round, each.client, each.trouble) for each in records] == [
                (number, client.name, None) for number in (1, 2)
            ]
            assert all(np.isfinite(each.ce) and 0 <= each.train_accuracy <= 1 for each in records)
            assert all((each.bytes_up > 0) == (client.method.serve is not None) for each in records)
            assert 0 <= client.evaluate() <= 1

    def test_the_same_clients_learn_the_same_bits(self, make: Make) -> None:
        for (one, _), (other, _) in zip(meet(make, 2), meet(make, 2), strict=True):
            assert np.array_equal(scores(one), scores(other))

    def test_a_client_that_was_saved_continues_to_the_same_bits(self, make: Make) -> None:
        for client, _ in meet(make, 1):
            again = make(client.name)
            again.load(client.save())
            again.exchange = client.exchange
            for each in (client, again):
                each.collect()
                each.train()
            assert np.array_equal(scores(again), scores(client))
            assert again.round_number == client.round_number == 2

    def test_a_client_alone_simply_learns(self, make: Make) -> None:
        record = make("a").round()
        assert (record.trouble, record.bytes_up, record.bytes_down) == (None, 0, 0)
        assert np.isfinite(record.ce)
