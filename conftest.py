"""Real data, loaded once: scikit-learn's handwritten digits, which need no network."""

import os
import signal
from pathlib import Path

import hypothesis
import pytest
import torch

from repshare_lab.data import load
from support.redis_servers import Redis, find_port

hypothesis.settings.register_profile("patient", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("patient")

# A shell starts what it puts in the background deaf to Ctrl-C, and so would be every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

# Several test processes share a few cores: threads of PyTorch that wait for each other would take them from the others.
os.environ["OMP_NUM_THREADS"] = "1"

SLOWEST = (  # longest first: where several processes share the files, none is left with a long one at the end
    "tests/relay/test_relay_memory.py",
    "tests/relay/test_relay_clocks.py",
    "tests/relay/page/test_page.py",
    "lab/tests/simulation/test_checkpoint.py",
    "lab/tests/cli/test_demo.py",
    "tests/exchange/test_peer.py",
    "lab/tests/cli/test_cli.py",
    "tests/relay/test_relay_faults.py",
    "tests/party/test_ten_parties.py",
    "tests/relay/test_relay_server.py",
    "tests/stores/test_damage.py",
    "lab/tests/experiments/test_experiments.py",
    "tests/cli/test_peering.py",
    "lab/tests/data/test_sources.py",
    "tests/privacy/test_budgets.py",
    "tests/party/test_join.py",
    "tests/relay/test_relay_audit.py",
    "tests/test_documents.py",
    "tests/space/test_spaces.py",
    "tests/relay/routes/test_relay_fuzz.py",
    "tests/relay/page/test_relay_page.py",
    "tests/relay/test_relay_connections.py",
)


def pytest_collection_modifyitems(items):
    place = {Path(__file__).parent / name: number for number, name in enumerate(SLOWEST)}
    items.sort(key=lambda item: place.get(item.path, len(place)))


@pytest.fixture(scope="session", autouse=True)
def one_thread():
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def splits():
    return load("digits")


@pytest.fixture(scope="session")
def digits(splits):
    """Training and test tensors: ((images, labels), (images, labels))."""

    def tensors(part):
        return torch.from_numpy(part.images).float() / 8 - 1, torch.from_numpy(part.labels)

    return tensors(splits.train), tensors(splits.test)


@pytest.fixture
def free_port():
    return find_port()


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory):
    """A real redis-server on a free port."""
    server = Redis(tmp_path_factory.mktemp("redis"))
    yield server
    server.stop()


@pytest.fixture
def redis_url(redis_server):
    """Its address, with nothing in it."""
    redis_server.empty()
    return redis_server.url
