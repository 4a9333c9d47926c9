from dataclasses import asdict

import pytest

from repshare.cli.terminal import traffic
from repshare.errors import ConfigError
from repshare_lab.config import Setting
from repshare_lab.results.records import RunFolder, summarise
from repshare_lab.results.terminal import curve


def line(seed, round, accuracy, up=10):
    return {"seed": seed, "round": round, "test_accuracy": accuracy, "bytes_up": up, "bytes_down": 1, "seconds": 0.5}


def test_a_summary_takes_the_last_round_only_and_tells_seeds_from_clients():
    lines = [
        line(s, r, a) for s, r, a in [(0, 1, 0.99), (0, 2, 0.5), (0, 2, 0.7), (1, 2, 0.8), (1, 2, 0.8), (1, 1, None)]
    ]
    summary = summarise(lines)
    assert summary.accuracy == pytest.approx((60 + 80) / 2)
    assert summary.std_over_seeds == pytest.approx(200**0.5)
    assert summary.std_over_clients == pytest.approx((10 + 0) / 2)
    assert summary.bytes_up == 30
    assert summarise(lines[:3]).std_over_seeds is None
    with pytest.raises(ConfigError, match="no client took part"):
        summarise([line(0, 1, None)])


def test_a_seed_counts_with_its_own_last_test():
    left = [line(0, 10, 0.5), line(0, 20, 0.7), line(1, 10, 0.9), line(2, 20, None)]  # nobody was there any more
    summary = summarise(left)
    assert summary.accuracy == pytest.approx((70 + 90) / 2)
    assert (summary.bytes_up, summary.client_rounds) == (15, 1)  # of the seeds with a test


def test_what_an_earlier_version_did_not_know_of_stood_at_its_default(tmp_path):
    setting = asdict(Setting(dataset="digits"))
    older = {**setting, "policy": {key: value for key, value in setting["policy"].items() if key != "precision"}}
    del older["dropout"]
    RunFolder(tmp_path / "run", {"setting": older}, resume=False)
    RunFolder(tmp_path / "run", {"setting": setting}, resume=True)
    with pytest.raises(ConfigError, match="precision None there, 'int8' here"):
        RunFolder(
            tmp_path / "run",
            {"setting": {**setting, "policy": {**setting["policy"], "precision": "int8"}}},
            resume=True,
        )


def test_an_option_that_is_gone_counts_only_where_it_changed_the_run(tmp_path):
    setting = asdict(Setting(dataset="digits"))
    RunFolder(tmp_path / "run", {"setting": {**setting, "kernels": "single", "leavers": 0.0}}, resume=False)
    RunFolder(tmp_path / "run", {"setting": setting}, resume=True)
    RunFolder(tmp_path / "other", {"setting": {**setting, "kernels": "stacked"}}, resume=False)
    with pytest.raises(ConfigError, match=r"kernels 'stacked' there, None here.*eaadb79 is the last commit"):
        RunFolder(tmp_path / "other", {"setting": setting}, resume=True)


def test_curves_and_traffic_are_readable():
    lines = [{"round": r, "test_accuracy": a} for r, a in [(1, 0.0), (2, None), (3, 0.5), (4, 0.99), (4, 1.0)]]
    assert curve(lines) == "▁▅█"
    assert [traffic(n) for n in (0, 776, 7184, 125_000, 3e9)] == ["–", "776 B", "7.18 kB", "125 kB", "3 GB"]
