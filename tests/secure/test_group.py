"""Class sums through a masked group: the same means as a board's, over a real relay, whoever drops out or lies."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from repshare import Agreement, Client, Policy
from repshare.board import Board, Wants
from repshare.errors import ConfigError, Refused, Unreachable
from repshare.exchange.keys import Key
from repshare.exchange.relay import RelayExchange
from repshare.network.models import LeNet5
from repshare.relay.auth import Access, Grant
from repshare.relay.tasks import Tasks
from repshare.secure import GroupExchange, Meetings, RelayMeetings
from repshare.sharing import wire
from repshare.sharing.representations import Release, nothing, stack
from repshare.sharing.task import Task
from repshare.space import Patches
from repshare.stores import open_database
from support.groups import LocalGroup, gather, publish, side_by_side
from support.processes import RelayProcess

NAMES = ("alice", "bob", "carol", "dave")
TASK = Task(classes=3, dimension=2, group_members=3, class_members=1)
WANTS = Wants(1, 0)
OWN = (5, 6, 0)


@pytest.fixture
def group(tmp_path):
    return LocalGroup(tmp_path, TASK, NAMES)


def release(name, classes=(0, 1), round=1):
    rng = np.random.default_rng(NAMES.index(name) + 10 * round)
    rows = stack([(rng.normal(size=2), label, 5 + label) for label in classes], 2)
    return wire.encode_release(Release(round, rows, nothing(2)))


def through_a_board(bodies, client):
    board = Board(replace(TASK, group_members=0))
    for name, body in bodies.items():
        board.accept(name, body)
    return wire.decode_teacher(board.teach(client, WANTS)).means


def at_a_relay(request):
    """Members at a real relay, which knows them by tokens."""
    folder = request.getfixturevalue("tmp_path")
    with closing(open_database(str(folder / "relay.db"))) as database:
        Tasks(database).create("digits", TASK)
        tokens = {name: Access(database).invite(Grant("client", name, "digits")) for name in NAMES}
    process = RelayProcess(folder, "--rate", 0)
    request.addfinalizer(process.stop)
    relays = {name: RelayExchange(process.url, token=token) for name, token in tokens.items()}
    made = {}
    for name, relay in relays.items():
        request.addfinalizer(relay.close)
        (folder / name).mkdir()
        made[name] = GroupExchange(
            TASK, name, RelayMeetings(relay), task_name="digits", folder=folder / name, own=np.array(OWN),
            company=1, patience=30.0, tell=lambda _: None,
        )  # fmt: skip
    return made


@pytest.mark.parametrize("place", ["in process", "at a relay"])
def test_the_means_are_those_of_a_board_to_the_last_bit(request, group, place):
    exchanges = group.everyone(own=OWN) if place == "in process" else at_a_relay(request)
    for round in (1, 2):
        bodies = {name: release(name, (0, 1, 2) if name == "bob" else (0, 1), round) for name in NAMES}
        assert publish(exchanges, bodies) == {}
        for name, exchange in exchanges.items():
            teacher = wire.decode_teacher(exchange.collect(WANTS))
            for ours, theirs in zip(teacher.means, through_a_board(bodies, name), strict=True):
                assert np.array_equal(ours, theirs)
            assert (2 in teacher.means.labels) == (name != "bob"), "nobody learns from itself alone"
            assert len(teacher.observations.labels) == 0


def test_one_who_goes_in_the_middle_is_named_costs_one_meeting_and_its_part_stays(group):
    exchanges = group.everyone(patience=1.5)
    first = {name: release(name) for name in NAMES}
    assert publish(exchanges, first) == {}
    meetings = exchanges["dave"].meetings

    def leave_before_the_sum(name, number, step, body):
        if step == 2:
            raise Refused("dave is gone")
        meetings.meetings.put(name, number, step, body)

    meetings.put = leave_before_the_sum
    bodies = {name: release(name, round=2) for name in NAMES}
    trouble = publish(exchanges, bodies)
    assert set(trouble) == set(NAMES)
    assert "dave sent nothing in step 2 of meeting 2" in str(trouble["alice"])
    del bodies["dave"]
    assert publish(exchanges, bodies) == {}
    means = wire.decode_teacher(exchanges["bob"].collect(WANTS)).means
    assert np.array_equal(means.vectors, through_a_board({**bodies, "dave": first["dave"]}, "bob").vectors)


def test_with_too_few_the_last_teacher_stays_also_over_a_restart(group):
    exchanges = group.everyone()
    assert publish(exchanges, {name: release(name) for name in NAMES}) == {}
    before = exchanges["alice"].collect(WANTS)
    assert [exchanges[name].gather() for name in NAMES[:2]] == [False, False]
    assert exchanges["alice"].collect(WANTS) == before
    again = group.join("alice")
    assert again.collect(WANTS) == before
    assert again.others() is None


WRONG = {  # what dave adds to class 1, beside what he really has: numbers of d' = 2, then weights, samples, clients
    "no weights": ([0, 0, -24, 0, 0], "a weight of "),
    "negative samples": ([0, 0, -90, -90, 0], "samples of "),
    "negative clients": ([0, 0, 0, 0, -9], "clients, of 3,"),
    "more clients than members": ([0, 0, 0, 0, 1], "clients, of 3,"),
    "more samples than can be": ([0, 0, 2**40, 2**40, 0], "samples of "),
    "a mean that is too long": ([2**59, 0, 0, 0, 0], "a sum of length "),
}


def lie(exchange, change, step=2):
    """Let a member add what `change` makes of its vector in this step."""
    honest = exchange._sum_up

    def sum_up(meeting, at, what, vector):
        return honest(meeting, at, what, change(vector) if at == step else vector)

    exchange._sum_up = sum_up
    return honest


@pytest.mark.parametrize("kind", WRONG)
def test_a_total_that_no_honest_members_can_have_is_refused_in_one_line(group, kind):
    (numbers, reason), exchanges, wrong = WRONG[kind], group.everyone(own=OWN), np.zeros((3, 5), np.int64)
    bodies, wrong[1] = {name: release(name) for name in NAMES}, numbers
    lie(exchanges["dave"], lambda vector: vector + wrong.ravel())
    trouble = publish(exchanges, bodies)
    for name in ("alice", "bob", "carol"):
        assert isinstance(trouble[name], Refused)
        assert reason in str(trouble[name])
        assert "in class 1. A member has lied" in str(trouble[name])
        assert "\n" not in str(trouble[name])
        assert len(wire.decode_teacher(exchanges[name].collect(WANTS)).means.labels) == 0


def test_a_client_whose_group_is_lied_to_goes_on_training(tmp_path, digits):
    images, labels = digits[0]
    exchanges = LocalGroup(tmp_path, Task(10, 84, group_members=3, class_members=1), NAMES).everyone()
    honest = lie(exchanges["dave"], lambda vector: vector - 10**6)
    clients = {
        name: Client(LeNet5(), (images[:20], labels[:20]), exchange, name=name, policy=Policy(m_up=0))
        for name, exchange in exchanges.items()
    }
    records = {}
    assert side_by_side(lambda name: records.update({name: clients[name].round()}), NAMES) == {}
    for name in NAMES[:3]:
        assert "A member has lied" in records[name].trouble
        assert "\n" not in records[name].trouble
    exchanges["dave"]._sum_up = honest
    assert side_by_side(lambda name: records.update({name: clients[name].round()}), NAMES) == {}
    assert [(record.round, record.trouble) for record in records.values()] == [(2, None)] * 4


def test_messages_of_an_earlier_meeting_with_the_same_number_bring_nobody_in(group):
    """A relay whose database is new counts from 1 again, and may have kept what was said."""
    bodies = {name: release(name) for name in NAMES}
    assert publish(group.everyone(), bodies) == {}
    old = [group.meetings.get("bob", 1, step)["bob"] for step in range(3)]
    group.meetings = Meetings(fewest=3)
    exchanges = group.everyone(patience=2.0)
    put = exchanges["bob"].meetings.meetings.put
    exchanges["bob"].meetings.put = lambda name, number, step, body: put(name, number, step, old[step])
    trouble = publish(exchanges, bodies)
    assert set(trouble) == set(bodies)
    assert "sent nothing in step 1" in str(trouble["alice"]), "nobody masks anything for an old announcement"


def test_nobody_takes_part_in_a_meeting_twice(group):
    exchanges = group.everyone()
    assert publish(exchanges, {name: release(name) for name in NAMES}) == {}
    group.meetings = Meetings(fewest=3)
    for exchange in exchanges.values():
        exchange.meetings.meetings = group.meetings
    trouble = gather(exchanges)
    assert "this would be meeting 1, but alice has taken part in it" in str(trouble["alice"])


def test_one_whose_message_was_lost_may_come_again(group):
    exchanges = group.everyone(patience=1.5)
    put = exchanges["alice"].meetings.put

    def lose(*_):
        exchanges["alice"].meetings.put = put
        raise Unreachable("the relay is unavailable")

    exchanges["alice"].meetings.put = lose
    assert isinstance(publish(exchanges, {name: release(name) for name in NAMES})["alice"], Unreachable)
    assert publish(exchanges, {name: release(name) for name in NAMES}) == {}


def test_what_the_relay_keeps_has_no_ones_sums_in_it(group):
    exchanges = group.everyone()
    zeros = wire.encode_release(Release(1, nothing(2), nothing(2)))
    assert publish(exchanges, dict.fromkeys(NAMES, zeros)) == {}
    kept = {key: body for key, body in group.meetings.store.items().items() if "/2/" in key}
    assert len(kept) == len(NAMES)
    assert all(np.count_nonzero(np.frombuffer(body[:-64], "<u8")) == TASK.totals_size for body in kept.values())


def test_observations_are_refused_since_no_sum_hides_them(group):
    rows = stack([(np.ones(2), 0, 5)], 2)
    with pytest.raises(Refused, match="m_up = 0"):
        group.join("alice").publish(wire.encode_release(Release(1, rows, rows)))


def test_members_who_were_told_of_different_tasks_do_not_meet(group):
    exchanges = {
        name: group.join(name, task=replace(TASK, norm_bound=9.0 if name == "alice" else 8.0)) for name in NAMES
    }
    trouble = gather(exchanges)
    assert set(trouble) == set(NAMES)
    assert "must have the same task" in str(trouble["bob"])


def test_a_group_learns_a_common_classifier_from_totals_alone(tmp_path, digits):
    (images, labels), test = digits
    common = Agreement(Patches(shape=(1, 8, 8), sizes=(3, 4)))
    task = replace(common.task(10), group_members=3, class_members=1)
    exchanges = LocalGroup(tmp_path, task, NAMES).everyone()
    held = {"alice": (0, 1), "bob": (2, 3, 4), "carol": (5, 6, 7), "dave": (8, 9)}
    clients, records = {}, {}
    for name, classes in held.items():
        own = np.flatnonzero(np.isin(labels, classes))[:100]
        clients[name] = Client(
            None, (images[own], labels[own]), exchanges[name], name=name, space=common, classes=10, test=test,
            policy=Policy(accept_exposure=True),
        )  # fmt: skip
    for _ in range(3):
        assert side_by_side(lambda name: records.update({name: clients[name].round()}), NAMES) == {}
        assert [record.trouble for record in records.values()] == [None] * 4
    assert all(record.test_accuracy > 0.85 for record in records.values()), "all have learned all ten classes"


def test_a_group_counts_clients_as_the_task_says(tmp_path):
    exchanges = LocalGroup(tmp_path, replace(TASK, weighted=False), NAMES).everyone()
    bodies = {name: wire.encode_release(Release(1, stack([(np.full(2, float(n)), 0, 4**n)], 2), nothing(2)))
              for n, name in enumerate(NAMES, start=1)}  # fmt: skip
    assert publish(exchanges, bodies) == {}
    means = wire.decode_teacher(exchanges["bob"].collect(WANTS)).means
    assert means.vectors.tolist() == [[2.5, 2.5]]


def test_members_count_classes_and_samples_before_anything_leaves(tmp_path):
    group = LocalGroup(tmp_path, Task(4, 8, group_members=3), NAMES[:3])
    owned = {"alice": (5, 5, 5, 0), "bob": (3, 0, 9, 4), "carol": (7, 2, 1, 0)}
    members = {name: group.join(name, own=own) for name, own in owned.items()}
    assert [member.behind(9) for member in members.values()] == [np.inf] * 3, "nobody sees anything yet"
    assert gather(members) == {}
    for member in members.values():
        assert member.hidden == {1, 3}, "two have class 1, and one has class 3"
        assert member.behind(9) == pytest.approx(41 * 2 / 3)
        assert not member.may_have_left()
        member._newcomers = 1
        assert member.behind(9) == 9, "the difference that a newcomer makes is its own"
    codes = {told for lines in group.told.values() for told in lines if "key code" in told and "group of" in told}
    assert len(codes) == 1


CHANGES = [
    (lambda said: said._replace(members=dict(list(said.members.items())[:2])), "proposes 2 members"),
    (lambda said: said._replace(members={**said.members, "alice": "ab" * 32}), "another key of alice"),
    (lambda said: said._replace(base="ab" * 32), "continues from a total"),
    (lambda said: said._replace(members={**said.members, "bob": "xyz"}), "is not a public key"),
]


@pytest.mark.parametrize(("change", "words"), CHANGES)
def test_a_relay_cannot_put_together_what_the_task_does_not_allow(group, change, words):
    exchanges = group.everyone(patience=1.0)
    alter(exchanges["alice"], change)
    assert words in str(gather(exchanges)["alice"])


def alter(exchange, change):
    honest = exchange.meetings.call

    def call(*member, **how):
        said = honest(*member, **how)
        return change(said) if said.members else said

    exchange.meetings.call = call


def test_a_key_that_a_relay_puts_in_place_of_a_members_is_refused_from_the_second_time_on(group):
    exchanges = group.everyone()
    assert publish(exchanges, {name: release(name) for name in NAMES}) == {}
    again, false = group.everyone(patience=1.0), Key.new().public.hex()
    alter(again["alice"], lambda said: said._replace(members={**said.members, "bob": false}))
    error = gather(again)["alice"]
    assert isinstance(error, ConfigError)
    assert f"bob is known by the key {exchanges['bob'].key.public.hex()}, not {false}" in str(error)


def test_a_member_that_says_more_than_one_class_of_each_kind_is_noticed(group):
    exchanges = group.everyone()
    lie(exchanges["dave"], lambda vector: vector * np.array([9, 1, 1, 1, 1]), step=1)
    trouble = gather(exchanges)
    assert "A member has lied" in str(trouble["alice"])
    assert "A member has lied" in str(trouble["bob"])


def test_a_relay_lets_nobody_speak_for_another_or_listen_from_outside(request):
    exchanges = at_a_relay(request)
    assert gather(exchanges) == {}
    alice = exchanges["alice"].meetings
    for ask in (lambda: alice.put("bob", 1, 2, b"in bob's name"), lambda: alice.get("bob", 1, 1)):
        with pytest.raises(Refused, match="403"):
            ask()
    assert set(alice.get("alice", 1, 1)) == set(NAMES)


TEN = tuple(f"member {number}" for number in range(10))


def make_ten(folder, digits, spoil, lie=None):
    """Ten members with 100 samples each, of which the last one's labels are spoilt."""
    (images, labels), test = digits
    common = Agreement(Patches(shape=(1, 8, 8), sizes=(3, 4)), class_names=tuple("0123456789"))
    group = LocalGroup(folder, replace(common.task(10), group_members=3, class_members=1), TEN)
    clients = {}
    for at, name in enumerate(TEN):
        rows = slice(100 * at, 100 * at + 100)
        own = spoil(labels[rows].clone()) if at == 9 else labels[rows]
        clients[name] = Client(
            None, (images[rows], own), group.join(name, own=np.bincount(own, minlength=10)), name=name, space=common,
            classes=10, test=test, policy=Policy(accept_exposure=True, prefer_own=True),
        )  # fmt: skip
    return group, clients


