"""The common classifier: from any split of the samples, what scikit-learn makes of all of them pooled."""

import io
import math
from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.linear_model import Ridge

from repshare.client import _as_tensors
from repshare.errors import ConfigError
from repshare.sharing.parts import SHRINKAGES, Part
from repshare.space import Patches, dual, moments
from repshare.space.dual import Dual
from repshare.space.solution import Total, elect

N, CLASSES, SHRINKAGE = 200, 10, 0.01
SMALL = Patches((1, 8, 8), sizes=(3,), filters=2)  # d = 36: fewer dimensions than samples
MIDDLE = Patches((1, 8, 8), sizes=(3,), filters=8)  # d = 144
LARGE = Patches((1, 8, 8), sizes=(3,), filters=24)  # d = 432: more dimensions than samples
EVERYONE = 150  # rounds


@pytest.fixture(scope="module")
def data(digits):
    (images, labels), _ = digits
    return MIDDLE(images[:N]).numpy(), labels[:N].numpy()


def splits_of(labels):
    everyone = np.arange(len(labels))
    return {
        "one client": [everyone],
        "two clients": np.array_split(everyone, 2),
        "five clients": np.array_split(everyone, 5),
        "very unequal": np.split(everyone, [1, 4, 40]),
        "a class each": [np.flatnonzero(labels == label) for label in range(CLASSES)],
    }


SPLITS = list(splits_of(np.zeros(1)))


def add_up(parts):
    """The part of all clients' samples: what a board does, in plain NumPy."""
    n = sum(part.samples for part in parts)
    means = [sum(part.samples / n * part[field].astype(np.float64) for part in parts) for field in range(5)]
    return Part(*(mean.astype(np.float32) for mean in means), n)


def make_clients(data, split, **options):
    vectors, labels = data
    return [Dual(vectors[rows], labels[rows], CLASSES, **{"shrinkage": SHRINKAGE, **options}) for rows in split]


def go(clients, rounds, *, momentum=True, absent=None):
    """Rounds in which everyone collects the total, improves and releases. Gives the duality gap before each."""
    parts, gaps = [client.part() for client in clients], []
    for _ in range(rounds):
        total, gap = add_up(parts), 0.0
        for number, client in enumerate(clients):
            if absent is not None and absent.random() < 0.5:
                continue
            client.absorb(Total(total))
            if not momentum:
                client.published = client.published._replace(momentum=1.0)
            gap += client.improve() * len(client.labels) / total.samples
            parts[number] = client.part()
            client.acknowledge()
        gaps.append(gap)
    for client in clients:
        client.absorb(Total(add_up(parts)))
    return gaps


def strength(vectors, shrinkage=SHRINKAGE):
    """ρ τ."""
    centre = vectors.astype(np.float64).mean(axis=0)
    return shrinkage * len(vectors) * (vectors.shape[1] - float(np.square(centre).sum()))


def pooled_scores(data, shrinkage=SHRINKAGE):
    """Scores of the classifier of all samples, by scikit-learn."""
    vectors, labels = data[0].astype(np.float64), data[1]
    return Ridge(alpha=strength(data[0], shrinkage)).fit(vectors, np.eye(CLASSES)[labels]).predict(vectors)


def own_scores(client, vectors):
    return client.linear()(vectors).astype(np.float64)


@pytest.mark.parametrize("split", SPLITS)
def test_any_split_reaches_ridge_regression_on_all_samples(data, split):
    clients = make_clients(data, splits_of(data[1])[split])
    go(clients, EVERYONE)
    expected = pooled_scores(data)
    for client in clients:
        assert own_scores(client, data[0]) == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("space", [SMALL, LARGE], ids=["n above d", "d above n"])
def test_it_does_not_matter_whether_there_are_more_samples_or_more_dimensions(digits, space):
    (images, labels), _ = digits
    data = space(images[:100]).numpy(), labels[:100].numpy()
    assert (len(data[0]) > data[0].shape[1]) == (space is SMALL)
    clients = make_clients(data, np.array_split(np.arange(100), 3))
    go(clients, 100)
    assert own_scores(clients[0], data[0]) == pytest.approx(pooled_scores(data), abs=1e-4)


def test_the_duality_gap_falls_to_nothing(data):
    clients = make_clients(data, splits_of(data[1])["five clients"])
    gaps = go(clients, EVERYONE)
    every_fifth = gaps[:26:5]
    assert all(later < earlier / 1.5 for earlier, later in pairwise(every_fifth))
    assert 0 <= gaps[-1] < 1e-8 < 0.1 < gaps[0]


def test_the_gap_is_that_of_the_primal_and_the_dual_objective(data):
    vectors, labels = data
    clients = make_clients(data, splits_of(labels)["five clients"])
    go(clients, 3)
    linear, scale = clients[0].linear(), strength(vectors)
    scores, weights = linear(vectors).astype(np.float64), linear.weights.astype(np.float64)
    alpha, targets = np.concatenate([client.published.alpha for client in clients]), np.eye(CLASSES)[labels]
    offset, half = linear.offset.astype(np.float64), scale / 2 * float(np.square(weights).sum())
    primal = float(np.square(targets - scores).sum() / 2)
    dual_value = float((alpha * (targets - offset) - np.square(alpha) / 2).sum())
    gap = sum(client.improve() * len(client.labels) for client in clients)
    assert gap == pytest.approx(primal + half - (dual_value - half), rel=1e-3)


