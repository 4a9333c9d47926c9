import json
from dataclasses import replace
from pathlib import Path
from shutil import copytree
from typing import get_args

import pytest

from repshare.errors import ConfigError
from repshare.records import Journal
from repshare_lab.cli.reproduce import What, reproduce
from repshare_lab.config import Run, Setting
from repshare_lab.experiments.catalogue import EXPERIMENTS
from repshare_lab.experiments.experiment import Cell, Experiment, choose, fill, what_was_seen
from repshare_lab.experiments.table import PUBLISHED
from repshare_lab.results.records import RunFolder
from repshare_lab.results.terminal import table_markdown
from repshare_lab.simulation import Inline, resolve

RESULTS = Path(__file__).parents[3] / "docs/results"
NOTEBOOK = Path(__file__).parents[2] / "notebook"
TINY = Setting(dataset="digits", samples=60, rounds=2)
TABLE, TRAFFIC = EXPERIMENTS["table"], EXPERIMENTS["traffic"]


def carry_out(experiment, path, splits, seeds, stop=None, setting=TINY, only=()):
    """The experiment's lines, timings aside."""
    splits = splits.first(test=60)
    setting = resolve(setting, len(splits.train.labels))
    folder = RunFolder(path / experiment.name, experiment.describe(setting), resume=True)
    with Inline() as workers:
        cells = choose(experiment.plan(setting, seeds), only)
        for number, _ in enumerate(fill(experiment, cells, lambda _: splits, folder, workers)):
            if number == stop:
                break
    return [{key: value for key, value in line.items() if key != "seconds"} for line in folder.records.read()]


@pytest.fixture(scope="module")
def table(tmp_path_factory, splits):
    """The lines of a table with two seeds, at one of its sizes, carried out without a break."""
    return carry_out(TABLE, tmp_path_factory.mktemp("table"), splits, seeds=2, only=["clients=2"])


def test_the_table_has_every_cell_once_for_each_seed():
    keys = [cell.key for cell in TABLE.plan(resolve(TINY, 1200), 2)]
    assert len(keys) == len({tuple(key.items()) for key in keys}) == 2 * (1 + 12 * 3)
    assert {key["row"] for key in keys} >= set(PUBLISHED["mnist"])
    assert {(key["row"], key["clients"]) for key in keys} >= {("FL (fair)", 10), ("FL (as published)", 10)}


def test_an_interrupted_table_goes_on_to_the_same_cells(tmp_path, splits, table):
    whole = [line for line in table if line["seed"] == 0]
    assert 0 < len(carry_out(TABLE, tmp_path, splits, seeds=1, stop=9, only=["clients=2"])) < len(whole)
    assert carry_out(TABLE, tmp_path, splits, seeds=1, only=["clients=2"]) == whole
    assert carry_out(TABLE, tmp_path, splits, seeds=2, only=["clients=2"]) == table  # more seeds may be added later


def test_the_two_fedavg_rows_differ(table):
    first = [line for line in table if line["seed"] == 0]
    fair, published = ([x for x in first if x["row"] == row] for row in ("FL (fair)", "FL (as published)"))
    assert [line["accuracy"] for line in fair] != [line["accuracy"] for line in published]
    assert fair[0]["bytes_down"] > published[0]["bytes_down"]  # the common start is a download, too


@pytest.mark.parametrize("name", ["curves", "start"])
def test_an_experiment_done_twice_leaves_the_same_files(tmp_path, splits, name):
    experiment, files = EXPERIMENTS[name], []
    for attempt in ("one", "two"):
        lines = carry_out(experiment, tmp_path / attempt, splits, seeds=1)
        shown = experiment.show(lines, tmp_path / attempt, resolve(TINY, 60))
        assert {path.suffix for path in shown} >= {".png", ".svg"}
        files.append([*map(str, lines), *(path.read_bytes() for path in shown)])
    assert files[0] == files[1]


def test_accuracy_by_round_is_told_with_and_without_a_teacher_in_round_1(tmp_path, splits):
    lines = carry_out(EXPERIMENTS["start"], tmp_path, splits, seeds=1)
    train = {(line["method"], line["start"], line["round"]): line["train"] for line in lines}
    assert set(train) == {(method, start, n) for method in ("FD", "RS") for start in ("zeros", "none") for n in (1, 2)}
    assert train["FD", "zeros", 2] != train["FD", "none", 2]
    EXPERIMENTS["start"].show([line for line in lines if line["method"] == "FD"], tmp_path, resolve(TINY, 60))
    table = (tmp_path / "table.md").read_text()
    assert "| FD | no teacher |" in table
    assert "| RS |" not in table


