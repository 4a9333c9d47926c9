"""`privacy plan --method CS`: the accuracy to expect, tried on stand-in data."""

import json
from collections import defaultdict

import numpy as np
import pytest

from repshare.cli.main import main
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.privacy import accounting
from repshare.privacy.accounting import Charge
from repshare.privacy.sums import reach
from repshare_lab.data import load
from repshare_lab.simulation import rehearsal
from repshare_lab.simulation.rehearsal import rehearse, set_scene

SPACE = ("patches", "filters=8", "components=48")
POLICY = Policy(epsilon=1.0, planned_releases=1, noise_shares=4, seeded_noise=True)
EPSILONS = (1.0, 30.0)


@pytest.fixture(scope="module")
def train():
    return load("digits").first(600).normalised().train


def run(train, policy=POLICY, **changed):
    scene = set_scene(train, 10, SPACE, **{"samples": 400, "clients": 5, "draws": 1, **changed})
    found = defaultdict(list)
    for line in rehearse(scene, policy, EPSILONS):
        if line is not None:
            found[line["epsilon"], line["shares"]].append(line)
    return scene, found


def test_more_budget_and_shared_noise_are_more_accurate(train):
    _, found = run(train, draws=2)
    common = {setting: np.mean([line["common"] for line in lines]) for setting, lines in found.items()}
    assert common[1.0, 1] < common[1.0, 4] < common[30.0, 4] < common[None, 1] + 0.02
    assert common[None, 1] > 0.9
    assert all(line["personal"] > line["alone"] for line in found[None, 1]), "sharing helps where there is no noise"


def test_the_noise_is_that_of_the_guard_on_the_total_of_all_clients(train):
    scene, found = run(train)
    drawn, variance = rehearsal._draw_noise(scene, POLICY, np.random.default_rng(0))
    assert drawn.std() == pytest.approx((5 * variance) ** 0.5, rel=0.1)  # of 490 numbers: three deviations
    noise = accounting.noise_for(1.0, POLICY.delta, 1, Charge(0.0)) * reach(POLICY, 48)
    for shares in (4, 1):
        (line,) = found[1.0, shares]
        assert line["deviation"] == pytest.approx(noise * (5 / shares) ** 0.5, rel=1e-3)


def test_few_samples_stand_for_many(train):
    scene, many = run(train, samples=4000)
    assert (scene.used, scene.held_out) == (480, 120)
    _, few = run(train, samples=480)
    assert many[1.0, 1][0]["common"] > few[1.0, 1][0]["common"] + 0.2, "noise is divided by more samples"


def test_what_is_tested_on_is_never_learnt_from(train):
    scene = set_scene(train, 10, SPACE, samples=None, clients=5, draws=3)
    assert scene.samples + scene.held_out == len(train.labels)
    held = set(rehearsal._rows(scene)[: scene.held_out].tolist())
    for draw in range(3):
        drawn = set(rehearsal._draw(scene, draw).tolist())
        assert len(drawn) == scene.samples
        assert not drawn & held


@pytest.mark.parametrize("wrong", [{"clients": 0}, {"draws": 0}, {"samples": 3}])
def test_a_plan_that_makes_no_sense_is_refused(train, wrong):
    with pytest.raises(ConfigError, match=r"clients"):
        run(train, **wrong)


OWN = """
from repshare_lab.data import load

def digits():
    splits = load("digits")
    return [(images[:300], labels[:300]) for images, labels in (splits.train, splits.test)]
"""


def test_the_command_shows_a_row_for_each_budget(tmp_path, capsys):
    (tmp_path / "own.py").write_text(OWN)
    plan = ["privacy", "plan", "--method", "CS", "--epsilon", "1", "--space", *SPACE]
    plan += ["--dataset", f"{tmp_path}/own.py:digits"]
    main([*plan, "--samples", "1000", "--clients", "5"])
    shown = capsys.readouterr().out
    assert "240 samples stand for 1,000" in shown
    assert "at most 1 of 5 members drop out of a sum, and at most 0 collude" in shown
    assert "nothing shared" in shown
    main([*plan, "--clients", "1", "--json"])
    document = json.loads(capsys.readouterr().out)
    assert [line["epsilon"] for line in document["lines"]] == [0.1, 0.3, 1.0, 3.0, 10.0, None] * 3
