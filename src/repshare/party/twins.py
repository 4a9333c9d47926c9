"""A party's twins: its model, data and batches, without any other client. They show what sharing is worth to it.

Nothing of a twin leaves: it has no exchange. Its rounds follow from the seed alone, so that twins that were left
behind, by a kill or because they were asked for late, catch up to the same bits.
"""

from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repshare.client import Client
from repshare.config import Policy
from repshare.errors import CheckpointError, ConfigError
from repshare.methods import CA, IL
from repshare.party.state import TWIN, TWINS, load, play_round, save
from repshare.records import Journal
from repshare.samples import Samples

ALONE, SHORT, NETWORK, SPACE = "alone", "alone with short features", "network alone", "space alone"
LENGTH = 10.0  # λ_length of a twin with short features, unless the policy has its own


def without_others(policy: Policy) -> Policy:
    """Return the policy of a client that shares nothing: all its samples count, and no noise is needed."""
    return replace(policy, epsilon=None, noise_shares=1, share_samples=None, share_classes=None)


def make_twins(client: Client) -> dict[str, Client]:
    """Make the twins of a client that has not begun yet. In a space: the space alone, and a network that was given."""
    samples, test = _samples_to_test(client)
    policy, own, network = without_others(client.policy), client.learner.space, client.learner.network
    given: dict[str, Any] = {"name": client.name, "test": test, "seed": client.seed}
    if own is not None:
        space = Client(None, samples, policy=policy, method=CA, space=own.agreement, classes=own.classes, **given)
        if client.given_model is None:
            return {SPACE: space}
        return {NETWORK: Client(deepcopy(client.given_model), samples, policy=policy, method=IL, **given), SPACE: space}
    given["head"] = None if network is None else network.head_name
    lengths = {ALONE: 0.0, SHORT: policy.lambda_length or LENGTH}
    return {
        title: Client(deepcopy(client.model), samples, policy=replace(policy, lambda_length=length), method=IL, **given)
        for title, length in lengths.items()
    }


def _samples_to_test(client: Client) -> tuple[Samples, Samples]:
    """What twins train on, and what they are tested on: the client's test data, or its held-out samples."""
    if client.test is not None:
        return client.samples, client.test
    held = client.learner.held_rows
    if not len(held):
        raise ConfigError("--compare needs samples to test on: give the party test data, Party(…, test=…)")
    rest = np.setdiff1d(np.arange(len(client.samples)), held)
    return client.samples.part(torch.from_numpy(rest)), client.samples.part(torch.from_numpy(held))


class Twins:
    """A client's twins, and the files in its state folder from which they are resumed."""

    def __init__(self, folder: Path, client: Client) -> None:
        """`client` has not begun yet: its model has the starting weights."""
        self.client, self.clients = client, make_twins(client)
        self.tested_on = "test data" if client.test is not None else "own held-out samples"
        self._folder, self._records = folder, Journal(folder / TWINS, private=True)

    def restore(self) -> None:
        """Restore the twins as they were. Nothing remains of a round that was not kept whole."""
        for title, twin in self.clients.items():
            path = self._path(title)
            if path.exists():
                load(twin, path)
            if twin.round_number > self.client.round_number:
                reached = f"round {twin.round_number}, the client only {self.client.round_number}"
                raise CheckpointError(f"{path} has reached {reached}: remove it, and that twin learns again")
        try:
            known = [line for line in self._records.read() if line["round"] <= self.clients[line["twin"]].round_number]
        except (TypeError, KeyError) as error:
            raise CheckpointError(f"{self._records.path} is damaged: one of its lines is not a record") from error
        self._records.keep_only(known)

    def catch_up(self, *, eval_every: int, last: int | None) -> None:
        """Let every twin do as many rounds as the client has done; each is kept."""
        for title, twin in self.clients.items():
            most = twin.learner.enough
            rounds = self.client.round_number if most is None else min(most, self.client.round_number)
            while twin.round_number < rounds:
                number = twin.round_number + 1
                is_due = number % eval_every == 0 or number in (last, most)
                record = play_round(twin, test=is_due)
                self._records.add([{"twin": title, **asdict(record)}])
                save(twin, self._path(title))

    def compare(self) -> dict[str, float | None]:
        """Return the accuracies: together, and of every twin."""
        if self.client.test is not None:
            together: float | None = self.client.evaluate()
        else:
            together, _ = self.client.learner.compare_held_out()
        return {"together": together, **{title: twin.evaluate() for title, twin in self.clients.items()}}

    def _path(self, title: str) -> Path:
        return self._folder / f"{title.replace(' ', '-')}{TWIN}"
