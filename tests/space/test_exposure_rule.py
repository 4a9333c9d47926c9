"""The rule that ties the numbers of a visible sum to the samples behind it."""

import json
import math
import statistics
from pathlib import Path

import pytest

from repshare.space import exposure

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_measured_attacks_come_to_what_the_rule_says_and_hardly_above():
    allowed, above = [], []
    for file in RESULTS.glob("leakage-*/records.jsonl"):
        classes = 2 if "breast_cancer" in file.parent.name else 10
        for line in map(json.loads, file.read_text().splitlines()):
            if line["method"] == "CS":
                shown = exposure.Exposure(line["d"], classes, line["behind"], sums=False)
                above.append(statistics.fmean(line["auc"]) - shown.auc)
                allowed += [statistics.fmean(line["auc"])] if shown.allowed else []
    assert len(above) > 100
    assert 0 < max(above) < 0.055
    assert allowed
    assert max(allowed) <= exposure.PROMISED


def test_more_samples_allow_more_numbers_and_none_allow_none():
    allowed = [exposure.most_numbers(samples, 10) for samples in range(5000)]
    assert allowed[0] == 0
    assert allowed == sorted(allowed)


def test_more_classes_allow_fewer_numbers_each():
    assert [exposure.most_numbers(1200, classes) for classes in (2, 10, 100)] == [74, 14, 0]


def test_what_a_release_shows_is_told_by_its_numbers_and_samples():
    assert exposure.Exposure(14, 10, 1200, sums=False).auc == pytest.approx(exposure.PROMISED, abs=0.002)
    assert exposure.Exposure(2592, 10, 114, sums=False).auc > 0.99
    assert exposure.Exposure(9, 10, math.inf, sums=False).auc == 0.5
