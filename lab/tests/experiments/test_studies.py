"""Studies beyond the paper, drawn from their records."""

from pathlib import Path

import pytest

from repshare_lab.experiments.studies import KINDS, STUDIES, apart

RESULTS = Path(__file__).parents[3] / "docs" / "results"
NOTEBOOK = Path(__file__).parents[2] / "notebook"
NAMES = [study.name for study in STUDIES]


def test_kinds_that_were_together_are_shown_beside_the_same_clients_among_their_like():
    together = {"variant": "together", "method": "RS", "accuracies": [90, 80, 70, 92, 82, 72], "accuracy": 81}
    alone = {"variant": "mlp", "method": "RS", "accuracies": [1, 2, 74, 4, 5, 76], "accuracy": 27}
    lines = apart([alone, together], KINDS)
    assert [(line["variant"], line["method"], line["accuracy"]) for line in lines] == [
        ("mlp", "RS", 75),
        *zip(KINDS, ["RS together"] * 3, [91, 81, 71], strict=True),
    ]


@pytest.mark.parametrize("name", [name for name in NAMES if (RESULTS / f"{name}-mnist" / "table.md").exists()])
def test_the_page_shows_the_tables_as_they_are(name):
    page = (NOTEBOOK / "studies.md").read_text()
    assert (RESULTS / f"{name}-mnist" / "table.md").read_text() in page
