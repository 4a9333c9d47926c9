"""The words that `compare` says below its tables."""

import pytest

from repshare_lab.results.terminal import comparison_tables


@pytest.mark.parametrize(("accuracy", "told"), [(0.5, True), (0.9, False)])
def test_representations_that_cost_more_than_they_gain_are_told(accuracy, told):
    cost = {"seed": 0, "round": 1, "client": "a", "bytes_up": 1, "bytes_down": 1, "seconds": 1.0}
    lines = [{**cost, "method": "IL", "test_accuracy": 0.8}, {**cost, "method": "RS", "test_accuracy": accuracy}]
    tables = comparison_tables(lines, {}, "", {})
    assert any("RS is below IL: try another --lambda-kd" in table for table in tables if isinstance(table, str)) == told
