"""When a party in a common space begins a round, and when it only watches."""

import math
import time
from dataclasses import replace
from itertools import islice

import numpy as np
import pytest

from repshare import Board, Client, LeNet5, LocalExchange, Policy, Task
from repshare.errors import Unreachable
from repshare.exchange.relay import Membership
from repshare.party import rounds as party_rounds
from repshare.party.rounds import take_part_in_group, take_part_until_settled
from repshare.party.state import State
from repshare.sharing import wire
from repshare.space import dual
from support.space_parties import COMMON


class Unreliable(LocalExchange):
    """A board that cannot always be reached."""

    reachable = True

    def check(self):
        if not self.reachable:
            raise Unreachable("the board is away")

    def publish(self, body):
        self.check()
        super().publish(body)

    def collect(self, wants):
        self.check()
        return super().collect(wants)

    def others(self):
        self.check()
        return self.server.status(0).clients - 1

    def wait(self, since, seconds):
        self.check()
        until = time.monotonic() + seconds
        while self.server.version() == since and time.monotonic() < until:
            time.sleep(0.005)
        return self.server.version()


@pytest.fixture
def board(monkeypatch):
    for name, seconds in {"SLICE_SECONDS": 0.01, "LATE_SECONDS": 0.2, "GATHER_SECONDS": 0.001}.items():
        monkeypatch.setattr(party_rounds, name, seconds)
    return Board(COMMON.task(10))


def make_state(folder, board, splits, number):
    data = splits.train.images[number:300:5].astype("float32"), splits.train.labels[number:300:5]
    name = f"c{number}"
    client = Client(None, data, Unreliable(board, name), name=name, space=COMMON, classes=10)
    state = State(folder / name, client, Membership("digits", name, board.task))
    return state, client.exchange


def play(rounds, count):
    """The next records, without what is yielded while a client waits."""
    return list(islice(filter(None, rounds), count))


def test_a_client_whose_first_release_was_lost_publishes_it_later_though_nobody_else_is_there(board, tmp_path, splits):
    """Or two clients that began while the relay was away would watch for each other forever."""
    state, exchange = make_state(tmp_path, board, splits, 0)
    rounds = take_part_until_settled(state, exchange)
    exchange.reachable = False
    assert play(rounds, 1)[0].trouble == "the board is away"
    exchange.reachable = True
    steps = list(islice(rounds, 10))
    assert board.status().clients == 1
    assert sum(step is not None for step in steps) == 1, "alone, it does one round, and watches"


def test_rounds_without_an_exchange_do_not_count(board, tmp_path, splits, monkeypatch):
    monkeypatch.setattr(dual, "MOST_ROUNDS", 5)
    monkeypatch.setattr(dual, "SMALL_GAP", 0.0)
    (one, exchange), (other, _) = (make_state(tmp_path, board, splits, number) for number in (0, 1))
    other.play()
    rounds = take_part_until_settled(one, exchange)
    assert [record.trouble for record in play(rounds, 4)] == [None] * 4  # from the second on, of the same samples
    exchange.reachable = False
    assert all(record.trouble for record in play(rounds, 6))
    exchange.reachable = True
    after = [step for step in islice(rounds, 100) if step is not None]
    assert [record.trouble for record in after] == [None] * 2, "five in all, and then it watches"
    assert {record.others for record in after} == {1}


@pytest.mark.parametrize(("small", "most"), [(0.01, 100), (1e-4, 100), (0.0, 9)])
def test_a_client_goes_on_until_its_gap_is_small_or_it_has_done_many_rounds(
    board, tmp_path, splits, monkeypatch, small, most
):
    for name, value in {"FEWEST_ROUNDS": 3, "SMALL_GAP": small, "MOST_ROUNDS": most}.items():
        monkeypatch.setattr(dual, name, value)
    (one, exchange), (other, _) = (make_state(tmp_path, board, splits, number) for number in (0, 1))
    other.play()
    gaps, idle, told = [], 0, []
    for step in take_part_until_settled(one, exchange, settled=lambda: told.append(len(gaps))):
        idle = idle + 1 if step is None else 0
        if step is not None:
            gaps.append(step.gap)
            other.play()
        if idle > 50:
            break
    assert told == [len(gaps)], "it says so once, after the last round"
    *before, last = gaps
    assert len(gaps) == most + 1 or last <= small < min(before[3:])  # in the first, the total had not its own samples


def test_who_only_watches_is_not_forgotten_and_who_is_gone_is(board, tmp_path, splits, monkeypatch):
    monkeypatch.setattr(dual, "FEWEST_ROUNDS", 3)
    monkeypatch.setattr(dual, "SMALL_GAP", math.inf)
    aging = Board(replace(board.task, max_age=1.0))
    (one, exchange), (gone, _) = (make_state(tmp_path, aging, splits, number) for number in (0, 1))
    gone.play()
    rounds, settled, names = take_part_until_settled(one, exchange, settled=lambda: settled.append(True)), [], set()
    until = time.monotonic() + 3
    while time.monotonic() < until:
        next(rounds)
        aging.expire()
        names = {member.name for member in aging.status().shown}
        assert "c0" in names or not settled
    assert settled
    assert names == {"c0"}


def test_those_who_are_gone_are_waited_for_once(board, tmp_path, splits, monkeypatch):
    """Of four others, two publish in every round, and two have gone."""
    monkeypatch.setattr(party_rounds, "LATE_SECONDS", 0.6)
    (one, exchange), *others = (make_state(tmp_path, board, splits, number) for number in range(5))
    for other, _ in others:
        other.play()
    waited, rounds = [], take_part_until_settled(one, exchange)
    for number in range(1, 8):
        started = time.monotonic()
        while (step := next(rounds)) is None:
            pass
        waited.append(time.monotonic() - started)
        assert step.round == number
        for other, _ in others[:2]:
            other.play()
    late = [seconds > 0.6 for seconds in waited]
    assert late[1:3] == [True, True], "it waits for all four while the total is new to it"
    assert not any(late[3:])


class Spoilt(LocalExchange):
    """A board whose total is spoilt from the second look at it on."""

    collected = 0

    def collect(self, wants):
        self.collected += 1
        teacher = wire.decode_teacher(super().collect(wants))
        if self.collected > 1:
            teacher.means.vectors[:] = np.inf
        return wire.encode_teacher(teacher)


def test_a_network_in_a_group_trains_in_every_meeting_never_settles_and_outlives_a_spoilt_total(tmp_path, splits):
    data = splits.train.images[:100].astype("float32"), splits.train.labels[:100]
    board = Board(Task(10, 84))
    Client(LeNet5(), data, LocalExchange(board, "b"), name="b").round()
    client = Client(LeNet5(), data, Spoilt(board, "a"), name="a", policy=Policy(m_up=0))
    state, told = State(tmp_path / "a", client, Membership("digits", "a", board.task)), []
    state.restore()
    records = take_part_in_group(state, client.exchange, 4, settled=lambda: told.append("settled"))
    troubled = [record.trouble for record in records if record is not None]
    assert [each is None for each in troubled] == [True, False, False, False]
    assert all("not finite" in each for each in troubled[1:])
    assert not told
