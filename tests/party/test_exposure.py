"""What leaves shows no single sample, unless that is accepted: attacks and refusals at each of a user's doors."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch

from repshare import Board, Client, LocalExchange, Policy
from repshare.board import Wants
from repshare.cli.main import main
from repshare.errors import ConfigError
from repshare.exchange import Exchange
from repshare.exchange.relay import Membership
from repshare.party.estimator import CommonSpaceClassifier
from repshare.party.state import State
from repshare.sharing import wire
from repshare.space import Patches, exposure
from repshare.space.agreement import Agreement, read_agreement
from support.groups import LocalGroup, gather
from support.processes import eventually, run
from support.relays import create_task, start_relay

SMALL = Agreement(Patches((1, 8, 8), sizes=(3, 4), components=9))
LONG = Agreement(Patches((1, 8, 8), sizes=(3, 4)))
PARTY = """
import numpy as np
from repshare import LeNet5, Party, Policy
from repshare_lab import load

def make(count, **policy):
    def party():
        train, _, _ = load("digits").normalised()
        return Party(LeNet5(), (train.images[:count], train.labels[:count]), policy=Policy(**policy))
    return party

few, many, fewer, told = make(120), make(1200), make(1150), make(120, accept_exposure=True)
"""


class Wire(Exchange):
    """An exchange that says nothing of itself, and keeps what leaves."""

    def __init__(self, board, name="alice"):
        self.inner, self.sent = LocalExchange(board, name), []

    def publish(self, body):
        self.sent.append(body)
        self.inner.publish(body)

    def collect(self, wants):
        return self.inner.collect(wants)


def make(data, common=SMALL, exchange=None, secret=None, **policy):
    exchange = exchange or Wire(Board(common.task(10)))
    given = {"space": common, "classes": 10, "policy": Policy(**policy), "secret": secret}
    return Client(None, data, exchange, name="alice", **given), exchange


def first(digits, count):
    (images, labels), _ = digits
    return images[:count], labels[:count]


def test_a_client_shares_nothing_that_shows_its_samples(digits):
    client, exchange = make(first(digits, 120))
    with pytest.raises(
        ConfigError, match=r"9 numbers for 120 samples: .* AUC of about 0.74 .* rule allows 0 numbers"
    ) as refused:
        client.round()
    assert exchange.sent == []
    for way in ("--epsilon 1.3 --adjacency add-remove", "--group", "--accept-exposure", "more samples"):
        assert way in str(refused.value)


def test_what_is_allowed_accepted_noisy_or_seen_by_nobody_is_shared(digits):
    sums = SMALL._replace(loss="discriminant")
    for count, common, policy in (
        (1000, SMALL, {}),
        (120, SMALL, {"accept_exposure": True}),
        (120, sums, {"epsilon": 1.3, "seeded_noise": True}),
    ):
        client, exchange = make(first(digits, count), common, **policy)
        client.round()
        assert len(exchange.sent) == 1, policy
    board = Board(SMALL.task(10))
    client, _ = make(first(digits, 120), exchange=LocalExchange(board, "alice"))
    assert client.round().trouble is None
    client, exchange = make(first(digits, 120), sums)
    with pytest.raises(ConfigError, match=r"--adjacency add-remove\); a masked group"):
        client.round()


def test_two_parties_have_each_others_part_so_that_both_need_samples_enough(digits):
    (images, labels), _ = digits
    halves = {"alice": slice(0, 500), "bob": slice(500, 1000)}
    board, parts = Board(SMALL.task(10)), {}
    for name, rows in halves.items():
        refused, exchange = make((images[rows], labels[rows]), exchange=Wire(board, name))
        with pytest.raises(ConfigError, match="9 numbers for 475 samples"):
            refused.round()
        assert exchange.sent == []
        client, exchange = make((images[rows], labels[rows]), exchange=Wire(board, name), accept_exposure=True)
        client.round()
        parts[name] = wire.decode_release(exchange.sent[0]).means
    total = wire.decode_teacher(board.teach("alice", Wants(0, 0, None))).means
    sums = {name: each.vectors.astype(np.float64) * 475 for name, each in {**parts, "both": total}.items()}
    sums["both"] *= 2
    assert np.allclose(sums["both"] - sums["alice"], sums["bob"], atol=1e-2), "alice has what bob alone sent"
    together, _ = make((images[:1000], labels[:1000]))
    assert together.exposure().allowed, "for the samples of both, such rows are not too long"


def test_a_client_of_a_group_counts_what_stands_behind_a_total_and_a_newcomer_itself_alone(digits, tmp_path):
    names = ("alice", "bob", "carol", "dora")
    exchanges = LocalGroup(tmp_path, SMALL.task(10), names).everyone(own=np.full(10, 47))
    client, _ = make(first(digits, 500), exchange=exchanges["alice"])
    assert gather(exchanges) == {}
    assert client.exposure().samples == pytest.approx(4 * 470 * 3 / 4)
    assert client.exposure().allowed
    exchanges["alice"]._newcomers = 1
    assert not client.exposure().allowed
    with pytest.raises(ConfigError, match="would show who is among your samples"):
        client.round()


def test_the_estimator_refuses_like_a_client():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 5)).clip(-3, 3)
    y = (x[:, 0] > 0).astype(int)
    with pytest.raises(ConfigError, match="2 rows of 2,048 numbers for 400 samples"):
        CommonSpaceClassifier().fit(x, y).partial_release()
    assert CommonSpaceClassifier(features=16).fit(x, y).partial_release()
    assert CommonSpaceClassifier(accept_exposure=True).fit(x, y).partial_release()


def test_the_estimator_leaves_a_class_of_too_few_samples_out_like_a_client():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(600, 5)).clip(-3, 3)
    y = (x[:, 0] > 0).astype(int)
    rare, others = y.copy(), np.arange(600) >= 2
    rare[:2] = 2
    released = [
        CommonSpaceClassifier(classes=(0, 1, 2), features=16).fit(*data).partial_release()
        for data in ((x, rare), (x[others], y[others]))
    ]
    assert released[0] == released[1]
    told = CommonSpaceClassifier(classes=(0, 1, 2), features=16, accept_exposure=True).fit(x, rare)
    assert told.partial_release() != released[0], "the test sees that they are there"
    with pytest.raises(ConfigError, match="no class here has the 3 samples"):
        CommonSpaceClassifier(features=16).fit(x[:4], [0, 1, 0, 1]).partial_release()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("party.py").write_text(PARTY)
    return tmp_path


def test_join_refuses_before_anything_leaves(folder, capsys):
    create_task(folder, "short", "--input-shape", 1, 8, 8, "--space", "patches", "components=9", "--classes", 10)
    with start_relay(folder, "--insecure") as relay:
        join = ["join", relay.url, "--task", "short", "--name", "alice", "--rounds", "1", "--accept-space"]

        def published():
            return relay.ask("GET", "/v1/tasks/short/status").json()["clients"]

        with pytest.raises(SystemExit):
            main([*join, "--party", "party.py:few"])
        assert "would show who is among your samples: 10 rows of 9 numbers for 120 samples" in capsys.readouterr().err
        assert not published()
        main([*join, "--party", "party.py:few", "--accept-exposure", "--state", "accepted"])
        assert "warning: what leaves shows who is among your samples" in capsys.readouterr().out
        eventually(lambda: published() == 1, "the status is some moments old")
        main([*join, "--party", "party.py:told", "--state", "told", "--restart"])
        main([*join, "--party", "party.py:many", "--name", "bob", "--state", "many"])
        assert "who is among" not in capsys.readouterr().out.split("bob")[1]
        eventually(lambda: published() == 2, "the status is some moments old")


def test_join_refuses_a_few_samples_that_changed_since_the_last_start(folder, capsys):
    create_task(folder, "short", "--input-shape", 1, 8, 8, "--space", "patches", "components=9", "--classes", 10)
    with start_relay(folder, "--insecure") as relay:
        join = ["join", relay.url, "--task", "short", "--name", "alice", "--state", "kept", "--accept-space"]

        def releases():
            return relay.ask("GET", "/v1/tasks/short/status").json()["clients"], relay.teacher(
                task="short", client="bob"
            ).content

        main([*join, "--party", "party.py:many", "--rounds", "1"])
        before = releases()
        with pytest.raises(SystemExit):
            main([*join, "--party", "party.py:fewer", "--rounds", "1", "--restart"])
        assert " samples came, went or changed since the last start" in capsys.readouterr().err
        assert releases() == before
        main([*join, "--party", "party.py:fewer", "--rounds", "1", "--restart", "--accept-exposure"])
        assert releases() != before


def test_who_joins_a_proposed_task_with_the_printed_options_is_not_refused(folder, capsys):
    expected = ("--samples-expected", 2400, "--members", 2)
    main(["relay", "tasks", "create", "chosen", *map(str, ("--input-shape", 1, 8, 8, "--classes", 10, *expected))])
    options = capsys.readouterr().err.partition("Clients join with: ")[2].splitlines()[0].split()
    assert options[0] == "--epsilon"
    with start_relay(folder, "--insecure") as relay:
        join = ["join", relay.url, "--task", "chosen", "--name", "alice", "--party", "party.py:many"]
        main([*join, "--rounds", "1", *options])
        assert relay.ask("GET", "/v1/tasks/chosen/status").json()["clients"] == 1


def test_as_many_members_and_samples_as_expected_are_not_refused(folder, capsys):
    expected = ("--samples-expected", 20_000, "--members", 10)
    main(["relay", "tasks", "create", "chosen", *map(str, ("--input-shape", 5, "--classes", 10, *expected))])
    capsys.readouterr()
    agreed = read_agreement(run(capsys, "relay", "tasks", "describe", "chosen").out)
    rng = np.random.default_rng(0)
    client, _ = make((rng.normal(size=(2000, 5)).astype(np.float32), rng.integers(0, 10, 2000)), agreed)
    assert client.exposure(lambda own: own * 9).allowed
    assert not client.exposure().allowed


def test_a_dry_run_tells_what_would_be_seen(folder, capsys):
    Path("agreed.json").write_text(json.dumps(SMALL.describe()))
    dry = ["join", "http://127.0.0.1:9", "--dry-run", "--agreement", "agreed.json"]
    said = " ".join(run(capsys, *dry, "--party", "party.py:few").out.split())
    assert "What it shows, refused: nothing leaves: 10 rows of 9 numbers for 120 samples" in said
    assert "What it shows, allowed: 10 rows of 9" in " ".join(run(capsys, *dry, "--party", "party.py:many").out.split())


def test_a_dry_run_with_a_budget_tells_of_noised_sums_and_no_single_sample(folder, capsys):
    Path("agreed.json").write_text(json.dumps(SMALL._replace(loss="discriminant").describe()))
    dry = ["join", "http://127.0.0.1:9", "--dry-run", "--agreement", "agreed.json", "--party", "party.py:few"]
    said = run(capsys, *dry, "--epsilon", "3", "--adjacency", "add-remove").out
    assert said.count("noised sum over") == 10
    assert "their classes, counts under noise" in said
    assert "Each is a sum of representations" in said
    assert "itself" not in said


def test_a_task_for_expected_samples_says_how_to_join(folder, capsys):
    shape = ("--input-shape", 1, 8, 8, "--classes", 10)
    proposals = {
        (
            1200,
            10,
        ): "sums of 256 numbers a class, once, with noise (AUC at most 0.60 for any attack), in masked groups of 7 or "
        "more. Clients join with: --noise-shares 7 --epsilon 1.3 --adjacency add-remove",
        (400, 2): "sums of 256 numbers a class, once, with noise (AUC at most 0.60 for any attack). Clients join with: "
        "--epsilon 1.3 --adjacency add-remove",
        (20_000, 10): "rows of 212 numbers (AUC at most 0.60 for the attacks known), in masked groups of 3 or more. "
        "Clients join with: no further options",
        (200_000, 10): "rows of 236 numbers (AUC at most 0.60 for the attacks known). Clients join with: "
        "no further options",
    }
    for (samples, members), told in proposals.items():
        name = f"for-{samples}"
        expected = ("--samples-expected", samples, "--members", members)
        main(["relay", "tasks", "create", name, *map(str, (*shape, *expected))])
        assert told in capsys.readouterr().err
        described = json.loads(run(capsys, "relay", "tasks", "describe", name).out)
        assert described["loss"] == ("discriminant" if "noise (" in told else "squared")
        assert f"{described['components']} numbers" in told
    main(["relay", "tasks", "create", "usual", *map(str, shape)])
    assert "numbers, clients share from" in capsys.readouterr().err


def test_noise_of_the_proposed_budget_keeps_any_attack_at_what_is_promised():
    from statistics import NormalDist

    from repshare.privacy import accounting

    noise = accounting.noise_for(exposure.BUDGET, Policy.delta, 1)
    assert 0.59 < NormalDist().cdf(1 / noise / math.sqrt(2)) <= exposure.PROMISED


def test_few_samples_that_change_over_a_life_are_not_shown_by_a_difference(tmp_path, digits):
    (images, labels), _ = digits
    board = Board(SMALL.task(10))

    def start(rows, **policy):
        client, exchange = make((images[rows], labels[rows]), exchange=Wire(board), secret=b"s" * 32, **policy)
        with State(tmp_path / "alice", client, Membership("task", "alice", board.task)).folder:
            pass
        return exchange

    start(slice(0, 900))
    start(slice(0, 900))
    for rows in (slice(1, 900), slice(0, 901), slice(10, 910)):
        with pytest.raises(ConfigError, match="samples came, went or changed since the last start"):
            start(rows)
    start(slice(1, 900), accept_exposure=True)
    start(slice(1, 900))
    start(slice(0, 1), minimum_count=1, accept_exposure=True)
    start(slice(0, 901))  # 900 came: of these the difference is as good as a release


# A class of one sample: its row was that sample, whatever minimum_count said.


def rank_of_the_one(client, exchange, strangers, one, label):
    """The place of the one sample among strangers of its class, by likeness to the row that it should not rule."""
    client.round()
    rows = wire.decode_release(exchange.sent[0]).means.vectors.astype(np.float64)
    d = client.learner.dimension
    row = rows[label, :d] - rows[label, d] * rows[10, :d]
    vectors = client.learner.agreement.vectors(torch.from_numpy(np.concatenate([one[None], strangers]))).astype(
        np.float64
    )
    scores = (vectors - rows[10, :d]) @ row / np.linalg.norm(vectors - rows[10, :d], axis=1)
    return float((scores[1:] > scores[0]).sum() + (scores[1:] == scores[0]).sum() / 2), len(strangers)


@pytest.mark.parametrize("least", [1, None])
def test_a_class_of_one_sample_is_not_told_from_others(digits, least):
    (images, labels), _ = digits
    nines, others, places = np.flatnonzero(labels == 9), np.flatnonzero(labels != 9), []
    for number in range(18):
        rng = np.random.default_rng(number)
        chosen = rng.permutation(nines)
        rows = np.append(rng.permutation(others)[:60], chosen[0])
        policy = {"accept_exposure": True, **({} if least is None else {"minimum_count": least})}
        client, exchange = make((images[rows], labels[rows]), LONG, **policy)
        strangers, one = (np.asarray(images[which]) for which in (chosen[1:], chosen[0]))
        place, count = rank_of_the_one(client, exchange, strangers, one, 9)
        places.append(place / count)
    if least == 1:
        assert np.median(places) == 0, "the attack works where the safeguard is taken out"
    else:
        assert 0.3 < np.mean(places) < 0.7
        assert client.learner.left_out_classes() == {9: 1}


@pytest.mark.parametrize("least", [2, 3, 20])
def test_no_sample_rules_a_row(digits, least):
    (images, labels), _ = digits
    rows = np.concatenate([np.flatnonzero(labels != 9)[:200], np.flatnonzero(labels == 9)[: 2 * least]])
    client, _ = make((images[rows], labels[rows]), LONG, minimum_count=least, accept_exposure=True)
    for _ in range(3):
        client.round()
        squares = np.square(client.learner.model.published.alpha)
        assert (squares.max(axis=0) <= squares.sum(axis=0) / least * (1 + 1e-9)).all()
