"""A preview of what a party would share, before anything leaves."""

from typing import Any

import numpy as np
import torch

from repshare.client import Client
from repshare.learning.common.learner import CommonLearner
from repshare.sharing import wire
from repshare.sharing.representations import Release
from repshare.sharing.task import Task


def preview(client: Client, *, masked: bool) -> dict[str, Any]:
    """Describe what a release of this client contains, apart from the values: it is made, but not sent.

    `masked`: it enters a secure sum, so that masked numbers leave in its place.
    """
    share = client.method.share
    body = share(client.learner, 1) if share else b""
    release = wire.decode_release(body)
    if isinstance(client.learner, CommonLearner):
        return _preview_part(client.learner, release, body, masked=masked)
    network = client.learner.network
    held = torch.bincount(client.learner.samples.labels, minlength=network.classes).tolist()
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
        **(_masked(Task(network.classes, network.dimension)) if masked else {"bytes": len(body)}),
        "vectors": len(release.means.labels) + len(release.observations.labels),
        "dimension": client.learner.dimension,
        "representation": str(client.learner.made),
        "precision": client.policy.precision,
        "classes": classes,
    }


def _preview_part(learner: CommonLearner, release: Release, body: bytes, *, masked: bool) -> dict[str, Any]:
    """Describe a part of a common classifier: every row of it is an average over all samples that are shared."""
    held = torch.bincount(learner.samples.labels, minlength=learner.network.classes).tolist()
    over = int(release.means.counts.min()) if len(release.means.labels) else 0
    return {
        **(_masked(learner.common.task(len(held))) if masked else {"bytes": len(body)}),
        "vectors": len(release.means.labels),
        "dimension": learner.dimension,
        "representation": f"{learner.made}, weighted by what the common classifier still needs of each sample",
        "precision": learner.policy.common_precision,
        "classes": {
            label: {"samples": count, "mean_over": over, "observations_over": [], "single_sample": over == 1}
            for label, count in enumerate(held)
        },
        "agreement": learner.common.describe(),
        "unusual": learner.unusual(),
        "tried": learner.inspect()._asdict(),
        "held_out": len(learner.held_rows),
        "left_out": learner.left_out_classes(),
    }


def single_samples(client: Client) -> list[int]:
    """Return the classes of which an average of one sample leaves this client, if any does."""
    policy, labels = client.policy, client.learner.samples.labels.numpy()
    if policy.fewest > 1 or (isinstance(client.learner, CommonLearner) and len(client.learner.dual.labels) > 1):
        return []
    chosen = labels if policy.share_samples is None else labels[list(policy.share_samples)]
    classes, counts = (each.tolist() for each in np.unique(chosen, return_counts=True))
    allowed = classes if policy.share_classes is None else policy.share_classes
    alone = policy.n_avg == 1 and policy.m_up > 0
    return [label for label, count in zip(classes, counts, strict=True) if label in allowed and (alone or count == 1)]


def _masked(task: Task) -> dict[str, Any]:
    from repshare.secure import masked_bytes

    return {"bytes": masked_bytes(task.totals_size), "masked": task.totals_size}
