"""A masked group that comes together at the relay: `repshare join` and nothing else."""

import json
import re
import signal
import stat
from contextlib import closing

import numpy as np
import pytest

from repshare import load_classifier
from repshare.exchange.keys import Key
from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from support.processes import PATIENCE_SECONDS, eventually
from support.relays import invite
from support.space_parties import Simulation, collaborate

MEMBERS = ("p0", "p3", "p6")
EVERYONE = (*MEMBERS, "p8")


@pytest.fixture
def group(tmp_path):
    """A relay with a task for masked groups."""
    stack, group = collaborate(tmp_path, "--group-members", 3, "--class-members", 1)
    with stack:
        yield group


def ask(group, *names):
    for name in names:
        token = group.folder / f"{name}.token"
        token.write_text(invite(group.folder, name, "--task", "digits"))
        token.chmod(0o600)


def in_hand(group, name):
    return load_classifier(group.state(name) / "classifier.safetensors")


def end(group, *names):
    for name in names:
        assert group.processes[name].process.wait(PATIENCE_SECONDS) == 0, group.told(name)


def interrupt(group, *names):
    for name in names:
        group.processes[name].process.send_signal(signal.SIGINT)
    for name in names:
        assert group.processes[name].process.wait(PATIENCE_SECONDS) == 130


def met(group, names, rounds):
    """Until these have had so many rounds without trouble."""
    good = {name: [line for line in group.rounds(name) if line["trouble"] is None] for name in names}
    return all(len(lines) >= rounds for lines in good.values())


def test_join_alone_takes_part_in_a_group(group):
    ask(group, *MEMBERS)
    for name in MEMBERS:
        group.join(name, "--rounds", 4, "--no-prefer-own")
    end(group, *MEMBERS)
    for name in MEMBERS:
        assert [line["trouble"] for line in group.rounds(name)] == [None] * 4
        assert [line["others"] for line in group.rounds(name)] == [0, 2, 2, 2]
        assert in_hand(group, name).samples == 3 * 64
        assert all(map(np.array_equal, in_hand(group, name).linear, in_hand(group, "p0").linear))
        assert stat.S_IMODE((group.state(name) / "signing.key").stat().st_mode) == 0o600
        lines = (group.state(name) / "group.jsonl").read_text().splitlines()
        assert {json.loads(line)["name"] for line in lines} == set(MEMBERS)
    codes = {line for name in MEMBERS for line in group.told(name).splitlines() if "group of" in line}
    assert len(codes) == 1, "all were told the same keys"


def test_two_wait_for_a_third_and_say_so(group):
    ask(group, *MEMBERS)
    group.join("p0", "--rounds", 2, "--step-patience", 1)
    group.join("p3", "--rounds", 2, "--step-patience", 1)
    said = "waiting for another member (here: p0, p3; everything is saved; Ctrl-C stops)"
    eventually(lambda: said in group.told("p0") and said in group.told("p3"), "they say so")
    assert group.rounds("p0") == group.rounds("p3") == [], "two do not meet"
    interrupt(group, "p3")
    group.join("p3", "--rounds", 2)
    group.join("p6", "--rounds", 2)
    end(group, *MEMBERS)


def test_one_that_is_killed_costs_the_others_a_round_and_its_part_stays(group):
    ask(group, *EVERYONE)
    for name in EVERYONE:
        group.join(name, "--step-patience", 3)
    eventually(lambda: met(group, EVERYONE, 3), "all have met")
    group.processes["p8"].stop(signal.SIGKILL)
    rest, before = EVERYONE[:3], len(group.rounds("p0"))
    eventually(lambda: met(group, rest, before + 3), "the others go on")
    for name in rest:
        assert sum(line["trouble"] is not None for line in group.rounds(name)) <= 1
        assert in_hand(group, name).samples == 4 * 64, "a total without it would show, by the difference, what it had"
    group.join("p8", "--step-patience", 3)
    reached = len(group.rounds("p8"))
    eventually(lambda: met(group, ["p8"], reached + 2), "it is back")
    assert in_hand(group, "p8").samples == 4 * 64
    interrupt(group, *EVERYONE)


def test_a_late_one_joins_the_next_meeting(group):
    ask(group, *MEMBERS)
    for name in MEMBERS:
        group.join(name)
    eventually(lambda: all("settled: waits" in group.told(name) for name in MEMBERS), "they are settled")
    group.join("p8")
    eventually(lambda: met(group, ["p8"], 3), "it takes part")
    assert group.rounds("p8")[2]["others"] == 3
    assert all(line["trouble"] is None for line in group.rounds("p0")), "nobody lost a round"
    interrupt(group, *EVERYONE)


