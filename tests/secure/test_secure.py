"""Class means through secure sums: the same means as a board's, over a real relay, whoever drops out."""

import logging
import threading
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from repshare import Agreement, Client, Policy
from repshare.board import Board, Wants
from repshare.cli.main import main
from repshare.errors import ConfigError, ExchangeError, Refused, Unreachable
from repshare.exchange.keys import Key
from repshare.exchange.relay import RelayExchange
from repshare.network.models import LeNet5
from repshare.party.party import load_party
from repshare.relay.auth import Access, Grant
from repshare.relay.tasks import Tasks
from repshare.secure import Meetings, RelayMeetings, SecureExchange
from repshare.sharing import wire
from repshare.sharing.representations import Release, nothing, stack
from repshare.sharing.task import Task
from repshare.space import Patches
from repshare.stores import open_database
from support.processes import RelayProcess, eventually, records

PARTY = Path(__file__).parents[2] / "examples/party.py"
TASK = Task(classes=3, dimension=2)
KEYS = {name: Key.new() for name in ("alice", "bob", "carol", "dave")}
PUBLIC = {name: key.public for name, key in KEYS.items()}
WANTS = Wants(1, 0)
NOTHING = {d: wire.encode_release(Release(1, nothing(d), nothing(d))) for d in (2, 6)}


def release(name, classes=(0, 1), round=1):
    rng = np.random.default_rng(sorted(KEYS).index(name) + 10 * round)
    rows = stack([(rng.normal(size=2), label, 5 + label) for label in classes], 2)
    return wire.encode_release(Release(round, rows, nothing(2)))


def local(_, patience):
    """Meetings in this process."""
    meetings = Meetings()
    return lambda name: (meetings, patience)


def relay(request, patience, **task):
    """Meetings at a real relay, whose clients have tokens."""
    folder = request.getfixturevalue("tmp_path")
    database = open_database(str(folder / "relay.db"))
    Tasks(database).create("digits", replace(TASK, **task))
    tokens = {name: Access(database).invite(Grant("client", name, "digits")) for name in KEYS}
    process = RelayProcess(folder, "--rate", 0)
    exchanges = [RelayExchange(process.url, token=token) for token in tokens.values()]

    def close():
        for each in (*exchanges, database):
            each.close()
        process.stop()

    request.addfinalizer(close)
    return lambda name: (RelayMeetings(exchanges[list(KEYS).index(name)]), patience)


def join(meet, name, task=TASK, **options):
    meetings, patience = meet(name)
    agreed = {"task_name": "digits", "members": PUBLIC, "patience": patience}
    return SecureExchange(task, name, meetings, key=KEYS[name], **agreed, **options)


def sending(meetings, put):
    """The same meetings for one member, whose messages are sent by `put`."""
    return SimpleNamespace(number=meetings.number, put=put, get=meetings.get)


