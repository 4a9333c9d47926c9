"""Clients of a common classifier: what they gain, what leaves them, and whom they doubt."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from repshare import Board, Client, LocalExchange, Policy
from repshare.board import Wants
from repshare.errors import ConfigError, Unreachable
from repshare.exchange import Exchange
from repshare.methods import CA, CS
from repshare.sharing import wire
from repshare.sharing.parts import BESIDE, MOST_WEIGHT, SHRINKAGES, Part, as_release
from repshare.sharing.task import make_space_task
from repshare.space import Patches
from repshare.space.agreement import Agreement
from repshare_lab.config import Setting
from repshare_lab.simulation import simulate
from repshare_lab.simulation.plan import make_run

COMMON = Agreement(Patches((1, 8, 8), sizes=(3, 4), filters=12))  # d = 432
DIMENSION = COMMON.space.dimension
EXACT = Policy(precision="fp32", held_out=0.1)


def make_board(space=COMMON):
    return Board(make_space_task(10, space.space.dimension, space.name))


class Tapped(Exchange):
    """A local exchange that keeps what was published."""

    def __init__(self, board, name):
        self.exchange, self.bodies = LocalExchange(board, name), []

    def publish(self, body):
        self.bodies.append(body)
        self.exchange.publish(body)

    def behind(self, own):
        return self.exchange.behind(own)

    def collect(self, wants):
        return self.exchange.collect(wants)


def make_client(data, board=None, name="a", *, method=CS, space=COMMON, **options):
    exchange = None if board is None else Tapped(board, name)
    return Client(None, data, exchange, name=name, method=method, space=space, classes=10, **options)


def in_turn(clients, rounds):
    """Rounds in which one client takes part after the other: their last records."""
    for _ in range(rounds):
        records = [client.round() for client in clients]
    return records


@pytest.fixture
def halves(digits):
    (images, labels), test = digits
    return [(images[i:400:2], labels[i:400:2]) for i in range(2)], test


def test_two_clients_together_beat_each_alone(digits):
    (images, labels), test = digits
    board = make_board()
    parts = [(images[i:120:2], labels[i:120:2]) for i in range(2)]
    alone = [make_client(part, name=name, method=CA, test=test).round() for part, name in zip(parts, "ab", strict=True)]
    pair = [make_client(part, board, name, test=test) for part, name in zip(parts, "ab", strict=True)]
    together = in_turn(pair, 8)
    pooled = make_client((images[:120], labels[:120]), method=CA, test=test).round().test_accuracy
    for one, two in zip(alone, together, strict=True):
        assert two.test_accuracy > one.test_accuracy + 0.02
        assert two.test_accuracy == pytest.approx(pooled, abs=0.03)
        assert (one.bytes_up, one.bytes_down, one.gap is None) == (0, 0, False)
    assert together[0].gap < 1e-3
    assert [record.trouble for record in together] == [None, None]


def test_a_client_recognises_classes_that_it_has_never_seen(digits):
    (images, labels), test = digits
    board = make_board()
    images, labels = images[:300], labels[:300]
    low, high = (images[labels < 5], labels[labels < 5]), (images[labels >= 5], labels[labels >= 5])
    unseen = test[0][test[1] >= 5], test[1][test[1] >= 5]
    a = make_client(low, board, "a", test=unseen)
    b = make_client(high, board, "b")
    first, *_, last = [in_turn([a, b], 1)[0] for _ in range(8)]
    assert first.test_accuracy == 0
    assert last.test_accuracy > 0.9


def test_what_leaves_is_the_part_and_nothing_else(halves):
    (own, other), _ = halves
    board = make_board()
    a, b = make_client(own, board, "a", policy=EXACT), make_client(other, board, "b")
    for round in (1, 2, 3):
        in_turn([a, b], 1)
        body, part = a.exchange.bodies[-1], a.learner.model.part()
        assert body == wire.encode_release(as_release(part, round, COMMON.name))
        left = wire.decode_release(body)
        assert left.means.vectors.shape == (11, DIMENSION + BESIDE)
        assert left.means.counts.tolist() == [180] * 11
        assert len(left.observations.labels) == 0
        assert left.space == COMMON.name
    assert len(a.exchange.bodies) == 3
    assert len(b.exchange.bodies[-1]) < len(a.exchange.bodies[-1]) * 0.6  # fp16 is the default


def test_the_total_that_a_client_collects_is_of_all_samples_that_count(halves):
    (own, other), _ = halves
    board = make_board()
    a, b = make_client(own, board, "a", policy=EXACT), make_client(other, board, "b", policy=EXACT)
    in_turn([a, b], 3)
    taught = wire.decode_teacher(a.exchange.collect(Wants(0, 0)))
    parts = [client.learner.model.part() for client in (a, b)]
    assert taught.means.counts.tolist() == [360] * 11
    expected = (parts[0].vectors + parts[1].vectors) / 2
    assert taught.means.vectors[:10, :DIMENSION] == pytest.approx(expected, abs=1e-6)


def test_nothing_that_leaves_depends_on_held_out_samples(halves):
    (own, other), _ = halves

    def published(rows, held_out):
        board = make_board()
        data, policy = (own[0][rows], own[1][rows]), Policy(held_out=held_out)
        client = make_client(data, board, "a", policy=policy)
        in_turn([client, make_client(other, board, "b")], 4)
        return client, client.exchange.bodies

    client, bodies = published(torch.arange(200), 0.05)
    held = client.learner.held_rows
    assert len(held) == 10
    assert np.array_equal(own[1][held], client.learner.held[1])
    kept = torch.tensor([place for place in range(200) if place not in held])
    assert published(kept, 0.0)[1] == bodies
    assert published(kept[1:], 0.0)[1] != bodies


def test_too_few_samples_are_not_held_out(halves):
    (own, _), _ = halves
    few = make_client((own[0][:99], own[1][:99]), make_board(), policy=Policy(minimum_count=1))
    assert len(few.learner.held[0]) == 0
    record = few.round()
    assert (record.held_out, record.held_out_alone, record.doubt) == (None, None, None)
    assert wire.decode_release(few.exchange.bodies[0]).means.counts[0] == 99


def test_only_samples_and_classes_that_may_be_shared_count(halves):
    (own, _), _ = halves
    allowed = tuple(range(0, 150))
    policy = Policy(share_samples=allowed, share_classes=(1, 2, 7), precision="fp32", held_out=0.0)
    client = make_client(own, make_board(), policy=policy)
    client.round()
    left = wire.decode_release(client.exchange.bodies[0]).means
    labels = own[1][:150]
    rows = torch.isin(labels, torch.tensor([1, 2, 7]))
    assert left.counts.tolist() == [int(rows.sum())] * 11
    shares = labels[rows].bincount(minlength=10) / rows.sum()
    assert left.vectors[:10, DIMENSION + 1] == pytest.approx(shares.numpy(), abs=1e-6)
    assert set(np.flatnonzero(left.vectors[:10, DIMENSION + 1])) == {1, 2, 7}
    centre = COMMON.space(own[0][:150][rows]).mean(dim=0)
    assert left.vectors[10, :DIMENSION] == pytest.approx(centre.numpy(), abs=1e-4)


def test_an_average_of_too_few_samples_does_not_leave(halves):
    (own, other), test = halves
    board = make_board()
    a = make_client(own, board, "a", policy=Policy(minimum_count=40, held_out=0.1), test=test)
    b = make_client(other, board, "b", policy=Policy(held_out=0.1))
    records = [in_turn([a, b], 1)[0] for _ in range(4)]
    assert {len(wire.decode_release(body).means.labels) for body in a.exchange.bodies} == {0}
    assert {len(wire.decode_release(body).means.labels) for body in b.exchange.bodies} == {11}
    assert [record.trouble for record in records] == [None] * 4
    assert wire.decode_teacher(board.teach("c", Wants(0, 0))).means.counts.tolist() == [180] * 11


def test_a_client_that_releases_once_goes_on_learning_from_the_others(digits):
    (images, labels), test = digits
    board = make_board()
    a = make_client((images[:60:2], labels[:60:2]), board, "a", policy=Policy(releases=1), test=test)
    records = [in_turn([a], 1)[0] for _ in range(2)]
    assert [record.bytes_up > 0 for record in records] == [True, False]
    b = make_client((images[1:240:2], labels[1:240:2]), board, "b")
    records += [in_turn([b, a], 1)[1] for _ in range(4)]
    assert len(a.exchange.bodies) == 1
    assert all(record.bytes_up == 0 < record.bytes_down for record in records[1:])
    assert records[2].test_accuracy > records[1].test_accuracy + 0.1
    assert records[-1].test_accuracy > 0.9


@pytest.mark.parametrize("start", [1e-6, 1e-2])
def test_the_classifier_is_good_from_the_first_rounds_on_whatever_clients_begin_with(digits, monkeypatch, start):
    """Before any vote they cannot know how strongly to shrink: totals of first releases must be read as such."""
    monkeypatch.setattr("repshare.space.solution.START", start)
    (images, labels), test = digits
    board = make_board()
    clients = [make_client((images[i:500:5], labels[i:500:5]), board, f"{i}", test=test) for i in range(5)]
    for _ in range(4):
        for client in clients:
            client.collect()
        for client in clients:
            client.learner.train()
        for client in clients:
            client.publish(client.release())
        for client in clients:
            client.collect()
        assert clients[0].evaluate() > 0.85


@pytest.mark.parametrize("stop", [1, 3])
def test_a_client_that_is_saved_and_loaded_goes_on_to_the_same_bits(halves, stop):
    (own, other), test = halves

    def end(stop):
        board = make_board()
        a, b = (make_client(data, board, name, test=test) for data, name in ((own, "a"), (other, "b")))
        in_turn([a, b], stop)
        again = make_client(own, board, "a", test=test)
        again.load(a.save())
        assert again.evaluate() == a.evaluate()
        records = [in_turn([again, b], 1)[0] for _ in range(6 - stop)]
        return [replace(record, seconds=0.0) for record in records][-3:], again.exchange.bodies[-1]

    assert end(stop) == end(2)


def noise(count, seed):
    drawn = torch.Generator().manual_seed(seed)
    return torch.randn(count, 1, 8, 8, generator=drawn)


@pytest.fixture
def three_others(digits):
    (images, labels), _ = digits
    return [(images[i : i + 200], labels[i : i + 200]) for i in (300, 500, 700)]


def with_others(own, others, policy, test):
    board = make_board()
    client = make_client(own, board, "own", policy=policy, test=test)
    partners = [make_client(data, board, f"other {number}") for number, data in enumerate(others)]
    return in_turn([client, *partners], 6)[0]


@pytest.mark.parametrize("prefer_own", [False, True])
def test_honest_partners_are_not_doubted(digits, three_others, prefer_own):
    (images, labels), test = digits
    own = images[:240], labels[:240]
    alone = make_client(own, name="own", method=CA, test=test).round().test_accuracy
    record = with_others(own, three_others, Policy(held_out=0.25, prefer_own=prefer_own), test)
    assert record.doubt is None
    assert record.test_accuracy > alone
    assert record.held_out >= record.held_out_alone - 0.1


def test_a_majority_that_shares_noise_is_doubted_and_can_be_ignored(digits, three_others):
    (images, labels), test = digits
    own = images[:300], labels[:300]
    liars = [(noise(200, seed), data[1]) for seed, data in enumerate(3 * three_others)]
    policy = Policy(held_out=0.25)
    heard, kept = (with_others(own, liars, replace(policy, prefer_own=keep), test) for keep in (False, True))
    assert "other clients make it worse: of 75 held-out samples" in heard.doubt
    assert heard.doubt == kept.doubt
    assert heard.held_out < heard.held_out_alone
    learner = make_client(own, make_board(), "own", policy=policy).learner
    by_itself = learner.by_itself(COMMON.vectors(test[0])).argmax(axis=1)
    assert kept.test_accuracy == float((by_itself == test[1].numpy()).mean())
    assert kept.test_accuracy > heard.test_accuracy + 0.1


def longest_lie():
    vectors = np.random.default_rng(0).normal(size=(10, DIMENSION))
    vectors *= MOST_WEIGHT * np.sqrt(DIMENSION) / np.linalg.norm(vectors, axis=1, keepdims=True)
    tenth = np.full(10, 0.1, np.float32)
    hits, centre = np.tile(tenth[:, None], len(SHRINKAGES)), np.zeros(DIMENSION, np.float32)
    return Part(vectors.astype(np.float32), 0 * tenth, tenth, hits, centre, 10_000)


def test_a_liar_with_the_longest_vectors_that_are_taken_stops_nobody(halves):
    (own, _), _ = halves
    board = make_board()
    board.accept("liar", wire.encode_release(as_release(longest_lie(), 1, COMMON.name)))
    for policy in (Policy(), Policy(prefer_own=True)):
        client = make_client(own, board, "a", policy=policy)
        record = in_turn([client], 4)[0]
        assert "other clients make it worse" in record.doubt
        assert np.abs(client.learner.model.published.alpha).max() <= MOST_WEIGHT
        assert record.trouble is None


@pytest.fixture
def one_sided(digits):
    """Three clients' samples, each of four or five of the ten classes."""
    (images, labels), test = digits
    own = [np.flatnonzero(np.isin(labels, classes)) for classes in ((0, 1, 2, 3), (3, 4, 5, 6), (6, 7, 8, 9, 0))]
    return [(images[rows], labels[rows]) for rows in own], test


