"""Workers in this process, and in two others, for all tests of a file."""

import pytest

from repshare_lab.simulation import Inline, Processes


@pytest.fixture(scope="module")
def inline():
    with Inline() as workers:
        yield workers


@pytest.fixture(scope="module")
def processes():
    with Processes(2) as workers:
        yield workers
