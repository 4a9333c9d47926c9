"""A preview of what a party would share, before anything leaves."""

from typing import Any

import torch

from repshare.client import Client
from repshare.samples import Samples
from repshare.sharing import wire


def preview(client: Client) -> dict[str, Any]:
    """Describe what a release of this client contains, apart from the values: it is made, but not sent."""
    learner, single = client.learner, client.learner.single_samples()
    body = learner.release(1) if client.method.serve is not None else b""
    release, described = wire.decode_release(body), learner.describe()
    held = torch.bincount(client.samples.labels, minlength=learner.classes).tolist()
    representation, space = str(described.representation), learner.preview()
    classes = {
        label: {
            "samples": count,
            "mean_over": int(release.means.of(label).counts.sum()),
            "observations_over": release.observations.of(label).counts.tolist(),
            "single_sample": label in single,
        }
        for label, count in enumerate(held)
    }
    if space:
        representation += ", weighted by what the classifier still needs of each sample"
    return {
        "bytes": len(body),
        "vectors": len(release.means.labels) + len(release.observations.labels),
        "dimension": learner.dimension,
        "representation": representation,
        "precision": described.precision,
        "classes": classes,
        "data": describe_data(client.samples, client.test),
        **space,
    }


def describe_data(data: Samples, test: Samples | None) -> dict[str, Any]:
    """What was found in a party's samples and test data, in JSON's types."""
    told = {"data": data, "test": test}
    return {
        name: {"rows": len(samples)} if samples.table is None else samples.table.found._asdict()
        for name, samples in told.items()
        if samples is not None
    }
