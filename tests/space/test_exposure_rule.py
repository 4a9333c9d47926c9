"""The rule that ties the numbers of a visible sum to the samples behind it."""

import json
import statistics
from pathlib import Path

from repshare.space import exposure

RESULTS = Path(__file__).parents[2] / "docs" / "results"


def test_what_is_measured_is_the_worst_of_the_committed_records():
    worst = {}
    for file in RESULTS.glob("leakage-*/records.jsonl"):
        for line in map(json.loads, file.read_text().splitlines()):
            if line["method"] == "CS":
                case = file.parent.name.partition("-")[2], round(line["behind"]), line["d"]
                worst[case] = max(worst.get(case, 0), round(statistics.fmean(line["auc"]), 2))
    assert worst == {(row.dataset, row.samples, row.numbers): row.auc for row in exposure.MEASURED}


def test_no_measured_attack_on_what_the_rule_allows_is_above_what_it_promises():
    allowed = [row for row in exposure.MEASURED if row.numbers <= exposure.most_numbers(row.samples, row.classes)]
    assert allowed
    assert max(row.auc for row in allowed) <= exposure.PROMISED


def test_more_samples_allow_more_numbers_and_none_allow_none():
    allowed = [exposure.most_numbers(samples, 10) for samples in range(5000)]
    assert allowed[0] == 0
    assert allowed == sorted(allowed)


def test_more_classes_allow_fewer_numbers_each():
    assert [exposure.most_numbers(1200, classes) for classes in (2, 10, 100)] == [74, 14, 0]


def test_the_nearest_measurement_is_the_one_that_a_message_names():
    near = exposure.nearest(14, 1200, 10)
    assert (near.dataset, near.samples, near.numbers) == ("mnist", 1200, 14)
    assert exposure.nearest(2592, 114, 10).auc > 0.9
    assert exposure.nearest(7, 600, 10) in exposure.MEASURED
