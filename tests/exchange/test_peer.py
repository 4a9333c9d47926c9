"""Peers among themselves: liars, the silent and the dead cost nobody more than the deadline."""

import logging
import socket
import threading
import time
from contextlib import ExitStack, suppress

import numpy as np
import pytest
import torch
import trustme

from repshare.board import Wants
from repshare.client import Client
from repshare.config import Policy
from repshare.errors import ConfigError, Unreachable
from repshare.exchange import network
from repshare.exchange.keys import Key, Trust, seal
from repshare.exchange.network import Tls
from repshare.exchange.peer import PeerExchange
from repshare.network.models import LeNet5
from repshare.sharing import wire
from repshare.sharing.representations import Release, stack
from repshare.sharing.task import Task
from repshare.space import Patches
from repshare.space.agreement import Agreement
from repshare.stores import open_database
from support.peer_processes import impersonate, open_session, record_answer
from support.processes import eventually
from support.redis_servers import find_port

TASK = Task(classes=2, dimension=2)
MANY = Wants(8, seed=0)
DEADLINE = 2.0
SLACK = 3.0  # seconds of a busy machine
EVE = Key.new()


def release(value=1.0, label=0, round=1, dimension=2, count=4):
    rows = stack([(np.full(dimension, value), label, count)], dimension)
    return wire.encode_release(Release(round, rows, rows))


def means(exchange, wants=MANY):
    return wire.decode_teacher(exchange.collect(wants)).means.vectors[:, 0].tolist()


class Net:
    """Peers of one test. All trust the same keys, and listen on loopback."""

    def __init__(self, stack):
        self.stack, self.trust, self.exchanges = stack, Trust(), {}

    def join(self, name, connect=(), key=None, task=TASK, **options):
        key = key or Key.new()
        self.trust.add(name, key.public)
        options = {"listen": ["tcp/127.0.0.1:0"], "timeout": DEADLINE, **options}
        places = [place for other in connect for place in self.exchanges[other].listening]
        exchange = PeerExchange(task, name, "task", key=key, trust=self.trust, connect=places, **options)
        self.exchanges[name] = self.stack.enter_context(exchange)
        return exchange

    def meet(self, *names):
        """Wait until each of these sees the others, whoever else is there."""
        for name in names:
            eventually(lambda name=name: {*names} <= {name, *self.exchanges[name].live()}, f"{name} sees {names}")

    def liar(self, name, answer, connect, place=None):
        """A node of Zenoh's that answers under this name with whatever `answer` says. `place` is a way to `connect`."""
        impersonate(self.stack, place or self.exchanges[connect].listening[0], name, answer)
        eventually(lambda: name in self.exchanges[connect].live(), f"{name} is there")


class Trickle:
    """A way to a peer that lets through all bytes, and once it is slow one in a second of those that go there."""

    def __init__(self, place):
        host, port = place.removeprefix("tcp/").split(":")
        self.far, self.slow, self.passed = (host, int(port)), threading.Event(), 0
        self.door = socket.create_server(("127.0.0.1", 0))
        self.place = f"tcp/127.0.0.1:{self.door.getsockname()[1]}"
        self.over = threading.Event()

    def __enter__(self):
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.door.close()

    def serve(self):
        with suppress(OSError):
            while True:
                near, far = self.door.accept()[0], socket.create_connection(self.far)
                for source, target, there in ((near, far, True), (far, near, False)):
                    threading.Thread(target=self.carry, args=(source, target, there), daemon=True).start()

    def carry(self, source, target, there):
        with suppress(OSError), source, target:
            while some := source.recv(65536):
                if there and self.slow.is_set():
                    for byte in some:
                        self.over.wait(1)
                        target.sendall(bytes([byte]))
                        self.passed += 1
                else:
                    target.sendall(some)


@pytest.fixture
def net():
    with ExitStack() as stack:
        yield Net(stack)


@pytest.fixture
def honest(net):
    """Alice and Bob, connected; Bob has shared 5. They know Eve's key."""
    net.trust.add("eve", EVE.public)
    net.join("alice")
    net.join("bob", connect=["alice"]).publish(release(5.0))
    net.meet("alice", "bob")
    return net


