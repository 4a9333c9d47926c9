"""Clients whose parts are clearly wrong are refused or left out of the total, and named; honest ones never are."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.datasets import load_breast_cancer

from repshare import Client, Policy
from repshare.board import Board
from repshare.errors import LeftOut, Refused
from repshare.exchange import LocalExchange
from repshare.sharing import wire
from repshare.space import Fourier, Patches
from repshare.space.agreement import Agreement
from repshare.stores import MemoryStore

CLASSES, SIZE = 10, 100
NAMES = [f"client {number}" for number in range(6)]
AGREEMENT = Agreement(Patches((1, 8, 8), sizes=(3, 4)), class_names=tuple("0123456789"))
TASK = replace(AGREEMENT.task(CLASSES), compared=True)
POLICY = Policy(minimum_count=1, accept_exposure=True)


@pytest.fixture
def own(digits):
    """Each client's samples, by name."""
    (images, labels), _ = digits
    parts = (slice(at * SIZE, (at + 1) * SIZE) for at in range(len(NAMES)))
    return {name: (images[rows], labels[rows].clone()) for name, rows in zip(NAMES, parts, strict=True)}


class Liar(LocalExchange):
    """Changes what its client releases before it is published."""

    def __init__(self, server, client, change):
        super().__init__(server, client)
        self.change = change

    def publish(self, body):
        release = wire.decode_release(body)
        super().publish(wire.encode_release(self.change(release), "fp16"))


def make_clients(own, board, liars=None):
    exchanges = {name: LocalExchange(board, name) for name in own}
    exchanges |= {name: Liar(board, name, change) for name, change in (liars or {}).items()}
    return {
        name: Client(data=own[name], exchange=exchange, name=name, policy=POLICY, space=AGREEMENT, seed=1)
        for name, exchange in exchanges.items()
    }


def play(clients, rounds):
    """Carry out rounds of all clients; return the last records by client."""
    for _ in range(rounds):
        records = {name: client.round() for name, client in clients.items()}
    return records


def exchange_labels(own, name, one, other):
    labels = own[name][1]
    first, second = labels == one, labels == other
    labels[first], labels[second] = other, one


def multiply(factor):
    def change(release):
        vectors = release.means.vectors.copy()
        vectors[:CLASSES, : TASK.dimension] *= factor
        return release._replace(means=release.means._replace(vectors=vectors))

    return change


def count(times):
    def change(release):
        return release._replace(means=release.means._replace(counts=release.means.counts * times))

    return change


def turn_after(rounds):
    """Turn the rows of all classes round, once some honest releases have been accepted."""

    def change(release):
        if release.round <= rounds:
            return release
        vectors = release.means.vectors.copy()
        vectors[:CLASSES, : TASK.dimension + 1] *= -1
        return release._replace(means=release.means._replace(vectors=vectors))

    return change


def named(board):
    return {each.name: each.reason for each in board.named()}


def test_with_nobody_wrong_nobody_is_refused_and_the_total_is_the_one_without_votes(own):
    compared, plain = Board(TASK), Board(replace(TASK, compared=False))
    for board in (compared, plain):
        records = play(make_clients(own, board), 5)
        assert [record.trouble for record in records.values()] == [None] * len(NAMES)
    assert named(compared) == {}
    assert compared.store.items()["totals"] == plain.store.items()["totals"]


@pytest.mark.parametrize("late", [False, True])
def test_who_has_exchanged_two_classes_is_left_out_and_told_which(own, late):
    exchange_labels(own, NAMES[0], 4, 9)
    board = Board(TASK)
    clients = make_clients(own, board)
    if late:
        wrong = clients.pop(NAMES[0])
        play(clients, 3)
        clients = {**clients, NAMES[0]: wrong}
    records = play(clients, 2)
    why = "its rows for 4 and 9 are exchanged: compare its labels with the others'"
    assert named(board) == {NAMES[0]: why}
    assert [record.trouble for record in records.values() if record.client == NAMES[0]] == [why]
    assert {member.name for member in board.status().shown} == set(NAMES[1:])
    without = Board(TASK)
    honest = make_clients({name: own[name] for name in NAMES[1:]}, without)
    play(honest, 2)
    if not late:
        assert [clients[name].trouble for name in NAMES[1:]] == [None] * 5


