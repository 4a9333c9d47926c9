"""A budget is not lost by others: to a member that spoils a sum, or to a relay that went back to an older backup."""

from contextlib import closing
from dataclasses import replace

import numpy as np
import torch

from repshare import Client, Policy
from repshare.exchange.relay import RelayExchange
from repshare.party.rounds import take_part
from repshare.party.state import State
from repshare.relay.tasks import Tasks
from repshare.secure.masking import Member
from repshare.space import Fourier
from repshare.space.agreement import Agreement
from repshare.stores import open_database
from support.groups import LocalGroup, gather, side_by_side
from support.processes import eventually
from support.relays import start_relay

COMMON = Agreement(Fourier((-3.0,) * 4, (3.0,) * 4, features=16), "discriminant")
KEYS = ("alice", "bob", "carol")


def client(name, exchange, **policy):
    torch.manual_seed(0)
    rng = np.random.default_rng(sorted(KEYS).index(name))
    data = rng.normal(size=(90, 4)).clip(-3, 3).astype(np.float32), np.arange(90) % 3
    chosen = Policy(epsilon=1.0, adjacency="add-remove", **policy)
    return Client(None, data, exchange, name=name, policy=chosen, space=COMMON, classes=3)


def test_a_member_that_spoils_a_sum_is_named_and_costs_no_budget(monkeypatch, tmp_path):
    exchanges = LocalGroup(tmp_path, replace(COMMON.task(3), group_members=3), KEYS).everyone(patience=3.0)
    clients = {name: client(name, exchange, noise_shares=3) for name, exchange in exchanges.items()}
    mask = Member.mask

    def mask_wrongly(member, announced, what, vector):
        body = mask(member, announced, what, vector)
        return body[:-1] + bytes([body[-1] ^ 1]) if member.name == "carol" else body  # no signature of hers

    monkeypatch.setattr(Member, "mask", mask_wrongly)
    for trouble in gather(exchanges).values():  # a sum of counts comes first
        assert "carol was told of other members, or its message was changed" in str(trouble)
    monkeypatch.undo()
    records = {}

    def play(name):
        records[name] = clients[name].round(test=False)

    assert gather(exchanges) == side_by_side(play, KEYS) == {}
    assert {record.trouble for record in records.values()} == {None}
    assert [len(each.guard.ledger.entries) for each in clients.values()] == [1, 1, 1]


def test_an_acknowledged_release_is_sent_again_where_a_backup_has_none(tmp_path):
    with closing(open_database(str(tmp_path / "relay.db"))) as database:
        Tasks(database).create("sums", COMMON.task(3))
    with start_relay(tmp_path, "--insecure") as relay, RelayExchange(relay.url, "sums", client="alice") as exchange:

        def resume():
            made = client("alice", exchange)
            state = State(tmp_path / "alice", made, exchange.describe())
            state.restore()
            return state, take_part(state)

        state, rounds = resume()
        with state.folder:
            next(rounds)
            assert exchange.holds()
            exchange.withdraw()  # as a restored backup would have it
            eventually(lambda: not exchange.holds(), "the relay's status is some moments old")
            assert next(rounds).trouble is None
        eventually(exchange.holds, "it was sent again")
        exchange.withdraw()
        eventually(lambda: not exchange.holds(), "and is lost again")
        state, rounds = resume()  # another process
        with state.folder:
            next(rounds)
        eventually(exchange.holds, "by another process, too")
        assert len(state.client.guard.ledger.entries) == 1, "nothing was charged again"
