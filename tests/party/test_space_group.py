"""A group in a common space: only totals leave its members, and the classifier is the one that a simulator has."""

import re
import signal
import time
from contextlib import closing

import numpy as np
import pytest

from repshare import load_classifier
from repshare.exchange.keys import Key
from repshare.privacy import accounting
from repshare.relay.tasks import Tasks
from repshare.sharing import sums, wire
from repshare.stores import open_database
from support.processes import PATIENCE_SECONDS, eventually
from support.relays import prepare
from support.space_parties import Simulation, collaborate

MEMBERS = ("p0", "p3", "p6", "p8")
SAMPLES = dict.fromkeys(MEMBERS, 64)


@pytest.fixture
def group(tmp_path):
    """A relay, and four members that can join."""
    stack, group = collaborate(tmp_path)
    with stack:
        trust_each_other(tmp_path)
        yield group


def trust_each_other(folder):
    for name in MEMBERS:
        key = Key.new()
        key.write(folder / f"{name}.key")
        prepare("keys", "trust", name, key.public.hex(), "--file", "group.jsonl", cwd=folder)


def meet(group, name, *options):
    return group.join(name, "--group", "group.jsonl", "--signing-key", f"{name}.key", *options)


def in_hand(group, name):
    return load_classifier(group.state(name) / "classifier.safetensors")


def test_a_group_has_the_classifier_of_a_simulator_to_the_bit(group, tmp_path):
    rounds = 4
    for name in MEMBERS:
        meet(group, name, "--rounds", rounds, "--no-prefer-own")
    for name in MEMBERS:
        assert group.processes[name].process.wait(PATIENCE_SECONDS) == 0, group.told(name)
    simulation = Simulation(tmp_path, MEMBERS, state=group.state)  # with their secrets: the same samples are held out
    for _ in range(rounds):
        simulation.play(MEMBERS)
    for name in MEMBERS:
        expected, found = simulation.finish(name), in_hand(group, name)
        assert all(map(np.array_equal, found.linear, expected.learner.classifier()))
        assert found.samples == sum(SAMPLES.values())
        assert [line["trouble"] for line in group.rounds(name)] == [None] * rounds
        assert [line["others"] for line in group.rounds(name)] == [0, 3, 3, 3]
        *_, summary, place = group.told(name).splitlines()
        figures = r"alone +([\d.]+)%, with 3 others +([\d.]+)% \(own held-out samples\); test accuracy ([\d.]+)%"
        alone, together, test = map(float, re.search(figures, summary).groups())
        assert (together / 100, alone / 100) == pytest.approx(expected.learner.compare_held_out(), abs=6e-4)
        assert test / 100 == pytest.approx(expected.evaluate(), abs=6e-5)
        assert f"the classifier is in repshare-digits-{name}/classifier.safetensors" in place
    with closing(open_database(str(tmp_path / "relay.db"))) as database:
        assert Tasks(database).get("digits").board.status().clients == 0, "no single part is at the relay"


def test_a_group_shares_the_noise_of_a_private_total(tmp_path):
    stack, group = collaborate(tmp_path, "--loss", "discriminant")
    with stack:
        trust_each_other(tmp_path)
        for name in MEMBERS:
            meet(group, name, "--rounds", 2, "--epsilon", 50, "--adjacency", "add-remove", "--noise-shares", 3)
        for name in MEMBERS:
            assert group.processes[name].process.wait(PATIENCE_SECONDS) == 0, group.told(name)
        told = group.told("p0")
        assert "ε holds if at most 1 of 4 members are missing from a sum, and at most 0 collude" in told
        assert "releases are (ε = 50, δ = 1e-05)-differentially private" in told
        assert "warning" not in told
        totals = {name: (group.state(name) / "total").read_bytes() for name in MEMBERS}
        assert len(set(totals.values())) == 1
        total = sums.read_sums(wire.decode_teacher(totals["p0"]), 10, 288, wire.decode_teacher(totals["p0"]).space)
        noise = accounting.noise_for(50.0, 1e-5, 1)
        assert total.variance == pytest.approx(noise**2 * 4 / 3, rel=1e-3)  # all four stayed, and three were enough
        assert abs(total.samples - sum(SAMPLES.values())) < 20
        assert [line["epsilon"] for line in group.rounds("p0")] == pytest.approx([50.0, 50.0], rel=1e-3)
        assert [line["trouble"] for line in group.rounds("p0")] == [None, None]
        assert group.rounds("p0")[1]["test_accuracy"] > 0.5 > group.rounds("p0")[0]["test_accuracy"], "it has 4 of 10"


def test_members_watch_meet_one_that_comes_back_and_go_on_without_one_that_is_killed(group):
    for name in MEMBERS:
        meet(group, name, "--step-patience", 2)
    eventually(lambda: all("settled" in group.told(name) for name in MEMBERS), "all have met 20 times or a few more")
    eventually(lambda: len({len(group.rounds(name)) for name in MEMBERS}) == 1, "all have noted their last meeting")
    reached = len(group.rounds("p8"))
    time.sleep(1)
    assert {len(group.rounds(name)) for name in MEMBERS} == {reached}, "nobody begins another meeting"
    assert reached >= 20
    group.processes["p8"].stop(signal.SIGKILL)
    meet(group, "p8", "--step-patience", 2)
    eventually(lambda: all(len(group.rounds(name)) >= reached + 2 for name in MEMBERS), "the others meet p8 again")
    resumed = group.rounds("p8")[reached]
    assert (resumed["others"], resumed["trouble"]) == (3, None)
    assert resumed["held_out"] == group.rounds("p8")[reached - 1]["held_out"] > 0.9, "it continues from the last total"
    group.processes["p0"].stop(signal.SIGKILL)  # in a meeting, as p8 begins one after the other
    rest = MEMBERS[1:]
    eventually(lambda: all(group.rounds(name)[-1]["others"] == 2 for name in rest), "the others go on without p0")
    assert {in_hand(group, name).samples for name in rest} == {3 * 64}
    for name in rest:
        group.processes[name].process.send_signal(signal.SIGINT)
    for name in rest:
        assert group.processes[name].process.wait(PATIENCE_SECONDS) == 130