def test_a_client_that_was_left_out_returns_with_the_right_labels(own):
    right = own[NAMES[0]][1].clone()
    exchange_labels(own, NAMES[0], 4, 9)
    board = Board(TASK)
    clients = make_clients(own, board)
    play(clients, 2)
    assert named(board).keys() == {NAMES[0]}
    own[NAMES[0]] = own[NAMES[0]][0], right
    again = make_clients(own, board)[NAMES[0]]
    again.round_number = 2
    assert again.round().trouble is None
    assert named(board) == {}
    assert board.status().clients == len(NAMES)


def test_a_wrong_minority_that_comes_first_keeps_nobody_out(own):
    for name in NAMES[:2]:
        own[name][1][:] = (own[name][1] + 1) % CLASSES
    board = Board(TASK)
    records = play(make_clients(own, board), 3)
    assert named(board).keys() == set(NAMES[:2])
    assert [records[name].trouble for name in NAMES[2:]] == [None] * 4


def test_a_part_that_turns_round_is_refused_and_the_last_one_stays(own):
    board = Board(TASK)
    play(make_clients(own, board, {NAMES[2]: turn_after(2)}), 3)
    assert named(board).keys() == {NAMES[2]}
    assert "turned away from its own first ones" in named(board)[NAMES[2]]
    assert board.find(NAMES[2]).round == 2


@pytest.mark.parametrize(
    "counts", [((60, 3), (12, 147), (0, 50)), ((6, 150), (100, 6), (5, 6)), ((0, 100), (100, 0), (2, 60))]
)
def test_nobody_is_refused_for_having_mostly_one_of_two_classes(counts):
    cells, classes = load_breast_cancer(return_X_y=True)
    cells, rest = cells[:, :10], [np.flatnonzero(classes == label) for label in (0, 1)]
    high = tuple((1.3 * cells.max(axis=0)).tolist())
    agreement = Agreement(Fourier((0.0,) * 10, high, 0, 256, 0.25), class_names=("ill", "well"))
    board, clients = Board(replace(agreement.task(2), compared=True)), {}
    for name, wanted in zip(NAMES, counts, strict=False):
        rows = np.concatenate([own[:count] for own, count in zip(rest, wanted, strict=True)])
        rest = [own[count:] for own, count in zip(rest, wanted, strict=True)]
        data, exchange = (torch.from_numpy(cells[rows]).float(), classes[rows]), LocalExchange(board, name)
        clients[name] = Client(data=data, exchange=exchange, name=name, policy=POLICY, space=agreement, seed=1)
    for _ in range(12):
        assert [record.trouble for record in play(clients, 1).values()] == [None] * 3
    assert named(board) == {}


def test_a_part_that_is_much_longer_than_others_is_refused(own):
    board = Board(TASK)
    records = play(make_clients(own, board, {NAMES[5]: multiply(40)}), 1)
    assert "40 times the usual" in records[NAMES[5]].trouble
    assert board.status().clients == len(NAMES) - 1


def test_a_long_part_that_comes_first_is_left_out_when_there_is_something_to_compare_it_with(own):
    board = Board(TASK)
    own = dict(sorted(own.items(), key=lambda item: item[0] != NAMES[5]))
    play(make_clients(own, board, {NAMES[5]: multiply(40)}), 1)
    assert named(board).keys() == {NAMES[5]}
    assert board.find(NAMES[5]) is None


def test_without_anybody_to_compare_with_no_row_is_longer_than_honest_ones_can_be(own):
    board = Board(TASK)
    records = play(make_clients({NAMES[0]: own[NAMES[0]]}, board, {NAMES[0]: multiply(2000)}), 1)
    assert "no honest one is longer than 8.31" in records[NAMES[0]].trouble
    assert named(board).keys() == {NAMES[0]}
    assert board.status().clients == 0


def test_no_client_has_more_than_its_share_of_all_samples_and_is_told_how_all_may_agree_on_more(own):
    board = Board(TASK)
    records = play(make_clients(own, board, {NAMES[5]: count(10)}), 1)
    assert "its 1,000 samples would be 67% of all" in records[NAMES[5]].trouble
    assert "make the task with --most-share 0.67" in records[NAMES[5]].trouble
    more = Board(replace(TASK, most_share=0.7))
    assert play(make_clients(own, more, {NAMES[5]: count(10)}), 1)[NAMES[5]].trouble is None


def test_a_share_that_grows_too_large_is_taken_out(own):
    board = Board(TASK)
    own = dict(sorted(own.items(), key=lambda item: item[0] != NAMES[5]))
    play(make_clients(own, board, {NAMES[5]: count(10)}), 1)
    assert board.status().clients == len(NAMES) - 1  # out as soon as there are enough others to say so
    play(make_clients(own, board, {NAMES[5]: count(10)}), 2)
    assert named(board).keys() == {NAMES[5]}
    assert board.find(NAMES[5]) is None