def publish(exchanges, bodies):
    """All at once, each in a thread of its own: what went wrong, by name."""
    trouble = {}

    def one(name):
        try:
            exchanges[name].publish(bodies[name])
        except ExchangeError as error:
            trouble[name] = error

    threads = [threading.Thread(target=one, args=[name]) for name in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return trouble


def take_turn(clients):
    """A round of every client, each in a thread of its own: their records."""
    records = {}
    threads = [threading.Thread(target=lambda n=name: records.update({n: clients[n].round()})) for name in KEYS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [records[name] for name in KEYS]


def through_a_board(bodies, client):
    board = Board(TASK)
    for name, body in bodies.items():
        board.accept(name, body)
    return wire.decode_teacher(board.teach(client, WANTS)).means


@pytest.mark.parametrize("place", [local, relay])
def test_the_means_are_those_of_a_board_to_the_last_bit(request, place):
    meet = place(request, 60)
    exchanges = {name: join(meet, name) for name in KEYS}
    for round in (1, 2):
        bodies = {name: release(name, (0, 1, 2) if name == "bob" else (0, 1), round) for name in KEYS}
        assert publish(exchanges, bodies) == {}
        for name, exchange in exchanges.items():
            teacher = wire.decode_teacher(exchange.collect(WANTS))
            expected = through_a_board(bodies, name)
            for ours, theirs in zip(teacher.means, expected, strict=True):
                assert np.array_equal(ours, theirs)
            assert (2 in teacher.means.labels) == (name != "bob"), "nobody learns from itself alone"
            assert len(teacher.observations.labels) == 0


def test_those_who_stay_have_their_total_when_one_never_comes():
    meet = local(None, 0.5)
    exchanges = {name: join(meet, name) for name in KEYS}
    bodies = {name: release(name) for name in ("alice", "bob", "carol")}
    assert publish(exchanges, bodies) == {}
    means = wire.decode_teacher(exchanges["alice"].collect(WANTS)).means
    assert np.array_equal(means.vectors, through_a_board(bodies, "alice").vectors)


def test_one_who_goes_in_the_middle_is_named_and_costs_one_meeting():
    meet = local(None, 1.0)
    exchanges, meetings = {name: join(meet, name) for name in KEYS}, meet("dave")[0]

    def leave_after_announcing(members, number, step, *message):
        if step == 1:
            raise Refused("dave is gone")
        meetings.put(members, number, step, *message)

    exchanges["dave"].meetings = sending(meetings, leave_after_announcing)
    bodies = {name: release(name) for name in KEYS}
    trouble = publish(exchanges, bodies)
    assert set(trouble) == set(KEYS)
    assert "dave announced a key but sent no vector" in str(trouble["alice"])
    del bodies["dave"]
    assert publish(exchanges, bodies) == {}
    means = wire.decode_teacher(exchanges["bob"].collect(WANTS)).means
    assert np.array_equal(means.vectors, through_a_board(bodies, "bob").vectors)


def test_with_too_few_the_last_teacher_stays():
    meet = local(None, 0.3)
    exchanges = {name: join(meet, name) for name in KEYS}
    assert publish(exchanges, {name: release(name) for name in KEYS}) == {}
    before = exchanges["alice"].collect(WANTS)
    trouble = publish(exchanges, {name: release(name, round=2) for name in ("alice", "bob")})
    assert set(trouble) == {"alice", "bob"}
    assert "3 are needed" in str(trouble["alice"])
    assert exchanges["alice"].collect(WANTS) == before


WRONG = {  # what dave adds to class 1, beside what he really has: numbers of d' = 2, then weights, samples, clients
    "no weights": ([0, 0, -24, 0, 0], "a weight of "),
    "negative samples": ([0, 0, -90, -90, 0], "samples of "),
    "negative clients": ([0, 0, 0, 0, -9], "clients, of 3,"),
    "more clients than members": ([0, 0, 0, 0, 1], "clients, of 3,"),
    "more samples than can be": ([0, 0, 2**40, 2**40, 0], "samples of "),
    "a mean that is too long": ([2**59, 0, 0, 0, 0], "a sum of length "),
    "more than an int64 holds": ([2**59, 2**59, 2**59, 2**59, 2**59], "clients, of 3,"),
}


@pytest.mark.parametrize("lie", WRONG)
def test_a_total_that_no_honest_members_can_have_is_refused_in_one_line(lie):
    numbers, reason = WRONG[lie]
    meet = local(None, 60)
    exchanges = {name: join(meet, name) for name in KEYS}
    bodies = {name: release(name) for name in KEYS}
    honest, wrong = exchanges["dave"]._sum_up, np.zeros((3, 5), np.int64)
    wrong[1] = numbers
    exchanges["dave"]._sum_up = lambda group, number, vector: honest(group, number, vector + wrong.ravel())
    trouble = publish(exchanges, bodies)
    assert set(trouble) == set(KEYS)
    for name in ("alice", "bob", "carol"):
        assert isinstance(trouble[name], Refused)
        assert reason in str(trouble[name])
        assert "in class 1. A member has lied" in str(trouble[name])
        assert "\n" not in str(trouble[name])
        assert len(wire.decode_teacher(exchanges[name].collect(WANTS)).means.labels) == 0
    exchanges["dave"]._sum_up = honest
    assert publish(exchanges, bodies) == {}
    assert len(wire.decode_teacher(exchanges["alice"].collect(WANTS)).means.labels) == 2


def test_the_largest_honest_total_is_taken():
    meet, task = local(None, 60), replace(TASK, norm_bound=7.0, minimum_count=2)
    exchanges = {name: join(meet, name, task=task) for name in KEYS}
    rows = stack([(np.array([0.0, -7.0]), 0, 2), (np.array([7.0, 0.0]), 1, 10_000_000)], 2)
    body = wire.encode_release(Release(1, rows, nothing(2)))
    assert publish(exchanges, dict.fromkeys(KEYS, body)) == {}
    means = wire.decode_teacher(exchanges["alice"].collect(WANTS)).means
    assert means.vectors.tolist() == [[0.0, -7.0], [7.0, 0.0]]


def test_a_client_whose_group_is_lied_to_goes_on_training(digits):
    task, (images, labels) = Task(10, 84), digits[0]
    meet = local(None, 60)
    exchanges = {name: join(meet, name, task=task) for name in KEYS}
    honest = exchanges["dave"]._sum_up
    exchanges["dave"]._sum_up = lambda group, number, vector: honest(group, number, vector - 10**6)
    clients = {
        name: Client(LeNet5(), (images[:20], labels[:20]), exchange, name=name, policy=Policy(m_up=0))
        for name, exchange in exchanges.items()
    }
    for record in take_turn(clients)[:3]:
        assert "A member has lied" in record.trouble
        assert "\n" not in record.trouble
    exchanges["dave"]._sum_up = honest
    assert [(record.round, record.trouble) for record in take_turn(clients)] == [(2, None)] * 4


def test_messages_of_an_earlier_meeting_with_the_same_number_bring_nobody_in():
    """A relay whose database is new counts from 1 again, and may have kept what was said."""
    first, bodies = Meetings(), {name: release(name) for name in KEYS}
    exchanges = {name: join(lambda _: (first, 60), name) for name in KEYS}
    assert publish(exchanges, bodies) == {}
    second, old = Meetings(), [first.get(tuple(KEYS), 1, step)["bob"] for step in (0, 1)]
    exchanges = {name: join(lambda _: (second, 2), name) for name in KEYS}
    second.put(tuple(KEYS), 1, 0, "bob", old[0], 2)
    del bodies["bob"]

    def replay():
        eventually(lambda: second.get(tuple(KEYS), 1, 0), "all have announced")
        second.put(tuple(KEYS), 1, 1, "bob", old[1], 2)

    replaying = threading.Thread(target=replay)
    replaying.start()
    trouble = publish(exchanges, bodies)
    replaying.join()
    assert set(trouble) == set(bodies)
    assert "bob was told of other members" in str(trouble["alice"])


def test_who_shares_a_class_with_fewer_than_two_others_is_told_once(caplog, monkeypatch):
    """No sum hides it: alone, all read it; of two, each reads the other's."""
    monkeypatch.setattr(logging.getLogger("repshare.secure"), "propagate", True)  # a command may have ended that
    caplog.set_level(logging.WARNING, "repshare.secure")
    meet = local(None, 60)
    exchanges = {name: join(meet, name) for name in KEYS}
    held = {"alice": (0, 1, 2), "bob": (0, 1), "carol": (0,), "dave": (0,)}
    for round in (1, 2):
        bodies = {name: release(name, classes, round) for name, classes in held.items()}
        assert publish(exchanges, bodies) == {}
    alone = wire.decode_teacher(exchanges["bob"].collect(WANTS)).means.of(2)
    assert np.array_equal(alone.vectors, wire.decode_release(bodies["alice"]).means.of(2).vectors)
    heard = dict.fromkeys(caplog.records)  # a logger that a command kept from propagating is heard twice
    said = (record.getMessage() for record in heard if record.name == "repshare.secure")
    told = sorted(line.partition(".")[0] for line in said)
    assert told == [f"classes that fewer than 3 members share: {few}" for few in ("1", "1, 2")]


def test_nobody_takes_part_in_a_meeting_twice():
    meet = local(None, 60)
    exchanges = {name: join(meet, name) for name in KEYS}
    bodies = {name: release(name) for name in KEYS}
    assert publish(exchanges, bodies) == {}
    for number in (1, 0):
        exchanges["alice"].meetings.number = lambda _, number=number: number
        with pytest.raises(Refused, match=f"meeting {number}, but alice has taken part in meeting 1"):
            exchanges["alice"].publish(bodies["alice"])


def test_one_whose_announcement_was_lost_may_come_again():
    meet = local(None, 60)
    exchanges = {name: join(meet, name) for name in KEYS}
    meetings, _ = meet("alice")

    def lose(*_):
        exchanges["alice"].meetings = meetings
        raise Unreachable("the relay is unavailable")

    exchanges["alice"].meetings = sending(meetings, lose)
    with pytest.raises(Unreachable):
        exchanges["alice"].publish(release("alice"))
    assert publish(exchanges, {name: release(name) for name in KEYS}) == {}


def test_what_the_relay_keeps_has_no_ones_sums_in_it():
    """Nor their parts: a masked vector minus any one mask that the relay can work out is noise still."""
    meetings = Meetings()
    exchanges = {name: join(lambda _: (meetings, 60), name) for name in KEYS}
    bodies = {name: release(name) for name in KEYS}
    assert publish(exchanges, bodies) == {}
    kept = b"".join(meetings.store.items().values())
    for name, body in bodies.items():
        means = wire.decode_release(body).means
        for row in means.vectors:
            assert row.tobytes() not in kept
        own = exchanges[name]
        steps = np.rint(means.vectors.astype(np.float64) * 2**32).astype(np.int64) * means.counts[:, None]
        assert steps[0].tobytes() not in kept, own.name


def test_observations_are_refused_since_no_sum_hides_them():
    rows = stack([(np.ones(2), 0, 5)], 2)
    exchange = join(local(None, 1), "alice")
    with pytest.raises(Refused, match="m_up = 0"):
        exchange.publish(wire.encode_release(Release(1, rows, rows)))


def test_a_mistake_about_the_group_is_told_before_the_first_round():
    with pytest.raises(ConfigError, match="another key"):
        SecureExchange(TASK, "alice", Meetings(), task_name="digits", key=KEYS["bob"], members=PUBLIC)
    with pytest.raises(ConfigError, match="3 members or more"):
        two = {name: PUBLIC[name] for name in ("alice", "bob")}
        SecureExchange(TASK, "alice", Meetings(), task_name="digits", key=KEYS["alice"], members=two)


def test_members_who_were_told_of_different_tasks_do_not_meet():
    """Or a relay could name a least number of samples by which all but one leave out all, and read that one's."""
    for other in ({"minimum_count": 1000}, {"weighted": False}, {"norm_bound": 3.0}, {"classes": 2, "dimension": 6}):
        meet = local(None, 60)
        exchanges = {name: join(meet, name, task=TASK if name == "alice" else replace(TASK, **other)) for name in KEYS}
        trouble = publish(exchanges, {name: NOTHING[exchanges[name].task.dimension] for name in KEYS})
        assert set(trouble) == set(KEYS)
        assert "must have the same task" in str(trouble["bob"])


def test_a_group_learns_a_common_classifier_from_totals_alone(digits):
    (images, labels), test = digits
    common = Agreement(Patches(shape=(1, 8, 8), sizes=(3, 4)))
    task, meet = common.task(10), local(None, 60)
    held = {"alice": (0, 1), "bob": (2, 3, 4), "carol": (5, 6, 7), "dave": (8, 9)}
    clients = {}
    for name, classes in held.items():
        own = np.flatnonzero(np.isin(labels, classes))[:100]
        exchange, data = join(meet, name, task=task), (images[own], labels[own])
        clients[name] = Client(
            None, data, exchange, name=name, space=common, classes=10, test=test, policy=Policy(accept_exposure=True)
        )
    for _ in range(3):
        records = take_turn(clients)
        assert [record.trouble for record in records] == [None] * 4
    assert all(record.test_accuracy > 0.85 for record in records), "all have learned all ten classes"


def test_members_in_different_spaces_do_not_meet():
    """Each one's release fits what it was told of the task, but vectors of two spaces add up to nothing."""
    meet, task = local(None, 60), Agreement(Patches(shape=(1, 8, 8), sizes=(3, 4))).task(2)
    tasks = {name: task if name == "alice" else replace(task, space="another") for name in KEYS}
    exchanges = {name: join(meet, name, task=tasks[name]) for name in KEYS}
    none = nothing(task.columns)
    bodies = {name: wire.encode_release(Release(1, none, none, space=tasks[name].space)) for name in KEYS}
    trouble = publish(exchanges, bodies)
    assert set(trouble) == set(KEYS)
    assert "must have the same task" in str(trouble["bob"])


def test_a_group_counts_clients_as_the_task_says():
    meet, task = local(None, 60), replace(TASK, weighted=False)
    exchanges = {name: join(meet, name, task=task) for name in KEYS}
    bodies = {name: wire.encode_release(Release(1, stack([(np.full(2, float(n)), 0, 4**n)], 2), nothing(2)))
              for n, name in enumerate(KEYS, start=1)}  # fmt: skip
    assert publish(exchanges, bodies) == {}
    means = wire.decode_teacher(exchanges["bob"].collect(WANTS)).means
    assert means.vectors.tolist() == [[2.5, 2.5]]


def test_a_party_joins_a_group_and_learns_from_its_total_alone(request, monkeypatch, capsys):
    task = Task(10, 84, minimum_count=3, weighted=False, norm_bound=500.0)
    meet, folder = relay(request, 60, **asdict(task)), request.getfixturevalue("tmp_path")
    monkeypatch.chdir(folder)
    connection = meet("alice")[0].relay.connection
    Path("alice.token").write_text(connection._token)
    KEYS["alice"].write(Path("alice.key"))
    for name, key in PUBLIC.items():
        main(["keys", "trust", name, key.hex(), "--file", "group.jsonl"])

    def take_part(name):
        party = load_party(f"{PARTY}:bob", 0)
        exchange, policy = join(meet, name, task=task), Policy(m_up=0, share_classes=tuple(range(9)))
        list(Client(party.model, party.data, exchange, policy=policy, name=name).rounds(2))

    others = [threading.Thread(target=take_part, args=[name]) for name in KEYS if name != "alice"]
    for other in others:
        other.start()
    arguments = ["join", connection.url, "--party", f"{PARTY}:alice", "--token-file", "alice.token"]
    main([*arguments, "--rounds", "2", "--m-up", "0", "--group", "group.jsonl", "--signing-key", "alice.key"])
    for other in others:
        other.join()
    assert capsys.readouterr().out.count("classes that fewer than 3 members share: 9. ") == 1
    first, second = records("repshare-digits-alice")
    assert (first["trouble"], second["trouble"]) == (None, None)
    assert first["kd"] > 0, "round 1 learns towards means of zero"
    assert second["kd"] > 0, "the second round learns from the first one's total"
    with closing(open_database("relay.db")) as database:
        there = Tasks(database).get("digits")
        assert there.board.status().clients == 0, "the board has seen nobody"
        places = ((key.split("/"), len(body)) for key, body in there.meetings.store.items().items())
        said = [(place[3], size) for place, size in places if len(place) == 4 and place[1] == "2"]
    assert second["bytes_up"] == sum(size for name, size in said if name == "alice") > 0
    assert second["bytes_down"] == sum(size for _, size in said)
    with pytest.raises(SystemExit):
        main([*arguments, "--restart", "--group", "group.jsonl", "--signing-key", "alice.key"])


def test_a_group_needs_a_key_and_no_observations(tmp_path, capsys):
    arguments = ["join", "http://127.0.0.1:9", "--party", f"{PARTY}:alice", "--group", str(tmp_path / "group.jsonl")]
    with pytest.raises(SystemExit):
        main(arguments)
    assert "--signing-key" in capsys.readouterr().err


def test_a_relay_lets_nobody_speak_for_another_or_listen_from_outside(request):
    meet, everyone, others = relay(request, 60), tuple(KEYS), ("alice", "bob", "carol")
    alice, dave, carol = (meet(name)[0] for name in ("alice", "dave", "carol"))
    alice.relay.task, alice.relay.client = "digits", "bob"
    with pytest.raises(Refused, match="403"):
        alice.put(everyone, 1, 0, "bob", b"in bob's name", 60)
    for ask in (lambda: dave.number(others), lambda: dave.get(others, 1, 0)):
        with pytest.raises(Refused, match="not in the group"):
            ask()
    assert carol.get(everyone, 1, 0) is None
