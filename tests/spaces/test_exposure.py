"""The rule that ties the numbers of a visible sum to the samples behind it."""

from repshare.spaces import exposure


def test_no_measured_attack_on_what_the_rule_allows_is_above_what_it_promises():
    allowed = [row for row in exposure.MEASURED if row.numbers <= exposure.most_numbers(row.samples, row.classes)]
    assert allowed
    assert max(row.auc for row in allowed) <= exposure.PROMISED


def test_more_samples_allow_more_numbers_and_none_allow_none():
    allowed = [exposure.most_numbers(samples, 10) for samples in range(5000)]
    assert allowed[0] == 0
    assert allowed == sorted(allowed)


def test_more_classes_allow_fewer_numbers_each():
    assert [exposure.most_numbers(1200, classes) for classes in (2, 10, 100)] == [75, 15, 1]


def test_the_nearest_measurement_is_the_one_that_a_message_names():
    assert exposure.nearest(2592, 114, 10).auc == 1.0
    assert exposure.nearest(30, 1200, 10) == exposure.Measured(1200, 32, 0.60)
    assert exposure.nearest(150, 1200, 2) == exposure.Measured(1200, 32, 0.60)
