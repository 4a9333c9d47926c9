"""A preview of what a party would share, before anything leaves."""

from typing import Any

import numpy as np
import torch

from repshare.board.totals import read_totals
from repshare.client import Client
from repshare.methods import RS
from repshare.sharing import wire
from repshare.sharing.task import Task


def preview(client: Client, *, masked: bool) -> dict[str, Any]:
    """Describe what a release of this client contains, apart from the values: it is made, but not sent.

    `masked`: it enters a secure sum, so that masked numbers leave in its place.
    """
    body = RS.share(client.learner, 1) if RS.share else b""
    release = wire.decode_release(body)
    held = torch.bincount(client.learner.samples.labels, minlength=client.learner.network.classes).tolist()
    single = single_samples(client)
    classes = {
        label: {
            "samples": held[label],
            "mean_over": int(release.means.of(label).counts.sum()),
            "observations_over": release.observations.of(label).counts.tolist(),
            "single_sample": label in single,
        }
        for label in range(len(held))
    }
    return {
        **(_masked(client) if masked else {"bytes": len(body)}),
        "vectors": len(release.means.labels) + len(release.observations.labels),
        "dimension": client.learner.dimension,
        "representation": str(client.learner.made),
        "precision": client.policy.precision,
        "classes": classes,
    }


def single_samples(client: Client) -> list[int]:
    """Return the classes of which an average of one sample leaves this client, if any does."""
    policy, labels = client.policy, client.learner.samples.labels.numpy()
    if policy.fewest > 1:
        return []
    chosen = labels if policy.share_samples is None else labels[list(policy.share_samples)]
    classes, counts = (each.tolist() for each in np.unique(chosen, return_counts=True))
    allowed = classes if policy.share_classes is None else policy.share_classes
    alone = policy.n_avg == 1 and policy.m_up > 0
    return [label for label, count in zip(classes, counts, strict=True) if label in allowed and (alone or count == 1)]


def _masked(client: Client) -> dict[str, Any]:
    from repshare.secure import masked_bytes

    network = client.learner.network
    numbers = read_totals(None, Task(network.classes, network.dimension)).numbers.size
    return {"bytes": masked_bytes(numbers), "masked": numbers}