def exchange_4_and_9(labels):
    changed = labels.clone()
    changed[labels == 4], changed[labels == 9] = 9, 4
    return changed


@pytest.mark.parametrize("kind", ["two classes exchanged", "permuted"])
def test_one_wrong_of_ten_names_itself_and_the_others_learn_as_without_it(tmp_path, digits, kind):
    spoil = exchange_4_and_9 if kind == "two classes exchanged" else lambda labels: (labels + 1) % 10
    group, clients = make_ten(tmp_path, digits, spoil)
    records = {}
    for round in range(6):
        play = lambda name: records.update({name: clients[name].round(test=round == 5)})  # noqa: B023, E731
        assert side_by_side(play, TEN) == {}
        assert [record.trouble for name, record in records.items() if name != TEN[9]] == [None] * 9
        if round == 1:
            assert records[TEN[9]].trouble is not None, "it is named in the second round"
    assert min(record.test_accuracy for name, record in records.items() if name != TEN[9]) > 0.96
    assert set(group.meetings.faults()) == {TEN[9]}
    why = (
        "its rows for 4 and 9 are exchanged"
        if kind == "two classes exchanged"
        else "its rows for 0 are like others' for 9"
    )
    assert records[TEN[9]].trouble.startswith(why)
    assert any(told.startswith(f"{TEN[9]} has left itself out: {why}") for told in group.told[TEN[0]])
    assert clients[TEN[0]].learner.behind == 900, "its samples are out of the total"