def test_clients_that_take_turns_converge_though_the_first_of_them_elect_otherwise(one_sided):
    """Weights for the strong shrinkage of the first vote would be too large to be shared for that of the last."""
    parts, _ = one_sided
    common = Agreement(Patches((1, 8, 8), sizes=(3, 4)), inputs=(-1.0, 1.0))
    board = make_board(common)
    names = ("ann", "ben", "cleo")  # they decide which samples are held out, and so the votes
    clients = [make_client(data, board, name, space=common) for data, name in zip(parts, names, strict=True)]
    in_turn(clients[:2], 1)
    first, records = find_vote(clients[1]), in_turn(clients, 40)
    assert first > 100 * find_vote(clients[1])
    assert max(record.gap for record in records) < 0.04


def find_vote(client):
    dual = client.learner.model
    return dual._read(dual.published).wanted


def test_a_client_that_is_gone_after_its_first_release_still_counts(one_sided):
    (own, gone, other), test = one_sided
    board = make_board()
    a, b, c = (make_client(data, board, name, test=test) for data, name in ((own, "a"), (gone, "b"), (other, "c")))
    unheard = a.exchange.collect(Wants(0, 0)), b.exchange.collect(Wants(0, 0))
    for client, nobody in zip((a, b), unheard, strict=True):
        client.exchange.collect = lambda wants, nobody=nobody: nobody
        client.round()
    del a.exchange.collect
    records = in_turn([a, c], 20)
    assert min(record.test_accuracy for record in records) > 0.9