def test_half_of_the_clients_absent_in_each_round_changes_nothing_in_the_end(data):
    clients = make_clients(data, splits_of(data[1])["five clients"])
    go(clients, 3 * EVERYONE, absent=np.random.default_rng(0))
    for client in clients:
        assert own_scores(client, data[0]) == pytest.approx(pooled_scores(data), abs=2e-3)


def test_momentum_leads_to_the_same_classifier_sooner(data):
    ends, gaps = [], []
    for momentum in (True, False):
        clients = make_clients(data, splits_of(data[1])["a class each"])
        gaps.append(go(clients, 30, momentum=momentum)[-1])
        go(clients, 250, momentum=momentum)
        ends.append(own_scores(clients[0], data[0]))
    assert gaps[0] < gaps[1] / 2
    assert ends[0] == pytest.approx(ends[1], abs=2e-3)


def test_votes_are_what_leaving_out_one_sample_at_a_time_gives(digits):
    (images, labels), _ = digits
    vectors, labels = SMALL(images[:60]).numpy(), labels[:60].numpy()
    expected = np.zeros((CLASSES, len(SHRINKAGES)))
    rows, targets = vectors.astype(np.float64), np.eye(CLASSES)[labels]
    spread = (rows**2).sum(axis=1).mean() - (rows.mean(axis=0) ** 2).sum()
    for place, shrinkage in enumerate(SHRINKAGES):
        for i in range(60):
            others = np.arange(60) != i
            ridge = Ridge(alpha=shrinkage * spread).fit(rows[others], targets[others])
            expected[labels[i], place] += ridge.predict(rows[i : i + 1])[0].argmax() == labels[i]
    hits = Dual(vectors, labels, CLASSES).part().hits
    assert len({tuple(column) for column in expected.T}) > 4  # candidates differ
    assert hits * 60 == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("voters", [N, 70])
def test_the_vote_takes_the_strongest_shrinkage_among_those_that_do_about_as_well(digits, voters, monkeypatch):
    monkeypatch.setattr(dual, "VOTERS", voters)
    (images, labels), _ = digits
    data = MIDDLE(images[:N]).numpy(), labels[:N].numpy()
    client = make_clients(data, [np.arange(N)], shrinkage=None, alone=True)[0]
    rates = client.part().hits.sum(axis=0)
    error = math.sqrt(rates.max() * (1 - rates.max()) / voters) / 2
    chosen = max(s for s, rate in zip(SHRINKAGES, rates, strict=True) if rate >= rates.max() - error)
    assert chosen not in (SHRINKAGES[0], SHRINKAGES[-1])
    client.improve()
    assert own_scores(client, data[0]) == pytest.approx(pooled_scores(data, chosen / N), abs=1e-4)


def test_a_sample_that_repeats_a_vote_does_not_make_the_vote_more_certain():
    rates = np.array([0.60, 0.604, 0.600, 0.55, 0.5, 0.4, 0.3, 0.2])
    assert elect(rates, 10_000) == 1  # 0.004 is 0.8 standard errors of a difference
    assert elect(rates, 2_000) == 2


def test_of_many_samples_some_vote_and_the_part_says_how_many(digits, monkeypatch):
    (images, labels), _ = digits
    of_voters = Dual(SMALL(images[:30]).numpy(), labels[:30].numpy(), CLASSES).part()
    monkeypatch.setattr(dual, "VOTERS", 30)
    part = Dual(SMALL(images[:120]).numpy(), labels[:120].numpy(), CLASSES).part()
    assert (of_voters.repeated, part.repeated) == (0, 0.75)
    assert part.hits.sum(axis=0) == pytest.approx(of_voters.hits.sum(axis=0))


def test_clients_vote_together(data):
    clients = make_clients(data, splits_of(data[1])["five clients"], shrinkage=None)
    go(clients, 250)
    rates = np.mean([client.part().hits.sum(axis=0) for client in clients], axis=0)  # they have 40 samples each
    error = math.sqrt(rates.max() * (1 - rates.max()) / N) / 2
    chosen = max(s for s, rate in zip(SHRINKAGES, rates, strict=True) if rate >= rates.max() - error)
    assert own_scores(clients[0], data[0]) == pytest.approx(pooled_scores(data, chosen / N), abs=1e-3)


@pytest.mark.parametrize("rows", [[0], [0, 0, 0], [5]], ids=["one sample", "a sample thrice", "another"])
def test_a_client_of_one_class_is_finite_and_knows_that_class(data, rows):
    vectors, labels = data[0][rows], data[1][rows]
    for shrinkage in (None, SHRINKAGE):
        for alone in (True, False):
            client = Dual(vectors, labels, CLASSES, shrinkage=shrinkage, alone=alone)
            for _ in range(3):
                assert math.isfinite(client.improve())
            assert all(np.isfinite(array).all() for array in client.part()[:5])
            linear = client.linear()
            assert linear.is_finite
            assert set(linear(data[0]).argmax(axis=1).tolist()) == {int(labels[0])}


