"""A class of one sample, at `repshare join` as a process: that sample's row was that sample, in the first release."""

import numpy as np
import pytest
import torch

from repshare.sharing import wire
from repshare.space import Patches
from repshare_lab import load
from support.relays import create_task, repshare, start_relay

PARTY = """
import numpy as np
from repshare import LeNet5, Party
from repshare_lab import load

def make(number):
    def party():
        train, _, _ = load("digits").normalised()
        rows = np.load(f"rows-{number}.npy")
        return Party(LeNet5(), (train.images[rows], train.labels[rows]))
    return party

one, two, three, four, five = map(make, range(5))
"""
NAMES = ("one", "two", "three", "four", "five")
LENGTH = 8  # of an edge


@pytest.fixture(scope="module")
def relay(tmp_path_factory):
    """A relay with a task for each of five parties, whose first sample is their only nine."""
    folder = tmp_path_factory.mktemp("relay")
    train, _, _ = load("digits").normalised()
    nines, others = (np.flatnonzero((train.labels == 9) == is_nine) for is_nine in (True, False))
    (folder / "party.py").write_text(PARTY)
    for number, name in enumerate(NAMES):
        create_task(folder, name, "--input-shape", 1, LENGTH, LENGTH, "--classes", 10, "--minimum-count", 1)
        rng = np.random.default_rng(number)
        np.save(folder / f"rows-{number}.npy", np.append(rng.permutation(nines)[0], rng.permutation(others)[:60]))
    with start_relay(folder, "--insecure") as relay:
        relay.data, relay.nines = train, nines
        yield relay


def join(relay, name, *options):
    words = ("join", relay.url, "--task", name, "--party", f"party.py:{name}", "--name", name, *options)
    return repshare(*words, "--accept-exposure", cwd=relay.folder)


def rank(relay, name):
    """The share of other nines that are likelier than the party's to be in what it released, and its nines as told."""
    rows = wire.decode_teacher(relay.teacher(task=name, client="another").content).means
    found = rows.vectors[np.argsort(rows.labels)].astype(np.float64)
    space = Patches((1, LENGTH, LENGTH), sizes=(3, 4))
    one = np.load(relay.folder / f"rows-{NAMES.index(name)}.npy")[0]
    candidates = np.append(one, relay.nines[relay.nines != one])
    vectors = (
        np.asarray(space(torch.from_numpy(relay.data.images[candidates])), np.float64) - found[10, : space.dimension]
    )
    row = found[9, : space.dimension] - found[9, space.dimension] * found[10, : space.dimension]
    scores = vectors @ row / np.linalg.norm(vectors, axis=1)
    return float(np.mean((scores[1:] > scores[0]) + (scores[1:] == scores[0]) / 2)), found[9, space.dimension + 1]


def test_a_dry_run_names_the_class_that_is_left_out(relay):
    (relay.folder / "agreed.json").write_text(repshare("relay", "tasks", "describe", "one", cwd=relay.folder))
    told = " ".join(join(relay, "one", "--dry-run", "--agreement", "agreed.json").split())
    assert "Class 9 is left out: it has 1 sample, fewer than --minimum-count." in told


def test_the_row_of_a_class_of_one_sample_does_not_leave(relay):
    places = []
    for name in NAMES:
        join(relay, name, "--rounds", 1)
        place, share = rank(relay, name)
        places.append(place)
        assert share == 0, "the release tells of no sample of that class"
    assert np.mean(places) > 0.2, "a guess is 0.5 on average"


def test_the_attack_works_where_the_safeguard_is_taken_out(relay):
    for name in NAMES[:2]:
        join(relay, name, "--rounds", 1, "--minimum-count", 1, "--restart")
        assert rank(relay, name) == (0.0, pytest.approx(1 / 61, rel=1e-2))
