"""A member of a group that a relay brings together believes the relay only what it can check."""

import json
import threading
from types import SimpleNamespace

import httpx2
import numpy as np
import pytest

from repshare.errors import ConfigError, Malformed, Refused
from repshare.exchange.http import Reply
from repshare.exchange.keys import Key
from repshare.secure import GatheredExchange, Meetings, Roll
from repshare.sharing.task import Task

NAMES = ("alice", "bob", "carol", "dave")
TASK = Task(4, 8, group_members=3)
LONGEST_SECONDS = 20


class Connection:
    """A relay in this process: its answer can be changed on its way to a member."""

    def __init__(self, roll, name):
        self.roll, self.name, self.change = roll, name, lambda said: said

    def ask(self, method, path, query=None, **_):
        if method == "GET":
            said = {"ready": self.roll.ready()}
        else:
            given = query["key"], query["call"], query["base"], query["company"]
            invited, patience = NAMES[:3], query["patience"]
            said = self.change(self.roll.call(self.name, *given, invited=invited, patience=patience)._asdict())
        return Reply(200, httpx2.Headers({"content-type": "application/json"}), json.dumps(said).encode())


class Group:
    """Members of one relay, each with a folder."""

    def __init__(self, folder):
        self.folder, self.meetings, self.told = folder, Meetings(), {}
        self.roll = Roll(self.meetings, TASK.group_members)

    def member(self, name, *, own=(5, 5, 5, 0), **how):
        (self.folder / name).mkdir(exist_ok=True)
        relay = SimpleNamespace(connection=Connection(self.roll, name), task_path=lambda: "/v1/tasks/t", identity={})
        given = {"company": 1, "patience": LONGEST_SECONDS, "tell": self.told.setdefault(name, []).append, **how}
        made = GatheredExchange(TASK, name, relay, task_name="t", folder=self.folder / name, own=np.array(own), **given)
        made.meetings = self.meetings  # in place of the same over HTTP
        return made

    def gather(self, *members):
        """Let these gather side by side: what each of them raised, or None."""
        raised = {}

        def work(member):
            raised[member.name] = None
            try:
                for _ in range(1000):
                    if member.gather():
                        return
                    threading.Event().wait(0.01)
            except (Malformed, Refused, ConfigError) as error:
                raised[member.name] = error

        threads = [threading.Thread(target=work, args=[member]) for member in members]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LONGEST_SECONDS)
        return raised


@pytest.fixture
def group(tmp_path):
    return Group(tmp_path)


def test_members_count_classes_and_samples_before_anything_leaves(group):
    owned = {"alice": (5, 5, 5, 0), "bob": (3, 0, 9, 4), "carol": (7, 2, 1, 0)}
    members = [group.member(name, own=own) for name, own in owned.items()]
    assert [member.behind(9) for member in members] == [np.inf] * 3, "nobody sees anything yet"
    assert set(group.gather(*members).values()) == {None}
    for member in members:
        assert member.hidden == {1, 3}, "two have class 1, and one has class 3"
        assert member.behind(9) == pytest.approx(41 * 2 / 3)
        assert not member.may_have_left()
    codes = {told for lines in group.told.values() for told in lines if "key code" in told and "group of" in told}
    assert len(codes) == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda said: {**said, "members": dict(list(said["members"].items())[:2])}, "proposes 2 members"),
        (lambda said: {**said, "members": {**said["members"], "alice": "ab" * 32}}, "another key of alice"),
        (lambda said: {**said, "base": "ab" * 32} if said["members"] else said, "continues from a total"),
        (lambda said: {**said, "members": {**said["members"], "bob": "xyz"}}, "is not a public key"),
    ],
)
def test_a_relay_cannot_put_together_what_the_task_does_not_allow(group, change, words):
    members = [group.member(name, patience=1) for name in NAMES[:3]]
    honest = members[0].relay.connection.change
    members[0].relay.connection.change = lambda said: change(said) if said["members"] else honest(said)
    assert words in str(group.gather(*members)["alice"])


def test_a_key_that_a_relay_puts_in_place_of_a_members_is_refused_from_the_second_time_on(group):
    members = [group.member(name) for name in NAMES[:3]]
    assert set(group.gather(*members).values()) == {None}
    again = [group.member(name, patience=1) for name in NAMES[:3]]
    false = Key.new().public.hex()
    again[0].relay.connection.change = lambda said: {
        **said, "members": {**said["members"], "bob": false} if said["members"] else {}
    }  # fmt: skip
    error = group.gather(*again)["alice"]
    assert isinstance(error, ConfigError)
    assert f"bob is known by the key {members[1].key.public.hex()}, not {false}" in str(error)


def test_a_member_that_says_more_than_one_class_of_each_kind_is_noticed(group):
    members = [group.member(name) for name in NAMES[:3]]
    liar = members[2]
    count = liar._sum_up
    liar._sum_up = lambda number_group, number, vector: count(number_group, number, vector * np.array([9, 1, 1, 1, 1]))
    raised = group.gather(*members)
    assert "A member has lied" in str(raised["alice"])
    assert "A member has lied" in str(raised["bob"])


def test_the_difference_that_a_newcomer_makes_is_its_own(group):
    members = [group.member(name) for name in NAMES[:3]]
    assert set(group.gather(*members).values()) == {None}
    late = group.member("dave")
    late._newcomers = 1
    late.members, late._counted, late._samples = {**members[0].members, "dave": b""}, "so", 400
    assert late.behind(30) == 30
    late._newcomers = 3
    assert late.behind(30) == 60
    late._newcomers = 0
    assert late.behind(30) == 300
