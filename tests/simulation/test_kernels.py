"""Clients side by side in a run: the same bits wherever they are, and a run keeps the kernels that it began with."""

import json
from dataclasses import replace

import pytest

from repshare import compare
from repshare.config import Policy, Run, Setting
from repshare.errors import ConfigError
from repshare.experiments.comparison import plan_comparison
from repshare.methods import METHODS, find_method
from repshare.simulation import Inline, Processes, simulate
from repshare.simulation.plan import make_plan
from repshare.simulation.stacked import describe
from repshare.simulation.workers import Worker

UNEQUAL = Setting(
    dataset="digits", samples=200, clients=7, rounds=3, eval_every=3, model=("lenet5",),
    partition="unequal", ratio=5.0, dropout=0.3,
)  # fmt: skip
ALONE = {"SL", "CA", "CS", "CODIST", "CRONUS", "DSFL", "FEDMD", "FEDGKT"}  # train in another way


def bits(run, splits, workers):
    return [[replace(record, seconds=0.0) for record in records] for records in simulate(run, splits, workers)]


@pytest.mark.parametrize("method", ["RS", "SCAFFOLD"])
def test_unequal_clients_that_come_and_go_have_the_same_bits_anywhere(method, splits):
    run = Run(method, 0, UNEQUAL)
    with Inline() as together, Inline(resident=1) as alone, Processes(2) as apart:
        expected = bits(run, splits, together)
        assert bits(run, splits, alone) == expected
        assert bits(run, splits, apart) == expected


def test_the_kernels_differ_by_rounding_only(splits):
    with Inline() as workers:
        stacked, single = (
            bits(Run("RS", 0, replace(UNEQUAL, kernels=kernels)), splits, workers) for kernels in ("auto", "single")
        )
    assert stacked != single
    for some, others in zip(stacked, single, strict=True):
        for a, b in zip(some, others, strict=True):
            assert a.ce == pytest.approx(b.ce, rel=1e-2)


@pytest.mark.parametrize("method", [name for name in METHODS if not find_method(name).in_space])
def test_all_methods_that_train_a_network_by_themselves_are_stacked(method, splits):
    public = "rest:100" if METHODS[method].uses_public else None
    (run,) = plan_comparison(replace(UNEQUAL, public_data=public), [method], 1, splits)
    client = Worker(make_plan(run, splits), None, {})._build(0)
    assert (describe(client.learner) is None) == (method in ALONE)


def test_a_comparison_keeps_the_kernels_that_it_began_with(splits, tmp_path):
    given = {"dataset": "digits", "methods": ["IL"], "splits": splits, "samples": 60, "clients": 2, "workers": 0}
    given |= {"folder": tmp_path, "model": ("lenet5",), "eval_every": 1, "policy": Policy(batch_size=4)}
    compare(rounds=1, kernels="single", keep_models=True, **given)
    for path in [tmp_path / "run.json", *tmp_path.rglob("manifest.json")]:  # as they were before there was a choice
        held = json.loads(path.read_text())
        del (held.get("run") or held)["setting"]["kernels"]
        path.write_text(json.dumps(held))
    with pytest.raises(ConfigError, match="kernels 'single' there, 'stacked' here"):
        compare(rounds=2, kernels="stacked", resume=True, **given)
    resumed = compare(rounds=2, resume=True, keep_models=True, **given)
    assert resumed.setting.kernels == "single"
    given |= {"folder": None}
    whole = {kernels: compare(rounds=2, kernels=kernels, **given) for kernels in ("single", "auto")}
    assert whole["auto"].setting.kernels == "stacked"
    losses = {kernels: [line["ce"] for line in each.records] for kernels, each in whole.items()}
    assert [line["ce"] for line in resumed.records] == losses["single"] != losses["auto"]
