"""How far one sample moves the numbers that leave a client with a budget, wherever it is among the others."""

import json
import math

import numpy as np
import pytest
import torch

from repshare import Agreement, Client, Policy
from repshare.board import Board
from repshare.cli.main import main
from repshare.exchange.local import LocalExchange
from repshare.methods import RS
from repshare.party.state import make_report
from repshare.privacy.ledger import OWN_COINS, count_understated, read_ledger
from repshare.privacy.sums import reach
from repshare.sharing import wire
from repshare.sharing.task import Task
from repshare.space import Fourier, Patches

COUNTS = (10, 48, 198, 199, 200, 218, 219, 300, 400, 800, 1100, 1200)
HELD = (0.03, 0.05, 0.2, 0.3)
WIDTH = 8
COMMON = Agreement(Fourier((-3.0,) * WIDTH, (3.0,) * WIDTH, features=16), "discriminant")
EXACT = 1e-4  # what fp32 makes of sums
LEVELS = ("public", "never", 0.5, 4.0)


class Tap(LocalExchange):
    """What left a client, before anybody else sees it."""

    def publish(self, body):
        self.sent = body
        super().publish(body)


def table(count, seed=0):
    """Samples of three classes; one of eight is there several times."""
    rng = np.random.default_rng(seed)
    inputs = rng.normal(size=(count, WIDTH)).clip(-3, 3).astype(np.float32)
    inputs[::8], labels = inputs[0], rng.integers(0, 3, count)
    labels[::8] = 0
    return inputs, labels


def part(data, rows):
    return tuple(each[rows] for each in data)


def make(data, space=COMMON, levels=None, ledger=None, **policy):
    """Return a client with a budget, and the tap through which its releases go."""
    exchange = Tap(Board(space.task(3)), "alice")
    chosen = Policy(epsilon=4.0, seeded_noise=True, **policy)
    given = {"space": space, "classes": 3, "levels": levels, "ledger": ledger, "policy": chosen}
    return Client(None, data, exchange, name="alice", **given), exchange


def sent(data, levels=None, **policy):
    """Return the sums that a client releases in its first round (C, numbers)."""
    client, exchange = make(data, levels=levels, **policy)
    assert client.round(test=False).trouble is None
    return wire.decode_release(exchange.sent).means.vectors.astype(np.float64)


