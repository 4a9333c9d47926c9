"""The study of faulty clients: its cells are what they say, and votes keep one of them from the total."""

from dataclasses import replace

import pytest

from repshare_lab.data.datasets import load
from repshare_lab.experiments import faults
from repshare_lab.experiments.experiment import usual_setting
from repshare_lab.simulation.plan import resolve

SPACE = ("patches", "sizes=3,4", "filters=24")


@pytest.fixture(scope="module")
def splits():
    return load("digits").first(600)


def find_cell(splits, **wanted):
    setting = resolve(replace(usual_setting("digits", 600), samples=600, space=SPACE), splits)
    (cell,) = [cell for cell in faults.plan(setting, 1) if wanted.items() <= cell.key.items()]
    return cell


def carry_out(splits, **wanted):
    usual = {"dealt": "uniform", "pace": "in step"}
    return faults.carry_out(find_cell(splits, **usual, **wanted), splits)[0]


def test_every_cell_is_planned_once(splits):
    keys = [tuple(cell.key.items()) for cell in faults.plan(usual_setting("digits", 600), 2)]
    assert len(keys) == len(set(keys)) == 2 * 2 * (1 + 2 * 2 * (1 + 4 * len(faults.KINDS)))


def test_votes_name_a_faulty_client_and_keep_the_others_as_good_as_without_it(splits, monkeypatch):
    monkeypatch.setattr(faults, "ROUNDS", 3)
    wanted = {"kind": "permuted, count x 10", "faulty": 1}
    told, spoilt = (carry_out(splits, **wanted, defence=defence) for defence in faults.DEFENCES)
    honest = carry_out(splits, kind="none", defence="votes")
    assert (told["named"], told["honest_refused"], honest["honest_refused"]) == (1, 0, 0)
    assert spoilt["named"] == 0
    assert told["accuracy"] > honest["accuracy"] - 2 > spoilt["accuracy"]
    assert told == carry_out(splits, **wanted, defence="votes")  # the same bits