def test_tables_of_large_networks_show_the_mean_of_the_last_five_rounds():
    cells = TABLE.plan(resolve(Setting(dataset="fashion_mnist"), 60_000), 1)
    looked = {cell.key["row"]: cell.looks for cell in cells}
    assert (looked["FD"], looked["FL (fair)"]) == ((16, 17, 18, 19), ())
    assert {cell.looks for cell in TABLE.plan(resolve(TINY, 60), 1)} == {()}
    (cell,) = choose(cells, ["FD", "clients=2"])
    usual = {"seed": 0, "ce": 0.5, "train_accuracy": 0.9, "bytes_up": 1, "bytes_down": 1, "seconds": 1.0}
    lines = [{**usual, "round": n, "test_accuracy": 0.7 if n == 20 else None} for n in range(1, 21)]
    seen = [{"round": n, "seen": {"accuracy": accuracy}} for n, accuracy in enumerate((80, 82, 84, 84), 16)]
    kept = [{**cell.key, **line} for line in TABLE.condense(cell, [*lines, *seen])]
    assert (kept[0]["accuracy"], kept[0]["last_rounds"]) == pytest.approx((70.0, 80.0))
    last, steady = table_markdown("fashion_mnist", kept, {}).splitlines()[-2:]
    assert (last, steady) == ("| FD | 70.00 |", "| … mean of the last 5 rounds | 80.00 |")


def test_cells_done_in_another_order_leave_the_same_files(tmp_path):
    whole = RESULTS / "curves-mnist"
    lines = (whole / "records.jsonl").read_text().splitlines(keepends=True)
    other = Path(copytree(whole, tmp_path / whole.name))
    seeds = 1 + max(json.loads(line)["seed"] for line in lines)
    (other / "records.jsonl").write_text("".join(reversed(lines)))
    reproduce("curves", seeds=seeds, output=tmp_path)
    assert sorted((other / "records.jsonl").read_text().splitlines(keepends=True)) == sorted(lines)
    assert (other / "figure.svg").read_bytes() == (whole / "figure.svg").read_bytes()


def test_a_look_that_was_cut_off_is_had_again(tmp_path, splits):
    def plan(setting, _):
        return [Cell({"method": "IL", "seed": 0}, Run("IL", 0, setting), looks=(1, 2))]

    def look(cell, views, splits):
        if not looks.pop():
            raise KeyboardInterrupt
        return {"clients": len(views)}

    experiment = Experiment("looks", plan, show=None, condense=what_was_seen, look=look)
    setting = replace(TINY, clients=2, model=("mlp",))
    looks = [False, True]  # the one after the last round is cut off
    with pytest.raises(KeyboardInterrupt):
        carry_out(experiment, tmp_path, splits, seeds=1, setting=setting)
    looks = [True, True]
    lines = carry_out(experiment, tmp_path, splits, seeds=1, setting=setting)
    assert [(line["round"], line["clients"]) for line in lines] == [(1, 2), (2, 2)]


def test_the_command_line_knows_every_experiment():
    assert get_args(What) == tuple(EXPERIMENTS)


def test_some_cells_can_be_chosen():
    cells = TABLE.plan(resolve(TINY, 1200), 2)
    assert [cell.key["seed"] for cell in choose(cells, ("FL (fair)", "10"))] == [0, 1]
    assert choose(cells, ("clients=2", "seed=1", "RS")) == choose(cells, ("RS", "2", "1"))
    assert choose(cells, ()) == cells
    with pytest.raises(ConfigError, match="no cell has all of RS, 3: there are CL, 2, 0, FL"):
        choose(cells, ("RS", "3"))


@pytest.mark.parametrize("committed", sorted(RESULTS.glob("*/run.json")), ids=lambda path: path.parent.name)
def test_committed_pages_are_drawn_from_committed_records_to_the_byte(tmp_path, committed):
    described, page = json.loads(committed.read_text()), (NOTEBOOK / "reproduction.md").read_text()
    setting = resolve(Setting(dataset=described["setting"].get("dataset", "mnist")), 60_000)
    lines = Journal(committed.with_name("records.jsonl")).read()
    shown = EXPERIMENTS[described["experiment"]].show(lines, tmp_path, setting)
    for file in shown:
        if file.suffix != ".png":  # whose bytes depend on the machine's libraries
            assert file.read_bytes() == committed.with_name(file.name).read_bytes()
        if file.name == "table.md" and f"results/{committed.parent.name}/" in page:
            assert [row for row in file.read_text().splitlines() if row not in page] == []


def test_the_published_numbers_stand_beside_ours():
    lines = [
        {"row": "RS", "clients": clients, "seed": seed, "accuracy": 80.0 + seed}
        for clients in (2, 5, 10)
        for seed in (0, 2)
    ]
    text = table_markdown("mnist", lines, PUBLISHED["mnist"])
    assert "| RS | 81.00 ± 1.41 (94.19) | 81.00 ± 1.41 (90.63) | 81.00 ± 1.41 (82.07) |" in text
    some = [line for line in lines if line["clients"] == 10]  # the others may be missing yet
    assert "| RS | 81.00 ± 1.41 (82.07) |" in table_markdown("mnist", some, PUBLISHED["mnist"])