def test_a_client_whose_only_partner_is_withdrawn_returns_to_its_own_classifier(halves):
    parts, _ = halves
    board = make_board()
    a, b = (make_client(data, board, name) for data, name in zip(parts, "ab", strict=True))
    in_turn([a, b], 6)
    board.withdraw("b")
    in_turn([a], 20)
    dual = a.learner.model
    assert dual.total is None
    own = dual.alone().weights
    assert np.linalg.norm(dual.linear().weights - own) < 0.01 * np.linalg.norm(own)


LIES = [{}, {"first": 0.5}, {"shrinkage": math.exp(25)}, {"shrinkage": math.exp(-25)}]


@pytest.mark.parametrize("changed", LIES)
def test_a_liar_that_is_withdrawn_leaves_nothing_behind(halves, changed):
    parts, test = halves
    board = make_board()
    clients = [make_client(data, board, name, test=test) for data, name in zip(parts, "ab", strict=True)]
    honest = in_turn(clients, 6)[0].test_accuracy
    board.accept("liar", wire.encode_release(as_release(longest_lie()._replace(**changed), 1, COMMON.name)))
    assert in_turn(clients, 6)[0].test_accuracy < 0.5
    board.withdraw("liar")
    assert in_turn(clients, 30)[0].test_accuracy == pytest.approx(honest, abs=0.02)


