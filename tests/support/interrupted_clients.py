"""A client with a privacy budget that is killed by SIGKILL at one point of a round.

    python interrupted_clients.py POINT ROUND URL FOLDER ROUNDS

POINT is one of WHERE, or "nowhere"; URL may be "peer".

The process is a real one, and so are its relay and its files: the only things done to it are that it ends there, and
that the file `sent` beside its folder gets a line for what it sends, before and after.
"""

import hashlib
import os
import signal
import sys
from pathlib import Path

from repshare import Policy, RelayExchange
from repshare.exchange.keys import Key, Trust
from repshare.exchange.peer import PeerExchange
from repshare.party.rounds import take_part
from repshare.party.state import State
from repshare.privacy.ledger import Ledger
from repshare.stores import open_database

sys.path.append(str(Path(__file__).parents[1]))  # as pytest has it
from support.private_clients import DIGITS, TASK, make_client

WHERE = {
    "before it is made": (Ledger, "add", "before"),
    "when it was written": (Ledger, "_append", "before"),
    "when it was charged": (Ledger, "_append", "after"),
    "before it is sent": (None, "publish", "before"),  # of the exchange
    "when it was acknowledged": (None, "publish", "after"),
    "before the round is kept": (State, "keep", "before"),
    "when the round was kept": (State, "keep", "after"),
}
BUDGET = Policy(epsilon=5.0, releases=6)


def killed(function, at, is_time):
    """The function, and an end before or after it once it is time."""

    def ending(*arguments, **options):
        if at == "before" and is_time():
            os.kill(os.getpid(), signal.SIGKILL)
        result = function(*arguments, **options)
        if at == "after" and is_time():
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    return ending


def noted(publish, path):
    """Publishing, with a line in a file before and after."""

    def noting(exchange, body):
        digest = hashlib.sha256(body).hexdigest()
        with path.open("a") as file:
            print("offered", digest, file=file)
        publish(exchange, body)
        with path.open("a") as file:
            print("acknowledged", digest, file=file)

    return noting


def make_exchange(url, folder):
    """A relay's, or that of a peer who is alone."""
    if url != "peer":
        return RelayExchange(url, "digits", client="alice", patience=0.3)
    key = folder.parent / "alice.key"
    if not key.exists():
        Key.new().write(key)
    store = open_database(str(folder.parent / "peers.db")).store("peers")
    listen = ["tcp/127.0.0.1:0"]
    trust = Trust(None, first_use=True)
    options = {"key": Key.read(key), "trust": trust, "listen": listen, "store": store, "timeout": 0.1}
    return PeerExchange(TASK, "alice", "digits", **options)


def main():
    point, number, url, folder, rounds = sys.argv[1:]
    exchange = make_exchange(url, Path(folder))
    client = make_client(exchange, BUDGET)
    type(exchange).publish = noted(type(exchange).publish, Path(folder).parent / "sent")
    if point in WHERE:
        owner, name, at = WHERE[point]
        owner = owner or type(exchange)
        setattr(owner, name, killed(getattr(owner, name), at, lambda: client.round_number == int(number)))
    state = State(Path(folder), client, DIGITS)
    with state.folder:
        state.restore()
        for record in take_part(state, int(rounds)):
            print(record.round, record.trouble, record.epsilon, flush=True)
    os._exit(0)  # Zenoh's threads may abort a process that ends in Python's way


if __name__ == "__main__":
    main()