@pytest.mark.parametrize("mode", [{}, {"noise_shares": 3}, {"levels": LEVELS}], ids=["alone", "shares", "levels"])
@pytest.mark.parametrize("count", COUNTS)
def test_a_sample_that_comes_or_goes_moves_class_sums_by_at_most_1(count, mode):
    moved, levels = [], mode.get("levels")
    given = {name: value for name, value in mode.items() if name != "levels"}
    data = table(count + 1)
    own = None if levels is None else [levels[place] for place in np.random.default_rng(1).integers(0, 4, count + 1)]
    for held in HELD:
        with_all = sent(data, own, adjacency="add-remove", held_out=held, **given)
        for place in (0, 1, count // 2 // 8 * 8, count // 2, count):
            rows = np.arange(count + 1) != place
            fewer = None if own is None else [level for level, stays in zip(own, rows, strict=True) if stays]
            without = sent(part(data, rows), fewer, adjacency="add-remove", held_out=held, **given)
            moved.append(np.linalg.norm(with_all - without))
    assert max(moved) <= 1 + EXACT
    assert levels or max(moved) > 0.9, "the test sees that a sample is there"


@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize("count", COUNTS)
def test_a_sample_that_is_another_moves_class_sums_no_further_than_is_accounted(count, shares):
    moved, data, other = [], table(count), table(count, seed=5)
    for held in HELD:
        before = sent(data, adjacency="replace", held_out=held, noise_shares=shares)
        for place in (0, 1, count // 2, count - 1):
            changed = tuple(each.copy() for each in data)
            for each, another in zip(changed, other, strict=True):
                each[place] = another[place]
            changed[0][place] = -3.0 * np.sign(changed[0][place])  # as far away as it can be
            moved.append(
                np.linalg.norm(before - sent(changed, adjacency="replace", held_out=held, noise_shares=shares))
            )
    assert 0.9 < max(moved) <= reach(Policy(adjacency="replace"), 16) + EXACT


def rs_client(data, levels=None, **policy):
    """Return a client of RS whose model training leaves as it is, and the tap through which its releases go."""
    torch.manual_seed(0)
    exchange = Tap(Board(Task(3, 8, norm_bound=1e6)), "alice")
    model = torch.nn.Sequential(torch.nn.Linear(WIDTH, 8), torch.nn.Tanh(), torch.nn.Linear(8, 3))
    chosen = Policy(planned_releases=1, learning_rate=1e-30, seeded_noise=True, **{"epsilon": 400.0, **policy})
    return Client(model, data, exchange, name="alice", method=RS, policy=chosen, levels=levels), exchange


def rs_sums(data, levels=None, **policy):
    """Return the sums of features behind a first release, in clip norms, a row for each of its averages; counts."""
    client, exchange = rs_client(data, levels, **policy)
    assert client.round(test=False).trouble is None
    release = wire.decode_release(exchange.sent)
    rows = [each.vectors * each.counts[:, None] / math.sqrt(8) for each in (release.means, release.observations)]
    return np.stack([row.astype(np.float64) for row in rows if len(row)]), release.means.counts


RS_MODES = {  # with add-remove: the policy, the levels of samples, and what numbers on the wire are rounded by
    "means": ({"m_up": 0}, None, EXACT),
    "of levels": ({"m_up": 0}, ("public", "never", 50.0, 400.0), EXACT),
    "in fp16": ({"m_up": 0, "precision": "fp16"}, None, 0.2),
    # Of all samples of a class, each drawn by a coin of its own. Coins come before noise: that is made small.
    "observations": ({"m_up": 1, "n_avg": 10_000, "epsilon": 1e9}, None, 0.05),
}


@pytest.mark.parametrize("mode", RS_MODES)
@pytest.mark.parametrize("count", [48, 199, 200, 800])
def test_a_sample_moves_sums_of_features_no_further_than_is_accounted(count, mode):
    data, (policy, chosen, rounding) = table(count + 1), RS_MODES[mode]
    levels = None if chosen is None else [chosen[each] for each in np.random.default_rng(1).integers(0, 4, count + 1)]
    more, counted = rs_sums(data, levels, adjacency="add-remove", **policy)
    moved = []
    for place in (0, count // 2, count):
        rows = np.arange(count + 1) != place
        fewer = None if levels is None else [level for level, stays in zip(levels, rows, strict=True) if stays]
        without, left = rs_sums(part(data, rows), fewer, adjacency="add-remove", **policy)
        moved.append(np.linalg.norm((more - without).reshape(len(more), -1), axis=1).max())
        assert np.abs(counted - left).sum() <= 1
    assert 0.1 < max(moved) <= 1 + rounding


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("count", [48, 199, 200, 800])
def test_a_sample_that_is_another_moves_sums_of_features_no_further_than_is_accounted(count, precision):
    data, rounding = table(count + 1), EXACT if precision == "fp32" else 0.2
    whole, _ = rs_sums(data, adjacency="replace", precision=precision)
    for place in (0, count // 2, count):
        changed = data[0].copy(), data[1]
        changed[0][place] = -3.0 * np.sign(changed[0][place])
        other, _ = rs_sums(changed, adjacency="replace", precision=precision)
        assert 0.1 < np.linalg.norm(whole - other, axis=2).max() <= 2 + rounding


def test_with_a_budget_no_report_tells_of_samples():
    """An accuracy is no noisy sum: with two models that differ in one sample it would tell which has it."""
    client, _ = rs_client(table(60))
    told = make_report(client, client.round(test=False))
    assert set(told) == {"round", "bytes_up", "bytes_down", "privacy", "model", "model_bytes"}


def test_no_bit_of_a_samples_vector_depends_on_the_others():
    images = np.random.default_rng(3).normal(size=(40, 1, 8, 8)).clip(-3, 3).astype(np.float32)
    common = Agreement(Patches((1, 8, 8), sizes=(3, 4), filters=8, components=24), "discriminant")
    labels = np.arange(40) % 3
    whole, _ = make((images, labels), common, held_out=0.0)
    fewer, _ = make((images[1:], labels[1:]), common, held_out=0.0)
    assert np.array_equal(whole.learner.model.vectors[1:], fewer.learner.model.vectors)


def test_the_number_of_releases_does_not_depend_on_who_can_still_pay():
    data, released = table(60), []
    for levels in ([0.5] * 60, ["public", *[0.5] * 59]):
        client, _ = make(data, levels=levels, adjacency="add-remove", held_out=0.0)
        client.policy = client.guard.policy = Policy(
            epsilon=4.0, seeded_noise=True, adjacency="add-remove", planned_releases=2, releases=5, m_up=0, m_down=0
        )
        released.append(sum(client.round(test=False).bytes_up > 0 for _ in range(5)))
        told = client.guard.told
    assert released == [2, 2]
    assert told == pytest.approx(4.0, rel=1e-2), "levels do not show in what a report tells"


def test_samples_are_held_out_by_a_secret_and_their_own_bytes():
    data = table(1200)
    held = {
        name: set(Client(
            torch.nn.Linear(WIDTH, 3), data, name="alice", space=COMMON, secret=secret,
            policy=Policy(epsilon=1.0, held_out=0.1),
        ).learner.held_rows.tolist())
        for name, secret in {"one": b"1" * 32, "again": b"1" * 32, "other": b"2" * 32}.items()
    }  # fmt: skip
    assert held["one"] == held["again"] != held["other"]
    assert 80 < len(held["one"]) < 165
    assert len(held["one"] & held["other"]) < 40
    copies = {place for place in held["one"] if place % 8 == 0}
    assert 3 < len(copies) < 40, "each copy of a sample has a coin of its own"


def test_a_ledger_of_earlier_releases_says_that_they_cost_more(tmp_path, capsys):
    client, _ = make(table(300), adjacency="add-remove", ledger=tmp_path / "privacy.jsonl")
    client.round(test=False)
    about, entries = read_ledger(tmp_path / "privacy.jsonl")
    assert count_understated(about, entries) == 0
    earlier = [{name: value for name, value in entry.items() if name not in OWN_COINS} for entry in entries]
    assert count_understated(about, earlier) == len(earlier) == 1
    assert count_understated({**about, "adjacency": "replace"}, earlier) == 0
    lines = [json.dumps(each) for each in (about, *earlier)]
    (tmp_path / "earlier.jsonl").write_text("\n".join(lines) + "\n")
    for file, told in (("privacy.jsonl", ""), ("earlier.jsonl", "warning: 1 of them were made by an earlier version")):
        main(["privacy", "ledger", str(tmp_path / file)])
        said = " ".join(capsys.readouterr().out.split())
        assert "1 releases charged: ε = 4" in said
        assert told in said
        assert ("SECURITY.md" in said) == bool(told)