def reply(body):
    """Answer with these bytes, or with what a function makes of the challenge."""

    def answer(query, place):
        query.reply(place, body(query.payload.to_bytes()) if callable(body) else body)

    return answer


def by(key, body=None, name="eve", task="task", **options):
    """Signs for whoever asks."""
    return lambda challenge: seal(key, task, name, release() if body is None else body, challenge, **options)


def forge(challenge):
    return wire.encode_signed(wire.decode_signed(by(EVE)(challenge))._replace(signature=bytes(64)))


LIES = {
    "unsigned": (release(), "expected a signed"),
    "forged": (forge, "signature"),
    "recorded": (by(EVE)(bytes(32)), "for this question"),
    "another's": (by(EVE, name="bob"), "by 'bob'"),
    "a stranger's": (by(Key.new()), "known by the key"),
    "another task's": (by(EVE, task="faces"), "'faces'"),
    "wrong d'": (by(EVE, release(dimension=3)), "3 numbers"),
    "not finite": (by(EVE, release(float("nan"))), "not finite"),
    "unknown class": (by(EVE, release(label=7)), "class 7"),
    "too long": (bytes(100_000), "100,000 bytes"),
    "rubbish": (b"rubbish", "refused"),
    "nothing": (b"", "refused"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_lie_is_refused_by_name_and_the_others_go_on_teaching(honest, caplog, lie):
    body, reason = LIES[lie]
    honest.liar("eve", reply(body), connect="alice")
    assert means(honest.exchanges["alice"]) == [5.0]
    assert len([line for line in caplog.messages if line.startswith("eve: ") and reason in line]) == 1


def test_a_reply_of_100_megabytes_is_refused_within_the_deadline(honest, caplog):
    honest.liar("eve", reply(bytes(100_000_000)), connect="alice")
    started = time.monotonic()
    assert means(honest.exchanges["alice"]) == [5.0]
    assert time.monotonic() - started < DEADLINE + SLACK
    assert any(line.startswith("eve: ") for line in caplog.messages)
    assert means(honest.exchanges["alice"]) == [5.0]  # the link to Bob is as it was


def test_one_who_never_answers_costs_the_deadline_and_no_more(honest, caplog):
    kept = []
    honest.liar("eve", lambda query, _: kept.append(query), connect="alice")
    started = time.monotonic()
    assert means(honest.exchanges["alice"]) == [5.0]
    assert DEADLINE - 0.5 < time.monotonic() - started < DEADLINE + SLACK
    assert kept
    assert any(line.startswith("eve: no answer") for line in caplog.messages)
    for query in kept:
        query.drop()


def test_strangers_are_named_once_and_never_asked(honest, caplog):
    asked = []
    honest.liar("stranger", lambda query, _: asked.append(query), connect="alice")
    for seed in range(8):
        assert means(honest.exchanges["alice"], Wants(1, seed)) == [5.0]
    assert not asked
    assert [line for line in caplog.messages if line.startswith("stranger is online, but its key is not trusted")] == (
        caplog.messages
    )


def test_one_who_is_there_stays_though_there_is_room_for_no_more_names(net, monkeypatch):
    monkeypatch.setattr(network, "MOST_LIVE", 2)
    monkeypatch.setattr(network, "RENEW_SECONDS", 0.1)
    alice, _ = net.join("alice"), net.join("bob", connect=["alice"])
    net.meet("alice", "bob")
    time.sleep(0.5)  # both have said it anew
    assert alice.live() == ["bob"]


def test_invented_names_leave_room_for_those_that_are_known(net, monkeypatch):
    monkeypatch.setattr(network, "MOST_LIVE", 5)
    alice = net.join("alice")
    session = net.stack.enter_context(open_session(alice.listening[0]))
    kept = [session.liveliness().declare_token(f"repshare/task/nobody{n}/live/1") for n in range(20)]
    net.stack.callback(kept.clear)
    eventually(lambda: len(alice.live()) >= 4, "there is no room for more names")
    net.join("bob", connect=["alice"]).publish(release(5.0))
    net.meet("alice", "bob")
    assert means(alice) == [5.0]
    assert len(alice.live()) <= 6


def test_one_who_answers_a_byte_a_second_costs_the_deadline_and_no_more(honest, caplog):
    alice = honest.exchanges["alice"]
    with Trickle(alice.listening[0]) as trickle:
        body = by(EVE, release(9.0))
        honest.liar("eve", reply(body), connect="alice", place=trickle.place)
        assert means(alice) == [pytest.approx(7.0)]
        trickle.slow.set()
        started = time.monotonic()
        assert means(alice) == [5.0]
        assert DEADLINE - 0.5 < time.monotonic() - started < DEADLINE + SLACK
        eventually(lambda: trickle.passed, "some of the answer is under way")
        assert trickle.passed < len(body(bytes(32)))
        named = ("eve: no answer within", "eve: it answered with an error")  # whichever side notices first
        assert any(line.startswith(named) for line in caplog.messages)
        assert means(alice, MANY._replace(peers=("bob",))) == [5.0]


def test_one_who_answers_without_end_is_not_listened_to(honest):
    def chatter(query, place):
        for _ in range(1000):
            query.reply(place, b"again")

    honest.liar("eve", chatter, connect="alice")
    started = time.monotonic()
    assert means(honest.exchanges["alice"]) == [5.0]
    assert time.monotonic() - started < DEADLINE + SLACK


def test_an_impostor_cannot_keep_the_true_one_from_being_heard(honest):
    honest.liar("bob", reply(b""), connect="alice")
    honest.liar("bob", reply(by(EVE, release(9.0), name="bob")), connect="alice")
    assert means(honest.exchanges["alice"]) == [5.0]


def test_an_impostor_cannot_talk_the_true_one_down(honest):
    def chatter(query, place):
        for _ in range(100):
            query.reply(place, b"again")

    network, bob = honest.exchanges["bob"].network, honest.exchanges["bob"].network._answer
    network._answer = lambda *asked: time.sleep(0.3) or bob(*asked)  # he is further away
    honest.liar("bob", chatter, connect="alice")
    assert means(honest.exchanges["alice"]) == [5.0]


def test_a_recorded_answer_teaches_nobody_once_its_peer_is_away(honest, caplog):
    alice, bob = honest.exchanges["alice"], honest.exchanges["bob"]
    assert means(alice) == [5.0]
    recorded = record_answer(alice.listening[0], "bob")
    bob.close()
    eventually(lambda: not alice.live(), "bob is gone")
    honest.liar("bob", reply(recorded), connect="alice")
    with pytest.raises(Unreachable, match="bob"):
        alice.collect(MANY)
    assert any(line.startswith("bob: refused") and "recorded" in line for line in caplog.messages)
    stranger = honest.join("stranger", connect=["alice"])  # it has never heard of Bob's rounds
    honest.meet("alice", "stranger")
    eventually(lambda: "bob" in stranger.live(), "the impostor is there")
    with pytest.raises(Unreachable):
        stranger.collect(MANY._replace(peers=("bob",)))


def test_only_the_peer_itself_says_that_it_shares_nothing(honest):
    """Else an impostor could take away what was learned from one that has gone."""
    alice, bob = honest.exchanges["alice"], honest.exchanges["bob"]
    assert means(alice) == [5.0]
    bob.close()
    eventually(lambda: not alice.live(), "bob is gone")
    honest.liar("bob", reply(b""), connect="alice")
    with pytest.raises(Unreachable):
        alice.collect(MANY)


def test_a_question_without_a_challenge_is_answered_with_an_error(honest):
    with open_session(honest.exchanges["bob"].listening[0]) as session:
        for challenge in (None, b"", bytes(31), bytes(1000)):

            def ask(challenge=challenge):
                return list(session.get("repshare/task/bob/release/*", payload=challenge, timeout=2.0))

            replies = eventually(ask, "bob answers")
            assert [reply.ok for reply in replies] == [None]
            assert b"challenge of 32 bytes" in replies[0].err.payload.to_bytes()


def test_a_peer_whose_key_was_stolen_is_heard_again_with_a_new_one(net, tmp_path):
    stolen, place = Key.new(), str(tmp_path / "peers.db")
    last = by(stolen, release(9.0, round=2**31 - 1), name="bob")
    with ExitStack() as first:
        database = open_database(place)
        first.callback(database.close)
        early = Net(first)
        early.trust.add("bob", stolen.public)
        alice = early.join("alice", store=database.store("board"))
        early.liar("bob", reply(last), connect="alice")
        assert means(alice) == [9.0]  # who has the key is believed
    database = open_database(place)
    net.stack.callback(database.close)
    alice = net.join("alice", store=database.store("board"))  # her trust file has another key for Bob now
    net.join("bob", connect=["alice"]).publish(release(5.0))
    net.meet("alice", "bob")
    net.liar("bob", reply(last), connect="alice")
    assert means(alice) == [5.0]


def test_a_peer_started_again_answers_at_once_with_what_it_had_published(net, tmp_path):
    net.join("alice")
    key = Key.new()
    for number in (1, 2):
        database = open_database(str(tmp_path / "bob.db"))
        with net.join("bob", connect=["alice"], key=key, store=database.store("board")) as bob:
            if number == 1:
                bob.publish(release(5.0, round=3))
            net.meet("alice", "bob")
            assert means(net.exchanges["alice"]) == [5.0]
        eventually(lambda: not net.exchanges["alice"].live(), "bob is gone")
        database.close()


def test_a_peer_that_begins_anew_is_heard_at_round_1(honest):
    alice, bob = honest.exchanges["alice"], honest.exchanges["bob"]
    bob.publish(release(6.0, round=9))
    assert means(alice) == [6.0]
    bob.withdraw()
    assert means(alice) == []
    bob.publish(release(7.0, round=1))
    assert means(alice) == [7.0]


@pytest.fixture
def space(net, digits):
    """Four peers of a space, one after the other: what makes them, by name."""
    (images, labels), test = digits

    def make(name, spoil=lambda labels: labels, connect=(), **options):
        rows = slice(100 * len(net.exchanges), 100 * len(net.exchanges) + 100)
        agreement = Agreement(Patches((1, 8, 8), sizes=(3, 4)), class_names=tuple("0123456789"))
        exchange = net.join(name, connect=connect, task=agreement.task(10), **options)
        return Client(
            data=(images[rows], spoil(labels[rows].clone())), exchange=exchange, name=name, space=agreement, test=test,
            policy=Policy(minimum_count=1, accept_exposure=True),
        )  # fmt: skip

    return make


def exchange_4_and_9(labels):
    return torch.where(labels == 4, 9, torch.where(labels == 9, 4, labels))


def test_a_faulty_peer_is_left_out_by_each_of_the_others_and_told_so_itself(net, space, caplog):
    names = ("alice", "bob", "carol", "dave")
    clients = {name: space(name, connect=names[:at]) for at, name in enumerate(names)}
    clients["eve"] = space("eve", exchange_4_and_9, connect=names)
    net.meet(*clients)
    for _ in range(3):
        records = {name: client.round() for name, client in clients.items()}
    why = "its rows for 4 and 9 are exchanged: compare its labels with the others'"
    for name in names:
        assert [each.name for each in net.exchanges[name].board.named()] == ["eve"]
    assert f"eve: left out: {why}" in caplog.messages
    assert why in records["eve"].trouble
    assert all(net.exchanges[name].others() == 3 for name in names)
    late = space("late", connect=["alice"])  # hears first parts first, so that it can compare
    net.meet("late", *names)
    for _ in range(2):
        late.round()
    assert net.exchanges["late"].others() == 4
    assert [each.name for each in net.exchanges["late"].board.named()] == ["eve"]


def test_a_chain_of_peers_that_do_not_know_each_other_carries_releases_from_end_to_end(net):
    net.join("b")
    net.join("c", connect=["b"])
    net.join("a", connect=["b"], listen=[])  # nobody can connect to a and d: they meet only through b and c
    net.join("d", connect=["c"], listen=[])
    net.meet("a", "b", "c", "d")
    for name, value in (("a", 1.0), ("d", 4.0)):
        net.exchanges[name].publish(release(value))
    assert means(net.exchanges["d"], MANY._replace(peers=("a",))) == [1.0]
    assert means(net.exchanges["a"], MANY._replace(peers=("d",))) == [4.0]


def test_those_introduced_by_one_who_leaves_stay_together(net):
    net.join("hub")
    a, b = net.join("a", connect=["hub"]), net.join("b", connect=["hub"])
    net.meet("a", "b", "hub")
    b.publish(release(5.0))
    eventually(lambda: len(a.network.session.info.links()) >= 2, "a has a link to b of its own")
    net.exchanges["hub"].close()
    eventually(lambda: a.live() == ["b"], "only b is there")
    assert means(a) == [5.0]


def test_as_many_random_peers_are_asked_as_observations_are_wanted(net):
    names = ["a", "b", "c", "d"]
    for number, name in enumerate(names):
        net.join(name, connect=names[:number]).publish(release(2.0**number))
    net.meet(*names)
    chosen = set()
    for seed in range(20):
        (mean,) = means(net.exchanges["a"], Wants(1, seed))
        chosen.add(mean)
    assert chosen == {2.0, 4.0, 8.0}
    pairs = {means(net.exchanges["a"], Wants(2, seed))[0] for seed in range(20)}
    assert pairs == {3.0, 5.0, 6.0}


def test_where_one_has_nothing_the_next_is_asked(net):
    names = ["a", "b", "c", "d"]
    for number, name in enumerate(names):
        net.join(name, connect=names[:number])
    net.meet(*names)
    net.exchanges["d"].publish(release(5.0))
    assert [means(net.exchanges["a"], Wants(1, seed)) for seed in range(5)] == [[5.0]] * 5


def test_a_client_counts_what_came_in_of_its_peers_not_what_it_made_of_it(net, digits):
    task, (images, labels) = Task(10, 84), digits[0]
    own = net.join("own", task=task)
    for name in ("b", "c"):
        rows = stack([(np.ones(84), label, 4) for label in range(10)], 84)
        net.join(name, connect=["own"], task=task).publish(wire.encode_release(Release(1, rows, rows)))
    net.meet("own", "b", "c")
    client = Client(LeNet5(), (images[:20], labels[:20]), own, name="own", policy=Policy(m_down=2))
    record = client.round()
    assert record.bytes_down == sum(len(net.exchanges[name]._answer(bytes(32))) for name in ("b", "c"))


def test_class_means_are_weighted_by_their_samples(net):
    net.join("a")
    net.join("b", connect=["a"]).publish(release(1.0, count=30))
    net.join("c", connect=["a"]).publish(release(5.0, count=10))
    net.meet("a", "b", "c")
    assert means(net.exchanges["a"]) == [2.0]


def test_without_anyone_who_can_be_taken_the_last_teacher_stays(honest):
    alice, bob = honest.exchanges["alice"], honest.exchanges["bob"]
    assert means(alice) == [5.0]
    bob.close()
    eventually(lambda: not alice.live(), "bob is gone")
    with pytest.raises(Unreachable, match="no peer is online"):
        alice.collect(MANY)


def test_a_client_may_start_before_those_it_connects_to(net):
    port = find_port()
    key = Key.new()
    net.trust.add("early", key.public)
    early = PeerExchange(
        TASK, "early", "task", key=key, trust=net.trust, connect=[f"tcp/127.0.0.1:{port}"], timeout=DEADLINE
    )
    with early:
        assert wire.decode_teacher(early.collect(MANY)).means.labels.tolist() == []
        net.join("late", listen=[f"tcp/127.0.0.1:{port}"]).publish(release(5.0))
        eventually(lambda: early.live() == ["late"], "early finds late")
        assert means(early) == [5.0]


def test_names_may_have_any_printable_letter(net):
    name = "Zoë *$?#%2F& Söhne"
    net.join("alice")
    net.join(name, connect=["alice"]).publish(release(5.0))
    net.meet("alice", name)
    assert means(net.exchanges["alice"], MANY._replace(peers=(name,))) == [5.0]


def test_leaving_twice_is_leaving_and_hurts_nobody(net):
    for time_over in range(4):
        names = [f"{name}{time_over}" for name in "abcd"]
        for number, name in enumerate(names):
            net.join(name, connect=names[:1] if number else []).publish(release(5.0))
        net.meet(*names)
        net.exchanges[names[3]].close()
        net.exchanges[names[3]].close()
        eventually(lambda names=names: names[3] not in net.exchanges[names[1]].live(), "it is gone")
        assert means(net.exchanges[names[1]]) == [5.0]
        for name in names[:3]:
            net.exchanges[name].close()


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """An authority, a certificate of its for this machine, and one of another authority's."""
    folder = tmp_path_factory.mktemp("tls")
    made = {}
    for who in ("ours", "theirs"):
        authority = trustme.CA()
        authority.cert_pem.write_to_path(folder / f"{who}.ca")
        issued = authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_pem.write_to_path(folder / f"{who}.key")
        (folder / f"{who}.cert").write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
        made[who] = Tls(folder / f"{who}.ca", folder / f"{who}.cert", folder / f"{who}.key")
    return made


def test_tls_and_mutual_tls_let_in_those_with_the_right_certificates_alone(net, files):
    ours, theirs = (
        Tls(files[who].ca, files[who].cert, files[who].key, mutual=True) for who in ("ours", "theirs")
    )  # fmt: skip
    net.join("alice", listen=["tls/127.0.0.1:0"], tls=ours)
    net.join("bob", listen=[], connect=["alice"], tls=ours).publish(release(5.0))
    net.meet("alice", "bob")
    assert means(net.exchanges["alice"]) == [5.0]
    assert net.exchanges["bob"].network.session.info.links()[0].dst.startswith("tls/")
    mixed = Tls(ours.ca, theirs.cert, theirs.key, mutual=True)  # it knows whom it talks to, but is not known itself
    eve = net.join("eve", listen=[], connect=["alice"], tls=mixed)
    mallory = net.join("mallory", listen=[], connect=["alice"], tls=theirs)
    time.sleep(2)
    assert eve.live() == mallory.live() == []
    assert net.exchanges["alice"].live() == ["bob"]


def test_with_one_way_tls_those_who_connect_need_no_certificate_and_listen_only_to_whom_they_know(net, files):
    ours, theirs = files["ours"], files["theirs"]
    net.join("alice", listen=["tls/127.0.0.1:0"], tls=ours)
    mallory = net.join("mallory", listen=[], connect=["alice"], tls=Tls(ca=theirs.ca))
    net.join("bob", listen=[], connect=["alice"], tls=Tls(ca=ours.ca)).publish(release(5.0))
    net.meet("alice", "bob")
    assert means(net.exchanges["alice"]) == [5.0]
    assert net.exchanges["bob"].network.session.info.links()[0].dst.startswith("tls/")
    assert mallory.live() == []
    assert net.exchanges["alice"].live() == ["bob"]


def test_peers_find_each_other_by_multicast_where_the_network_has_it(net):
    a, b = (net.join(name, listen=["tcp/0.0.0.0:0"], multicast=True) for name in ("a", "b"))
    if multicast_works():
        net.meet("a", "b")
        b.publish(release(5.0))
        assert means(a) == [5.0]
    else:  # then looking around does no harm
        assert (means(a), a.live()) == ([], [])


def multicast_works():
    """Whether a datagram to many comes back to this machine, other than by loopback."""
    group = ("224.0.0.224", find_port())
    with socket.socket(type=socket.SOCK_DGRAM) as near, socket.socket(type=socket.SOCK_DGRAM) as far:
        near.settimeout(2)
        near.bind(("", group[1]))
        try:
            near.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, socket.inet_aton(group[0]) + bytes(4))
            far.sendto(b"here", group)
            return near.recv(4) == b"here"
        except OSError:
            return False


def test_what_cannot_be_used_is_said_before_anything_starts(net, tmp_path):
    for wrong in (
        {"listen": ["tcp/nowhere"]},
        {"listen": ["tcp/256.0.0.1:0"]},
        {"timeout": 0},
        {"tls": Tls(ca=tmp_path / "missing")},
    ):
        with pytest.raises(ConfigError):
            net.join("alice", key=EVE, **wrong)
    with pytest.raises(ConfigError):
        PeerExchange(TASK, "a/b", "task", key=EVE, trust=Trust())


@pytest.fixture(autouse=True)
def hear_warnings(caplog):
    caplog.set_level(logging.WARNING, "repshare.peer")