def test_ten_honest_members_are_never_told_that_they_differ(tmp_path, digits):
    group, clients = make_ten(tmp_path, digits, lambda labels: labels)
    records = {}
    for _ in range(3):
        assert side_by_side(lambda name: records.update({name: clients[name].round()}), TEN) == {}
        assert [record.trouble for record in records.values()] == [None] * 10
    assert group.meetings.faults() == {}


def test_a_liar_in_a_group_can_stop_it_but_nobody_is_worse_off_than_alone(tmp_path, digits):
    group, clients = make_ten(tmp_path, digits, lambda labels: labels)
    honest = clients[TEN[9]].exchange._sum_up
    drawn = (1e12 * np.random.default_rng(0).normal(size=group.task.totals_size)).astype(np.int64)

    def lie(meeting, step, what, vector):
        numbers = drawn.reshape(group.task.rows, -1).copy()
        numbers[:, -3 - 11 :], numbers[-1] = 0, 0  # the rows' vectors alone
        return honest(meeting, step, what, vector + numbers.ravel() * (step == 2) if step == 2 else vector)

    clients[TEN[9]].exchange._sum_up = lie
    records = {}
    assert side_by_side(lambda name: records.update({name: clients[name].round()}), TEN) == {}
    trouble = gather({name: client.exchange for name, client in clients.items()})
    assert all("find the total of the others unlike their own samples" in str(trouble[name]) for name in TEN[:9])
    for name in TEN[:9]:
        clients[name].collect()
        assert clients[name].learner.in_use == "alone"
        assert clients[name].evaluate() > 0.8
