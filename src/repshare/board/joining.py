"""Boards that are joined: each is to the other like a client, whose release is the exact total of all its own clients.

relays    which relays' clients are in which client's release, as JSON. It can be made again from the releases.
"""

import json

import numpy as np

from repshare.board.board import Board
from repshare.board.buffers import index_key
from repshare.board.state import decode_release, read_head, release_key
from repshare.board.totals import read_totals
from repshare.errors import Damaged, Refused, RepshareError
from repshare.sharing import wire
from repshare.sharing.joined import BESIDE, MOST_RELAYS, Summed, Total
from repshare.sharing.task import MOST_ROUNDS, Task
from repshare.stores import Transaction, get_each

KEY = "relays"

Known = dict[str, list[int]]  # by client: the relays whose clients are in its release


def read_total(board: Board, identity: int, client: str) -> tuple[int, Total]:
    """Return the board's version, and the total of all clients but this one, at the relay of this identity."""

    def work(state: Transaction) -> tuple[int, Total]:
        kept, body = state.get(["totals", release_key(client)])
        totals = read_totals(kept, board.task)
        if body is not None:
            totals.add(decode_release(client, body).means, -1, weighted=board.task.counts_samples)
        others = [number for name, each in _read_known(state).items() if name != client for number in each]
        labels, version = np.flatnonzero(totals.clients), read_head(board.task, state).version
        relays = np.array(sorted({identity, *others}), np.uint64)
        return version, Total(min(version, MOST_ROUNDS), labels, totals.numbers[labels], relays, board.task.space)

    return board.store.read(work)


def accept_total(board: Board, identity: int, client: str, body: bytes) -> int:
    """Make this total the client's release, and return the board's version.

    Raises Refused if clients of one relay would count twice: relays are joined as a tree.
    """
    total = wire.decode_total(body)
    board.task.check(wire.decode_release(body), joined=True)
    board.store.transact(lambda state: _claim(state, identity, client, total.relays.tolist()))
    (outcome,) = board.accept_all([(client, body)], joined=True)
    if isinstance(outcome, RepshareError):
        raise outcome
    return outcome


def longest_total(task: Task) -> int:
    """Return the bytes that a total of this task can have."""
    return wire.LONGEST_HEADER_BYTES + task.classes * (8 * (task.dimension + BESIDE) + 4) + 8 * MOST_RELAYS


def _claim(state: Transaction, identity: int, client: str, relays: list[int]) -> None:
    """Note which relays' clients will be in this client's release."""
    known = _read_known(state)
    if known.pop(client, None) == relays:
        return
    for name, each in {"this relay itself": [identity], **known}.items():
        if both := set(each) & set(relays):
            raise Refused(
                f"clients of the relay {min(both):016x} are in the release of {name} already, and would count twice: "
                "relays must be joined as a tree"
            )
    state.set({KEY: json.dumps(known | {client: relays}).encode()})


def _read_known(state: Transaction) -> Known:
    """Return the relays by client, of clients that are still there."""
    (kept,) = get_each(state, [KEY])
    known: Known = _find_known(state) if isinstance(kept, Damaged) else json.loads(kept or b"{}")
    there = state.get([index_key(client) for client in known])
    return {client: each for (client, each), index in zip(known.items(), there, strict=True) if index is not None}


def _find_known(state: Transaction) -> Known:
    """Return the same from the releases."""
    found = dict[str, list[int]]()
    for key, body in state.scan(release_key("")):
        if isinstance(body, bytes) and wire.is_total(body):
            client = key.removeprefix(release_key(""))
            means = decode_release(client, body).means
            found[client] = means.relays.tolist() if isinstance(means, Summed) else []
    return found
