"""FEDGKT: clients train small networks, the server a larger one on their features; both learn from the other's logits.

Client: CE(y, z_k) + α KL(softmax(z_s/T), softmax(z_k/T)); server: CE(y, z_s) + β KL(softmax(z_k/T), softmax(z_s/T)),
z_k the logits of the client's head, z_s those of the server for the same features. After a round, features, logits and
labels *of every sample* go up, and the server's logits for them come back. The class of a new sample is the server's,
for the client's features. KL is multiplied by T², as in the authors' code. The server's layers are dense ones on the d'
features that enter a client's head; in the paper, later blocks of a large ResNet. Clients' networks may differ.
"""

from dataclasses import dataclass

import numpy as np
import torch

from repshare.config import Policy
from repshare.errors import ConfigError, Malformed
from repshare.fields import check_not_negative, check_positive, check_whole
from repshare.learning.training import Learner
from repshare.methods import policies
from repshare.methods.method import Method
from repshare.methods.transfer.larger import LargerServer
from repshare.methods.transfer.smaller import TransferLearner, loss
from repshare.sharing import wire


@dataclass(frozen=True)
class TransferOptions:
    """Both sides' training."""

    alpha: float = 1.0
    """α: how strongly clients learn from the server's logits."""
    beta: float = 1.0
    """β: how strongly the server learns from clients' logits."""
    temperature: float = 3.0
    """T: larger values make logits softer for the other side."""
    hidden: int = 512
    """Width of the server's two hidden layers."""
    server_epochs: int = 5
    """Passes of the server over all clients' features in a round."""
    server_rate: float = 1e-3
    """Learning rate of the server's Adam. Its state is kept between rounds."""

    def __post_init__(self) -> None:
        check_not_negative(self, "alpha", "beta")
        check_positive(self, "temperature", "server_rate")
        check_whole(self, 1, "hidden", "server_epochs")


def share(learner: Learner, round: int) -> bytes:
    """Return features, logits and label of every sample."""
    outputs = [outputs for outputs, _ in learner._outputs(learner.samples)]
    features, logits = (torch.cat(each).float().cpu().numpy() for each in zip(*outputs, strict=True))
    labels = learner.samples.labels.numpy().astype(np.int32)
    message = {"features": features, "logits": logits, "labels": labels}
    return wire.encode_weights(message, round=round, samples=len(labels))


def absorb(learner: Learner, body: bytes) -> None:
    """Remember the server's logits for this client's samples; before a test, the server's layers."""
    received = {name: torch.from_numpy(array) for name, array in wire.decode_weights(body)[0].items()}
    if not all(tensor.isfinite().all() for tensor in received.values()):
        raise Malformed("a number of the server's is not finite")
    if "logits" in received and received["logits"].shape != (len(learner.samples), learner.network.classes):
        raise Malformed(f"the server's logits are not those of {len(learner.samples)} samples")
    learner.remembered |= received


def adapt(policy: Policy) -> Policy:
    """Use no other terms than its own, and no choice of what is shared: a row of features of every sample is."""
    if policy.fewest > 1 or policy.share_classes is not None or policy.share_samples is not None:
        raise ConfigError("FEDGKT shares features of every single sample: leave minimum_count, share_… or FEDGKT out")
    return policies.own_terms("FEDGKT", policy)


FEDGKT = Method(
    "FEDGKT", "features to a larger network at the server (FedGKT)", share, LargerServer, absorb, loss,
    TransferOptions(), TransferLearner, adapt, models="part",
    source="He et al., 2020: Group knowledge transfer: federated learning of large CNNs at the edge",
)  # fmt: skip