def test_false_counts_of_a_third_that_comes_first_are_named_and_no_honest_client_is_refused(own):
    board, liars = Board(TASK), dict.fromkeys(NAMES[:2], count(1000))
    records = play(make_clients(own, board, liars), 3)
    assert named(board).keys() == set(liars)
    assert [records[name].trouble for name in NAMES[2:]] == [None] * 4


def test_who_withdraws_again_and_again_is_not_let_in_again_on_that_day(own):
    now = [1e9]
    board = Board(TASK, clock=lambda: now[0])
    clients = make_clients(own, board)
    play(clients, 2)
    for _ in range(3):
        board.withdraw(NAMES[0])
        refused = play(clients, 2)[NAMES[0]].trouble
    assert "it has withdrawn its part more than 2 times in a day" in refused
    assert named(board).keys() == {NAMES[0]}
    now[0] += 24 * 3600
    assert play(clients, 1)[NAMES[0]].trouble is None
    assert named(board) == {}


def test_who_comes_without_a_first_part_is_asked_for_one(own):
    board = Board(TASK)
    clients = make_clients(own, board)
    play(clients, 3)
    board.withdraw(NAMES[0])
    assert "must be of its own samples alone" in clients[NAMES[0]].round().trouble
    assert clients[NAMES[0]].round().trouble is None


def test_rows_that_point_the_other_way_are_left_out(own):
    board = Board(TASK)
    records = play(make_clients(own, board, {NAMES[5]: turn_after(0)}), 1)
    assert "hardly like others' for the same classes" in records[NAMES[5]].trouble


def test_who_has_one_of_two_exchanged_classes_is_named_too(own):
    images, labels = own[NAMES[5]]
    own[NAMES[5]] = images[labels != 9], labels[labels != 9]
    own[NAMES[5]][1][own[NAMES[5]][1] == 4] = 9
    board = Board(TASK)
    records = play(make_clients(own, board), 1)
    assert "its rows for 9 are like others' for 4" in records[NAMES[5]].trouble


def test_a_class_that_only_one_client_has_does_not_speak_against_it(own):
    for name in NAMES[1:]:
        images, labels = own[name]
        own[name] = images[labels < 9], labels[labels < 9]
    board = Board(TASK)
    records = play(make_clients(own, board), 4)
    assert [record.trouble for record in records.values()] == [None] * len(NAMES)
    assert named(board) == {}


def test_of_two_clients_nobody_knows_who_is_wrong(own):
    exchange_labels(own, NAMES[0], 4, 9)
    board = Board(TASK)
    play(make_clients({name: own[name] for name in NAMES[:2]}, board), 3)
    assert named(board) == {}


def test_what_is_known_of_a_client_goes_with_its_release(own):
    exchange_labels(own, NAMES[0], 4, 9)
    store = MemoryStore()
    board = Board(TASK, store)
    play(make_clients(own, board), 1)
    assert named(board)
    for name in NAMES:
        board.withdraw(name)
    assert named(board) == {}
    assert [key for key in store.items() if key.startswith("first/")] == []


def test_a_board_that_was_saved_goes_on_to_the_same_votes(own):
    board, other = Board(TASK), Board(TASK)
    clients = make_clients(own, board)
    play(clients, 2)
    other.load(board.save())
    body = clients[NAMES[3]].learner.release(3)
    turned = wire.encode_release(turn_after(0)(wire.decode_release(body)), "fp16")
    for each in (board, other):
        with pytest.raises(LeftOut, match="turned away"):
            each.accept(NAMES[3], turned)
    assert board.store.items().keys() == other.store.items().keys()


def test_a_refused_part_changes_no_total(own):
    board = Board(TASK)
    clients = make_clients(own, board)
    play(clients, 2)
    before = board.store.items()["totals"]
    turned = wire.encode_release(turn_after(0)(wire.decode_release(clients[NAMES[3]].learner.release(3))), "fp16")
    with pytest.raises(Refused):
        board.accept(NAMES[3], turned)
    assert board.store.items()["totals"] == before


def test_the_board_keeps_the_columns_that_are_compared_to_itself(own, monkeypatch):
    from repshare.board import votes

    monkeypatch.setattr(votes, "MOST_COLUMNS", 8)
    one, other = (votes.choose_columns.__wrapped__(TASK.dimension, key).tolist() for key in (b"a key", b"another"))
    assert len(one) == 8
    assert one != other