@pytest.mark.parametrize("shrinkage", [math.exp(25), math.exp(-25)])
def test_what_a_client_says_its_weights_are_for_changes_nothing_for_the_others(one_sided, shrinkage):
    parts, test = one_sided
    board = make_board()
    a, b, liar = (make_client(data, board, name, test=test) for data, name in zip(parts, "abc", strict=True))
    in_turn([a, b, liar], 6)
    records = in_turn([a, b], 20)
    told = liar.learner.model.part()._replace(shrinkage=shrinkage)
    board.accept("c", wire.encode_release(as_release(told, 7, COMMON.name)))
    assert in_turn([a, b], 6)[0].test_accuracy == pytest.approx(records[0].test_accuracy, abs=0.02)


def test_samples_whose_weights_are_all_0_because_of_a_liar_still_count_once(halves):
    (own, _), _ = halves
    board = make_board()
    client = make_client(own, board, "a")
    client.round()
    board.accept("liar", wire.encode_release(as_release(longest_lie(), 1, COMMON.name)))
    in_turn([client], 2)
    dual = client.learner.model
    assert not dual.published.alpha.any()
    assert dual._read(dual.published).samples == dual.total.samples


@pytest.mark.parametrize("every", [1, 2, 3, 5])
def test_clients_that_release_seldom_reach_the_same_classifier(digits, every):
    (images, labels), test = digits
    board = make_board()
    clients = [
        make_client((images[i:300:3], labels[i:300:3]), board, f"{i}", policy=Policy(release_every=every), test=test)
        for i in range(3)
    ]
    records = in_turn(clients, 12 * every + 1)
    pooled = make_client((images[:300], labels[:300]), method=CA, test=test).round().test_accuracy
    for record in records:
        assert record.gap < 0.02
        assert record.test_accuracy == pytest.approx(pooled, abs=0.03)


