"""The field: every method on the same splits, with rates that were chosen on held-out training samples."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from repshare.errors import ConfigError
from repshare.methods import METHODS
from repshare.records import Journal
from repshare_lab.config import Setting
from repshare_lab.experiments.catalogue import EXPERIMENTS
from repshare_lab.experiments.experiment import fill, usual_setting
from repshare_lab.experiments.field import rates, reading, study
from repshare_lab.experiments.field.contenders import DIVISIONS, LENGTH, NETWORKS, SKEWED, UNIFORM, fits
from repshare_lab.methods import GONE, find_method
from repshare_lab.results.records import RunFolder
from repshare_lab.simulation import Inline, resolve

FIELD, RATES = EXPERIMENTS["field"], EXPERIMENTS["rates"]
RESULTS = Path(__file__).parents[3] / "docs" / "results"
MNIST = usual_setting("mnist", 60_000, rounds=FIELD.rounds)


def test_every_method_is_on_every_division_that_it_fits_once():
    cells = FIELD.plan(MNIST, 3)
    assert len({repr(cell.run) for cell in cells}) == len(cells) == len({cell.title for cell in cells})
    for division in DIVISIONS:
        here = {cell.run.method for cell in cells if cell.key["division"] == division.label}
        assert here == {name for name, method in METHODS.items() if fits(method, division)}
    assert {name for name in METHODS if not fits(METHODS[name], SKEWED)} == {"CL"}
    assert {"IL", "FD", "RS", "CA", "CS", "FEDPROTO"} <= {name for name in METHODS if fits(METHODS[name], NETWORKS)}
    assert not any(fits(METHODS[name], NETWORKS) for name in ("FL", "SCAFFOLD", "FEDPER"))


def test_all_train_as_many_epochs_are_tested_once_and_an_interrupted_field_is_even():
    cells = FIELD.plan(MNIST, 3)
    trained = [cell.run for cell in cells if not METHODS[cell.run.method].in_space]
    assert {(run.setting.rounds, run.setting.policy.epochs) for run in trained} == {(FIELD.rounds, 1)}
    assert all(cell.run.setting.eval_every == cell.run.setting.rounds for cell in cells)
    first = [cell for cell in cells if cell.key["division"] in (UNIFORM.label, SKEWED.label)]
    assert cells[: len(first)] == first
    assert [cell.run.seed for cell in first] == sorted(cell.run.seed for cell in first)


def test_a_penalty_is_where_a_network_is_trained_by_a_loss_of_its_own():
    cells = [cell for cell in FIELD.plan(MNIST, 1) if cell.key["penalty"] == "on"]
    without = {"CA", "CS", "SL"}  # fixed features; and a loss that is at the server
    assert {cell.run.method for cell in cells if cell.key["division"] == UNIFORM.label}.isdisjoint(without)
    assert all(cell.run.setting.policy.lambda_length == LENGTH for cell in cells)
    assert {name for name in METHODS if study._keeps_features_short(METHODS[name])}.isdisjoint(without)
    assert study._keeps_features_short(METHODS["IL"])


def test_rates_are_chosen_on_training_samples_that_the_field_does_not_use(splits):
    count, needed = len(splits.train.labels), rates.TRAINED + rates.PUBLIC + rates.HELD_OUT
    many = replace(splits, train=splits.train._replace(labels=np.arange(60_000), inputs=np.arange(60_000)))
    chosen = rates.select(many)
    assert count < needed
    assert [*chosen.train.labels, *chosen.test.labels] == list(range(60_000 - needed, 60_000))
    assert min(chosen.train.inputs) >= study.SAMPLES + rates.PUBLIC  # also of the public samples


def test_the_candidate_with_the_best_mean_is_chosen_or_the_first_that_is_as_good():
    numbers = [("a", "u", 50, 50), ("b", "u", 90, 10.5), ("a", "s", 40, 70), ("b", "s", 41, 70)]
    lines = [
        {"method": "FL", "candidate": title, "division": division, "accuracy": all_, "own": own}
        for title, division, all_, own in numbers
    ]
    assert rates.scores(lines) == {"u": {"FL": {"a": 50, "b": 50.25}}, "s": {"FL": {"a": 55, "b": 55.5}}}
    assert rates.best(lines) == {"u": {"FL": "a"}, "s": {"FL": "b"}}


@pytest.mark.parametrize("division", DIVISIONS, ids=lambda division: division.label)
def test_a_method_has_its_own_rate_or_that_of_its_control(division, monkeypatch):
    for name, title in rates.CHOSEN[division.rates].items():
        assert title in [each.title for each in rates.candidates(METHODS[name], division.rates)]
        assert rates.chosen_for(METHODS[name], division).title == title
    chosen = {name: rates.chosen_for(method, division) for name, method in METHODS.items()}
    assert chosen["CS"].policy == chosen["CA"].policy == {}
    assert chosen["FEDPER"].policy == chosen["FL"].policy
    assert chosen["CL"].policy == chosen["IL"].policy
    assert chosen["SCAFFOLD"].policy["optimizer"] == "sgd"
    assert chosen["FEDPROX"].options[0].startswith("FEDPROX.mu=")
    late = METHODS["RS"]._replace(name="LATE")
    assert rates.chosen_for(late, division).policy == chosen["IL"].policy
    monkeypatch.setitem(rates.CHOSEN, division.rates, {})
    assert rates.chosen_for(METHODS["RS"], division) is None  # it is not in the field yet


@pytest.fixture(scope="module")
def lines(tmp_path_factory, splits):
    setting = replace(resolve(Setting(dataset="digits", samples=100, rounds=2), len(splits.train.labels)))
    names = ("CL", "IL", "CA", "FL", "RS", "FEDPER")
    cells = [cell for cell in FIELD.plan(setting, 1) if cell.run.method in names]
    cells = [cell for cell in cells if cell.key["division"] in (UNIFORM.label, SKEWED.label)]
    folder = RunFolder(tmp_path_factory.mktemp("field") / "field", FIELD.describe(setting), resume=True)
    with Inline() as workers:
        list(fill(FIELD, cells, lambda _: splits.first(test=60), folder, workers))
    return folder.records.read()


def test_the_field_is_carried_out_and_drawn_to_the_same_bytes_twice(lines, tmp_path):
    files = {file: file.read_bytes() for file in FIELD.show(lines, tmp_path, MNIST)}
    assert {file.suffix for file in files} == {".md", ".png", ".svg"}
    assert {file: file.read_bytes() for file in FIELD.show(lines, tmp_path, MNIST)} == files
    table = (tmp_path / "table.md").read_text()
    assert table.index("| CL |") < table.index("| IL |") < table.index("| FL |") < table.index("| RS |")
    assert table.count("| FEDPER |") == 2
    assert all(line["worst"] <= line["own"] for line in lines if line["worst"] is not None)


def test_methods_that_are_not_above_learning_alone_are_named():
    usual = {"bytes_up": 8, "bytes_down": 12, "seconds": 1.0, "accuracies": [1.0, 2.0], "seed": 0, "worst": 1.0}
    lines = [
        {**usual, "division": UNIFORM.label, "method": method, "penalty": penalty, "accuracy": all_, "own": own}
        for method, penalty, all_, own in [
            ("IL", "off", 70, 70),
            ("IL", "on", 80, 80),
            ("FL", "off", 75, 60),
            ("FL", "on", 79, 90),
            ("RS", "off", 70, 71),
        ]
    ]
    table = reading.write_tables(lines, "mnist")
    assert "Not above IL by all classes: RS." in table
    assert "Not above IL by own mix: FL." in table
    assert "Not above IL with short features by all classes: FL." in table
    assert "Not above IL with short features by own mix: none." in table
    assert reading.volume(lines) == 10
    more = {**lines[2], "seed": 1, "accuracy": 20}  # a seed that IL does not have
    assert reading.gains_over_alone([*lines, more], "FL", "accuracy", "off") == [5]


def test_the_choices_are_those_of_the_committed_lines():
    best = rates.best(Journal(RESULTS / "rates-mnist" / "records.jsonl").read())
    known = {
        division: {name: title for name, title in own.items() if name in METHODS} for division, own in best.items()
    }
    assert known == rates.CHOSEN


def test_the_page_of_the_field_is_drawn_to_the_same_bytes_though_some_methods_are_gone(tmp_path):
    lines = Journal(RESULTS / "field-mnist" / "records.jsonl").read()
    assert {line["method"] for line in lines} - METHODS.keys() == GONE.keys()
    with pytest.raises(ConfigError, match="FEDADAM is gone: c528c6c is the last commit that has it"):
        find_method("fedadam")
    for file in FIELD.show(lines, tmp_path, MNIST):
        if file.suffix != ".png":
            assert file.read_bytes() == (RESULTS / "field-mnist" / file.name).read_bytes()
