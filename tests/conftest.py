"""Real data, loaded once: scikit-learn's handwritten digits, which need no network."""

import signal

import hypothesis
import pytest
import torch

from repshare.data import load
from support.redis_servers import Redis, find_port

hypothesis.settings.register_profile("patient", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("patient")

# A shell starts what it puts in the background deaf to Ctrl-C, and so would be every process that a test starts.
signal.signal(signal.SIGINT, signal.default_int_handler)


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
