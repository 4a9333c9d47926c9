"""Clients with a privacy budget, their data, and the task that they share class sums in."""

from contextlib import closing

import numpy as np

from repshare import Agreement, Party, Policy
from repshare.client import Client
from repshare.exchange.relay import Membership
from repshare.relay.tasks import Tasks
from repshare.space import Fourier
from repshare.stores import open_database

COMMON = Agreement(Fourier((0.0,) * 64, (1.0,) * 64, features=16), "discriminant")
TASK = COMMON.task(10)
DIGITS = Membership("digits", "alice", TASK)
BUDGET = Policy(epsilon=5.0, releases=4)
OPENLY = Policy(accept_exposure=True, share_inputs=True)  # the data are noise


def make_data():
    return np.random.default_rng(0).random((60, 64), np.float32), np.arange(60) % 10


def make_client(exchange=None, policy=BUDGET, **options):
    return Client(None, make_data(), exchange, name="alice", policy=policy, space=COMMON, classes=10, **options)


def alice():
    """The same client as a party of `repshare join`."""
    return Party(data=make_data(), test=make_data())


def create_private_task(folder):
    """The task in the folder's relay.db."""
    with closing(open_database(str(folder / "relay.db"))) as database:
        Tasks(database).create("digits", TASK)
