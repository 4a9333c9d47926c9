"""Studies that are drawn from their records alone: the field, the rates chosen for it, and topologies."""

from pathlib import Path
from shutil import copytree

import pytest

from repshare.errors import ConfigError
from repshare.methods import METHODS
from repshare.records import Journal
from repshare_lab.cli.reproduce import reproduce
from repshare_lab.config import Setting
from repshare_lab.experiments import field
from repshare_lab.experiments.topologies import RELAY, TOPOLOGIES
from repshare_lab.methods import GONE, find_method

RESULTS = Path(__file__).parents[3] / "docs" / "results"


@pytest.mark.parametrize("name", ["rates", "topologies"])
def test_a_study_of_records_is_drawn_and_computes_nothing(name, tmp_path, capsys):
    copy = Path(copytree(RESULTS / f"{name}-mnist", tmp_path / f"{name}-mnist"))
    records = (copy / "records.jsonl").read_bytes()
    (copy / "table.md").unlink()
    reproduce(name, output=tmp_path)
    assert "table.md" in capsys.readouterr().out
    assert (copy / "table.md").read_bytes() == (RESULTS / f"{name}-mnist/table.md").read_bytes()
    assert (copy / "records.jsonl").read_bytes() == records
    with pytest.raises(
        ConfigError, match=f"{name} is drawn from its records.*d934b08 is the last commit that computes"
    ):
        reproduce(name, output=tmp_path / "elsewhere")


def test_the_candidate_with_the_best_mean_is_chosen_or_the_first_that_is_as_good():
    numbers = [("a", "u", 50, 50), ("b", "u", 90, 10.5), ("a", "s", 40, 70), ("b", "s", 41, 70)]
    lines = [
        {"method": "FL", "candidate": title, "division": division, "accuracy": all_, "own": own}
        for title, division, all_, own in numbers
    ]
    assert field.scores(lines) == {"u": {"FL": {"a": 50, "b": 50.25}}, "s": {"FL": {"a": 55, "b": 55.5}}}
    assert field.best(lines) == {"u": {"FL": "a"}, "s": {"FL": "b"}}


def test_methods_that_are_not_above_learning_alone_are_named():
    usual = {"bytes_up": 8, "bytes_down": 12, "seconds": 1.0, "accuracies": [1.0, 2.0], "seed": 0, "worst": 1.0}
    lines = [
        {**usual, "division": field.UNIFORM, "method": method, "penalty": penalty, "accuracy": all_, "own": own}
        for method, penalty, all_, own in [
            ("IL", "off", 70, 70),
            ("IL", "on", 80, 80),
            ("FL", "off", 75, 60),
            ("FL", "on", 79, 90),
            ("RS", "off", 70, 71),
        ]
    ]
    table = field.write_tables(lines, "mnist")
    assert "Not above IL by all classes: RS." in table
    assert "Not above IL by own mix: FL." in table
    assert "Not above IL with short features by all classes: FL." in table
    assert "Not above IL with short features by own mix: none." in table
    assert field.volume(lines) == 10
    more = {**lines[2], "seed": 1, "accuracy": 20}  # a seed that IL does not have
    assert field.gains_over_alone([*lines, more], "FL", "accuracy", "off") == [5]


def test_methods_of_the_field_that_are_gone_name_their_last_commit_or_what_does_the_same():
    lines = Journal(RESULTS / "field-mnist" / "records.jsonl").read()
    assert {line["method"] for line in lines} - METHODS.keys() == GONE.keys()
    for name, told in {
        "fedadam": "FEDADAM is gone: c528c6c is the last commit that has it",
        "FED3R": "FED3R is gone: use AFL, or d934b08 is the last",
        "FEDPROX": r"use examples/fedprox\.py:PROX, or d934b08",
    }.items():
        with pytest.raises(ConfigError, match=told):
            find_method(name)


def test_the_difference_to_the_relay_is_taken_seed_by_seed(tmp_path):
    usual = {"clients": 10, "bytes_down": 700, "client_rounds": 1}
    lines = [
        {**usual, "row": row, "seed": seed, "accuracy": 80.0 + more + 5 * seed}
        for row, more, seeds in ((RELAY, 0.0, (0, 1, 2)), ("ring, 2 peers", -1.0, (1, 2)))
        for seed in seeds
    ]
    table, *_ = TOPOLOGIES.show(lines, tmp_path, Setting(dataset="digits"))
    assert "| ring, 2 peers | 86.50 ± 3.54 (2) | -1.00 | 700 B |" in table.read_text()
