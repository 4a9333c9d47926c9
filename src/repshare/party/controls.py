"""A party's controls: its data and seed without any other client, trained beside it. They show what sharing is worth.

Nothing of a control leaves: it has no exchange. Its rounds follow from the seed alone, so that none are kept: after a
new start, controls train again, to the same bits.
"""

from copy import deepcopy
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import torch

from repshare.client import Client
from repshare.errors import ConfigError
from repshare.methods import IL, Method
from repshare.party.state import CONTROLS, play_round
from repshare.records import Journal
from repshare.samples import Samples
from repshare.sharing.columns import bound_inputs

ALONE, SHORT = "alone", "alone with short features"
LENGTH = 10.0  # λ_length of a network with short features, unless the policy has its own


def make_controls(client: Client) -> dict[str, Client]:
    """Make the controls of a client that has not begun yet: its method's, and a network if the party has a model."""
    samples, test = _samples_to_test(client)
    setup = client.setup  # all samples count, and no noise is needed:
    policy = replace(client.policy, epsilon=None, noise_shares=1, share_samples=None, share_classes=None)

    def make(method: Method, length: float, samples: Samples, test: Samples) -> Client:
        return Client(
            deepcopy(setup.model), samples, name=client.name, policy=replace(policy, lambda_length=length),
            method=method, test=test, seed=client.seed, head=setup.head, space=setup.space,
            classes=client.learner.classes,
        )  # fmt: skip

    controls = {ALONE: make(client.method.control or client.method, 0.0, samples, test)}
    if setup.model is not None:
        scaled = _scale(samples), _scale(test)
        controls[SHORT] = make(IL, policy.lambda_length or LENGTH, *scaled)
    return controls


def _scale(samples: Samples) -> Samples:
    """A table with named columns as a network takes it, each from −1 to 1; other samples as they are."""
    if samples.table is None:
        return samples
    low, high = map(torch.tensor, bound_inputs(samples.table.columns))
    inputs, labels = samples.batch(torch.arange(len(samples)))
    scaled = Samples((2 * (inputs - low) / (high - low) - 1, labels))
    scaled.table = samples.table
    return scaled


def _samples_to_test(client: Client) -> tuple[Samples, Samples]:
    """Samples to train on and to test on: the client's test data, or its held-out samples."""
    if client.test is not None:
        return client.samples, client.test
    held = client.learner.held_rows
    if not len(held):
        raise ConfigError("--compare needs samples to test on: give the party test data, Party(…, test=…)")
    rest = np.setdiff1d(np.arange(len(client.samples)), held)
    return client.samples.part(torch.from_numpy(rest)), client.samples.part(torch.from_numpy(held))


class Controls:
    """A client's controls, and the file in its state folder with their rounds."""

    def __init__(self, folder: Path, client: Client) -> None:
        """`client` has not begun yet: its model has the starting weights."""
        self.client, self.clients = client, make_controls(client)
        self.tested_on = "test data" if client.test is not None else "own held-out samples"
        self._records = Journal(folder / CONTROLS, private=True)
        self._records.keep_only([])

    def catch_up(self) -> None:
        """Let every control do as many rounds as the client has done, or as are enough."""
        for title, control in self.clients.items():
            rounds = min(self.client.round_number, control.learner.enough or self.client.round_number)
            while control.round_number < rounds:
                self._records.add([{"control": title, **asdict(play_round(control))}])

    def compare(self) -> dict[str, float | None]:
        """The accuracies: together, and of every control."""
        if self.client.test is not None:
            together: float | None = self.client.evaluate()
        else:
            together, _ = self.client.learner.compare_held_out()
        return {"together": together, **{title: control.evaluate() for title, control in self.clients.items()}}
