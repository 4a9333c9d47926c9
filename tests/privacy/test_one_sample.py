"""How far one sample moves the numbers that leave a client with a budget, wherever it is among the others."""

import numpy as np
import pytest
import torch

from repshare import Agreement, Client, Policy
from repshare.board import Board
from repshare.cli.main import main
from repshare.exchange.local import LocalExchange
from repshare.party.state import make_report
from repshare.privacy.guard import reach
from repshare.privacy.ledger import OWN_COINS, Ledger, count_understated, read_ledger
from repshare.sharing import wire
from repshare.space import Fourier, Patches

COUNTS = (10, 48, 198, 199, 200, 218, 219, 300, 400, 800, 1100, 1200)
HELD = (0.03, 0.05, 0.2, 0.3)
WIDTH = 8
COMMON = Agreement(Fourier((-3.0,) * WIDTH, (3.0,) * WIDTH, features=16), "discriminant")
EXACT = 1e-4  # what fp32 makes of sums


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


def make(data, space=COMMON, ledger=None, **policy):
    """Return a client with a budget, and the tap through which its releases go."""
    exchange = Tap(Board(space.task(3)), "alice")
    chosen = Policy(epsilon=4.0, seeded_noise=True, **policy)
    given = {"space": space, "classes": 3, "ledger": ledger, "policy": chosen}
    return Client(None, data, exchange, name="alice", **given), exchange


def sent(data, **policy):
    """Return the sums that a client releases in its first round (C, numbers)."""
    client, exchange = make(data, **policy)
    assert client.round(test=False).trouble is None
    return wire.decode_release(exchange.sent).means.vectors.astype(np.float64)


@pytest.mark.parametrize("shares", [1, 3])
@pytest.mark.parametrize("count", COUNTS)
def test_a_sample_that_comes_or_goes_moves_class_sums_by_at_most_1(count, shares):
    moved, data = [], table(count + 1)
    for held in HELD:
        given = {"adjacency": "add-remove", "held_out": held, "noise_shares": shares}
        with_all = sent(data, **given)
        for place in (0, 1, count // 2 // 8 * 8, count // 2, count):
            without = sent(part(data, np.arange(count + 1) != place), **given)
            moved.append(np.linalg.norm(with_all - without))
    assert 0.9 < max(moved) <= 1 + EXACT


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


def test_with_a_budget_no_report_tells_of_samples():
    """An accuracy is no noisy sum: with two models that differ in one sample it would tell which has it."""
    client, _ = make(table(60))
    told = make_report(client, client.round(test=False))
    assert set(told) == {"round", "privacy", "model"}


def test_no_bit_of_a_samples_vector_depends_on_the_others():
    images = np.random.default_rng(3).normal(size=(40, 1, 8, 8)).clip(-3, 3).astype(np.float32)
    common = Agreement(Patches((1, 8, 8), sizes=(3, 4), filters=8, components=24), "discriminant")
    labels = np.arange(40) % 3
    whole, _ = make((images, labels), common, held_out=0.0)
    fewer, _ = make((images[1:], labels[1:]), common, held_out=0.0)
    assert np.array_equal(whole.learner.model.vectors[1:], fewer.learner.model.vectors)


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
    Ledger(tmp_path / "earlier.jsonl", about).add(earlier[0])
    for file, told in (("privacy.jsonl", ""), ("earlier.jsonl", "warning: 1 of them were made by an earlier version")):
        main(["privacy", "ledger", str(tmp_path / file)])
        said = " ".join(capsys.readouterr().out.split())
        assert "1 releases charged: ε = 4" in said
        assert told in said
        assert ("SECURITY.md" in said) == bool(told)
