from dataclasses import replace

import pytest

from repshare.config import Setting
from repshare.experiments import EXPERIMENTS, PUBLISHED, fill
from repshare.results import Folder
from repshare.screen import table_markdown
from repshare.simulation import Inline, resolve

TINY = Setting(dataset="digits", samples=60, rounds=2)
TABLE = EXPERIMENTS["table"]


def carry_out(experiment, path, splits, seeds, stop=None, setting=TINY):
    """The experiment's lines, timings aside."""
    splits = splits.tested_on(60)
    setting = resolve(setting, len(splits.train.labels))
    folder = Folder(path / experiment.name, experiment.describe(setting), resume=True)
    with Inline() as workers:
        cells = experiment.plan(setting, seeds)
        for number, _ in enumerate(fill(experiment, cells, lambda _: splits, folder, workers)):
            if number == stop:
                break
    return [{key: value for key, value in line.items() if key != "seconds"} for line in folder.records.read()]


def test_the_table_has_every_cell_once_for_each_seed(tmp_path, splits):
    lines = carry_out(TABLE, tmp_path, splits, seeds=2)
    assert len(lines) == 2 * (1 + 6 * 3)
    assert {line["row"] for line in lines} >= set(PUBLISHED["mnist"])
    assert {(line["row"], line["clients"]) for line in lines} >= {("FL (fair)", 10), ("FL (as published)", 10)}


def test_an_interrupted_table_goes_on_to_the_same_cells(tmp_path, splits):
    whole = carry_out(TABLE, tmp_path / "whole", splits, seeds=1)
    assert 0 < len(carry_out(TABLE, tmp_path / "cut", splits, seeds=1, stop=9)) < len(whole)
    assert carry_out(TABLE, tmp_path / "cut", splits, seeds=1) == whole
    assert carry_out(TABLE, tmp_path / "cut", splits, seeds=2)[: len(whole)] == whole  # more seeds may be added later


def test_the_two_fedavg_rows_differ(tmp_path, splits):
    lines = carry_out(TABLE, tmp_path, splits, seeds=1)
    fair, published = ([x for x in lines if x["row"] == row] for row in ("FL (fair)", "FL (as published)"))
    assert [line["accuracy"] for line in fair] != [line["accuracy"] for line in published]
    assert fair[0]["bytes_down"] > published[0]["bytes_down"]  # the common start is a download, too


@pytest.mark.parametrize("name", ["curves", "tsne", "bound"])
def test_an_experiment_done_twice_leaves_the_same_files(tmp_path, splits, name):
    experiment, files = EXPERIMENTS[name], []
    for attempt in ("one", "two"):
        lines = carry_out(experiment, tmp_path / attempt, splits, seeds=1)
        shown = experiment.show(lines, tmp_path / attempt, TINY)
        assert {path.suffix for path in shown} == {".png", ".svg"}
        files.append([*map(str, lines), *(path.read_bytes() for path in shown)])
    assert files[0] == files[1]


def test_an_interrupted_experiment_remembers_what_it_saw(tmp_path, splits):
    setting = replace(TINY, rounds=5)
    whole = carry_out(EXPERIMENTS["bound"], tmp_path / "whole", splits, seeds=1, setting=setting)
    assert not carry_out(EXPERIMENTS["bound"], tmp_path / "cut", splits, seeds=1, setting=setting, stop=2)
    assert carry_out(EXPERIMENTS["bound"], tmp_path / "cut", splits, seeds=1, setting=setting) == whole
    assert [line["round"] for line in whole if line["curve"] == "IL"] == [1, 2, 3, 5]


def test_the_published_numbers_stand_beside_ours():
    lines = [
        {"row": "RS", "clients": clients, "seed": seed, "accuracy": 80.0 + seed}
        for clients in (2, 5, 10)
        for seed in (0, 2)
    ]
    text = table_markdown("mnist", lines, PUBLISHED["mnist"])
    assert "| RS | 81.00 ± 1.41 (94.19) | 81.00 ± 1.41 (90.63) | 81.00 ± 1.41 (82.07) |" in text
