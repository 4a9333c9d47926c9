"""The demo's parties without each other: what the table compares with. `alone RECORDS ROUNDS PACE SHARES`."""

import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path

import torch

from repshare.cli.demo.party import Share, make_party
from repshare.client import Client
from repshare.config import Policy
from repshare.learning.randomness import derive
from repshare.results.records import Journal


def learn_alone(journal: Journal, rounds: int, pace: float, shares: dict[str, Share]) -> None:
    """Train each of them with the weights and batches that it has in company, but nobody to learn from."""
    clients = [_make_client(name, share) for name, share in shares.items()]
    for _ in range(rounds):
        began = time.monotonic()
        for client in clients:
            journal.add([asdict(client.round())])
        time.sleep(max(pace - (time.monotonic() - began), 0))


def _make_client(name: str, share: Share) -> Client:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(share.seed, name, "model"))  # as `repshare join` does
        party = make_party(share)
    alone = replace(party.policy or Policy(), lambda_kd=0.0, lambda_disc=0.0)
    return Client(party.model, party.data, name=name, policy=alone, test=party.test, seed=share.seed)


if __name__ == "__main__":
    torch.set_num_threads(1)
    records, rounds, pace, shares = sys.argv[1:]
    parties = {name: Share(**share) for name, share in json.loads(shares).items()}
    learn_alone(Journal(Path(records)), int(rounds), float(pace), parties)