def test_a_client_with_the_only_sample_of_a_class_counts_as_in_pooled_data(data):
    vectors, labels = data
    lacking = np.flatnonzero(labels != 7)
    one = np.flatnonzero(labels == 7)[:1]
    rows = np.concatenate([lacking, one])
    clients = make_clients(data, [lacking, one])
    go(clients, 80)
    expected = pooled_scores((vectors[rows], labels[rows]))
    assert expected[:, 7].argmax() == len(lacking)  # no other sample is as much of a seven
    for client in clients:
        assert own_scores(client, vectors[rows]) == pytest.approx(expected, abs=2e-3)


def test_images_without_contrast_do_no_harm(digits):
    vectors, labels = MIDDLE(torch.zeros(6, 1, 8, 8)).numpy(), np.arange(6)
    client = Dual(vectors, labels, CLASSES, alone=True)
    assert math.isfinite(client.improve())
    assert np.isfinite(client.linear()(vectors)).all()


def test_a_client_that_is_saved_and_loaded_goes_on_to_the_same_bits(data):
    split = splits_of(data[1])["two clients"]

    def end(stop):
        clients = make_clients(data, split, shrinkage=None)
        go(clients, stop)
        kept = io.BytesIO()
        torch.save(_as_tensors([client.state() for client in clients]), kept)
        clients = make_clients(data, split, shrinkage=None)
        for client, state in zip(clients, torch.load(io.BytesIO(kept.getvalue()), weights_only=True), strict=True):
            client.load_state(state)
        scores = clients[0].linear()(clients[0].vectors)
        go(clients, 8 - stop)
        return scores, clients

    (_, whole), (scores, resumed) = end(0), end(5)
    for a, b in zip(whole, resumed, strict=True):
        assert np.array_equal(a.published.alpha, b.published.alpha)
        assert all(np.array_equal(x, y) for x, y in zip(a.linear(), b.linear(), strict=True))
    straight = make_clients(data, split, shrinkage=None)
    go(straight, 5)
    assert np.array_equal(straight[0].linear()(straight[0].vectors), scores)  # the total was kept, too


def test_until_others_are_heard_of_the_classifier_is_the_own_samples(data):
    client = make_clients(data, [np.arange(50)])[0]
    client.improve()
    own = data[0][:50], data[1][:50]
    assert own_scores(client, own[0]) == pytest.approx(pooled_scores(own), abs=1e-4)


@pytest.mark.parametrize("shrinkage", [0.0, -1.0, math.inf, math.nan])
def test_shrinkage_must_be_above_0_and_finite(data, shrinkage):
    with pytest.raises(ConfigError, match=f"shrinkage must be above 0 and finite, not {shrinkage}"):
        Dual(*data, CLASSES, shrinkage=shrinkage)


@pytest.mark.parametrize("split", SPLITS)
def test_with_more_samples_than_numbers_a_step_in_moments_is_the_same_step(data, split, monkeypatch):
    vectors, labels = data
    short = vectors[:, :36]  # d = 36: most clients have more samples
    given = 6 * short / np.linalg.norm(short, axis=1, keepdims=True), labels
    expected = make_clients(given, splits_of(labels)[split])
    gaps = go(expected, 6)
    monkeypatch.setattr(moments, "FEW", 10)
    clients = make_clients(given, splits_of(labels)[split])
    assert any(client._moments is not None for client in clients) == (split != "a class each")
    assert go(clients, 6) == pytest.approx(gaps, rel=1e-4, abs=1e-6)
    for one, other in zip(clients, expected, strict=True):
        assert np.allclose(one.linear().weights, other.linear().weights, atol=1e-4)
        assert np.allclose(one.alone().weights, other.alone().weights, atol=1e-4)


def test_samples_that_do_not_fit_are_refused_with_their_size_before_memory_runs_out(data, monkeypatch):
    monkeypatch.setattr(moments, "find_free_bytes", lambda: 500_000)
    with pytest.raises(
        ConfigError, match=r"200 samples of 144 numbers need 0\.0 GB .* 200 × 200, and 0\.0 GB are free"
    ):
        make_clients(data, [np.arange(N)])
    monkeypatch.setattr(moments, "FEW", 10)
    make_clients((data[0][:, :36], data[1]), [np.arange(N)])


def test_free_memory_is_what_the_system_and_the_group_leave(tmp_path, monkeypatch):
    for name, text in (("meminfo", "MemTotal: 9 kB\nMemAvailable:  4 kB\n"), ("most", "5000"), ("used", "2000")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(moments, "MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(moments, "GROUP", (tmp_path / "most", tmp_path / "used"))
    assert moments.find_free_bytes() == 3000
    (tmp_path / "most").write_text("max")
    assert moments.find_free_bytes() == 4096
    monkeypatch.setattr(moments, "MEMORY", tmp_path / "nowhere")
    assert moments.find_free_bytes() is None