class Losing(Tapped):
    """An exchange that takes only every fifth release."""

    def publish(self, body):
        self.bodies.append(body)
        if len(self.bodies) % 5:
            raise Unreachable("away")
        self.exchange.publish(body)


def test_releases_that_are_lost_lead_nobody_astray(digits):
    (images, labels), test = digits
    board = make_board()
    clients = [make_client((images[i:300:3], labels[i:300:3]), board, f"{i}", test=test) for i in range(3)]
    for client in clients:
        client.exchange = Losing(board, client.name)
    records = in_turn(clients, 61)
    for record in records:
        assert record.trouble == "away"
        assert record.gap < 0.02
        assert record.test_accuracy > 0.85


def test_a_client_of_another_space_is_told_both_and_trains_alone(halves):
    (own, other), test = halves
    board, elsewhere = make_board(), Agreement(replace(COMMON.space, seed=1))
    make_client(own, board, "a").round()
    stranger = make_client(other, board, "b", space=elsewhere, test=test)
    record = stranger.round()
    assert COMMON.name in record.trouble
    assert elsewhere.name in record.trouble
    assert record.test_accuracy > 0.7
    assert wire.decode_teacher(board.teach("c", Wants(0, 0))).means.counts.tolist() == [190] * 11


SETTING = Setting(
    dataset="digits", samples=240, clients=4, rounds=5, eval_every=2, model=("mlp",), space=("patches", "filters=6"),
)  # fmt: skip


def test_in_a_simulation_sharing_beats_learning_alone_also_on_unseen_classes(splits, inline):
    setting = replace(SETTING, clients=5, rounds=8, partition="shards", classes_per_client=2)
    *_, alone = simulate(make_run("CA", 0, setting), splits, inline)
    *_, shared = simulate(make_run("CS", 0, setting), splits, inline)
    for one, all_of_them in zip(alone, shared, strict=True):
        assert one.test_unseen == 0
        assert all_of_them.test_unseen > 0.7
        assert all_of_them.test_accuracy > one.test_accuracy + 0.5


def test_a_run_in_a_common_space_is_over_after_fewer_rounds():
    setting = Setting(dataset="digits", rounds=100, eval_every=10)
    shared, alone = (make_run(method, 0, setting).setting for method in ("CS", "CA"))
    assert (shared.rounds, shared.eval_every) == (10, 1)
    assert (alone.rounds, alone.eval_every) == (1, 1)
    assert make_run("RS", 0, setting).setting is setting
    last_only = make_run("CS", 0, replace(setting, eval_every=100, space_rounds=7)).setting
    assert (last_only.rounds, last_only.eval_every) == (7, 7)
    assert make_run("CS", 0, replace(setting, rounds=3)).setting.rounds == 3


@pytest.mark.parametrize("method", ["CS", "CA"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"policy": Policy(peers=("client 1",))},
            "the classifier of a space is made by all clients: leave peers or CS out",
        ),
        ({"weighted": False}, "leave weighted, or CS, out"),
        ({"space": ("wavelets",)}, "no space for 'wavelets'"),
        ({"space": ("patches", "sizes=9")}, r"filters of 9 pixels .*do not fit images of 8 × 8"),
    ],
)
def test_what_a_common_classifier_cannot_do_is_refused_before_it_begins(splits, inline, method, changes, words):
    with pytest.raises(ConfigError, match=words):
        next(simulate(make_run(method, 0, replace(SETTING, **changes)), splits, inline))
