"""Studies that are drawn from their records alone: the field, the rates chosen for it, and topologies."""

from pathlib import Path
from shutil import copytree

import pytest

from repshare.errors import ConfigError
from repshare.methods import METHODS
from repshare.records import Journal
from repshare_lab.cli.reproduce import reproduce
from repshare_lab.methods import GONE, find_method

RESULTS = Path(__file__).parents[3] / "docs" / "results"


@pytest.mark.parametrize("name", ["rates"])
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