def test_a_changed_key_is_refused_by_the_relay_and_by_members(group):
    ask(group, *MEMBERS)
    for name in MEMBERS:
        group.join(name, "--rounds", 2)
    end(group, *MEMBERS)
    own = group.state("p6") / "signing.key"
    kept = own.read_bytes()
    own.unlink()
    (group.state("p6") / "group.jsonl").unlink()
    group.join("p6", "--rounds", 4)
    assert group.processes["p6"].process.wait(PATIENCE_SECONDS) == 2
    assert "p6 is known here by the key" in group.told("p6")
    assert "ask the operator to invite it under a new name" in group.told("p6")
    own.write_bytes(kept)  # back; but p0 knows another one
    trusted = group.state("p0") / "group.jsonl"
    lines = [json.loads(line) for line in trusted.read_text().splitlines()]
    changed = [{**line, "key": Key.new().public.hex()} if line["name"] == "p3" else line for line in lines]
    trusted.write_text("".join(json.dumps(line) + "\n" for line in changed))
    for name in MEMBERS:
        group.join(name, "--rounds", 4, "--step-patience", 2)
    assert group.processes["p0"].process.wait(PATIENCE_SECONDS) == 2
    assert "the relay says that a member has another key: p3 is known by the key" in group.told("p0")
    assert "Do so only if p3 tells you that the new key is its own" in group.told("p0")
    assert len(group.rounds("p0")) == 2


def test_a_class_that_one_member_has_stays_hidden_and_is_named(tmp_path):
    stack, group = collaborate(tmp_path, "--group-members", 3)
    with stack:
        hide_nine(group)


def hide_nine(group):
    rare = """
def with_rare(which):
    from dataclasses import replace
    party = make(0)()
    images, labels = (each[which // 3 :: 3].copy() for each in party.data)
    if which == 6:
        labels[:10] = 9
    return replace(party, data=(images, labels))

p0, p3, p6 = (lambda: with_rare(0)), (lambda: with_rare(3)), (lambda: with_rare(6))
"""
    with (group.folder / "party.py").open("a") as file:
        file.write(rare)
    ask(group, *MEMBERS)
    for name in MEMBERS:
        group.join(name, "--rounds", 3, "--no-prefer-own")
    end(group, *MEMBERS)
    for name in MEMBERS:
        assert "classes that stay hidden" in group.told(name)
        assert group.told(name).split("members have them: ")[1].splitlines()[0] == "nine"
        assert in_hand(group, name).linear.offset[9] == 0, "its share of all samples is 0"
    assert in_hand(group, "p0").samples == 80 - 10, "its samples are left out"


def test_a_group_has_the_classifier_of_a_simulator_to_the_bit_and_the_relay_no_part(group, tmp_path):
    rounds = 4
    ask(group, *EVERYONE)
    for name in EVERYONE:
        group.join(name, "--rounds", rounds, "--no-prefer-own")
    end(group, *EVERYONE)
    simulation = Simulation(tmp_path, EVERYONE, state=group.state)  # with their secrets: the same are held out
    for _ in range(rounds):
        simulation.play(EVERYONE)
    for name in EVERYONE:
        expected, found = simulation.finish(name), in_hand(group, name)
        assert all(map(np.array_equal, found.linear, expected.learner.classifier()))
        assert found.samples == 4 * 64
        *_, summary, place = group.told(name).splitlines()
        test = float(re.search(r"test accuracy ([\d.]+)%", summary).group(1))
        assert test / 100 == pytest.approx(expected.evaluate(), abs=6e-5)
        assert f"the classifier is in repshare-digits-{name}/classifier.safetensors" in place
    with closing(open_database(str(tmp_path / "relay.db"))) as database:
        assert Tasks(database).get("digits").board.status().clients == 0, "no single part is at the relay"


def test_a_group_shares_the_noise_of_a_private_total(tmp_path):
    stack, group = collaborate(tmp_path, "--loss", "discriminant", "--group-members", 4, "--class-members", 1)
    with stack:
        ask(group, *EVERYONE)
        for name in EVERYONE:
            group.join(name, "--rounds", 2, "--epsilon", 50, "--adjacency", "add-remove", "--noise-shares", 3)
        end(group, *EVERYONE)
        told = group.told("p0")
        assert "ε holds if at most 1 of 4 members collude" in told
        assert "releases are (ε = 50, δ = 1e-05)-differentially private" in told
        assert [line["epsilon"] for line in group.rounds("p0")] == pytest.approx([50.0, 50.0], rel=1e-3)
        assert [line["trouble"] for line in group.rounds("p0")] == [None, None]
        assert group.rounds("p0")[1]["test_accuracy"] > 0.5 > group.rounds("p0")[0]["test_accuracy"], "it has 4 of 10"
