"""The objective that a client minimises: one function for each equation of the paper.

    L = L_CE + λ_KD · L_KD + λ_disc · L_disc

and λ_length · L_length, which the paper lacks. All work in log space where a probability could round to 0 or 1, so
logits of ±100 are as good as any.
"""

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from repshare.network.targets import Targets


class Terms(NamedTuple):
    """A batch's loss, term by term, before the λs. A term is None where there was nothing to learn from."""

    ce: Tensor
    kd: Tensor | None = None
    disc: Tensor | None = None
    bound: Tensor | None = None  # log K − L_disc, in nats
    length: Tensor | None = None


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """ℓ_CE(z, c) = −log softmax(z)_c, averaged over the batch."""
    return F.cross_entropy(logits, labels)


def distillation(features: Tensor, labels: Tensor, targets: Targets) -> Tensor | None:
    """ℓ_KD(x′, t̄) = ‖x′ − t̄‖², averaged over the batch and over the features.

    Samples of a class that no client has shared yet do not count; None when that leaves no sample.
    """
    taught = targets.has_mean[labels]  # (n,)
    if not taught.any():
        return None
    return length(features[taught] - targets.means[labels[taught]])


def length(vectors: Tensor) -> Tensor:
    """ℓ_length(x′) = ‖x′‖², averaged over the batch and over the features."""
    return vectors.square().mean()


def log_same_class(student: Tensor, teacher: Tensor) -> tuple[Tensor, Tensor]:
    """log ĥ and log(1 − ĥ) for ĥ(s, t) = ⟨softmax(s), softmax(t)⟩, from logits that broadcast to (…, C).

    With p = softmax(s) and q = softmax(t): 1 − ĥ = Σ_i p_i (1 − q_i), a sum of positive terms.
    """
    log_p = F.log_softmax(student, dim=-1)
    log_q = F.log_softmax(teacher, dim=-1)
    return (log_p + log_q).logsumexp(dim=-1), (log_p + log_one_minus(log_q)).logsumexp(dim=-1)


def log_one_minus(log_q: Tensor) -> Tensor:
    """log(1 − q_i) of a distribution (…, C), exact also where q_i rounds to 1.

    Only the largest q_i can be near 1; for that one, 1 − q_i is the sum of all the others.
    """
    top = log_q.argmax(dim=-1, keepdim=True)
    others = log_q.scatter(-1, top, -math.inf).logsumexp(dim=-1, keepdim=True)  # (…, 1)
    small = log_q.scatter(-1, top, -1.0)  # any safe number: replaced by the next line
    return torch.log1p(-small.exp()).scatter(-1, top, others)


class Contrast(NamedTuple):
    """The discriminator's binary cross-entropy for each sample and class."""

    losses: Tensor  # (n, C)  −log ĥ for a sample's own class, −log(1 − ĥ) for the others
    has_observation: Tensor  # (C,)


def contrast(student: Tensor, teacher: Tensor, labels: Tensor, has_observation: Tensor) -> Contrast:
    """ℓ_disc of a sample with one observation of each class, by the classifier.

    student (n, C) are a batch's logits τ(s); teacher (n, C, C) or (1, C, C) the logits τ(t) of the observations,
    by the class they are of.
    """
    log_same, log_other = log_same_class(student[:, None, :], teacher)  # (n, C) each
    own = F.one_hot(labels, log_same.shape[-1]).bool()  # (n, C)
    return Contrast(-torch.where(own, log_same, log_other), has_observation)


def discrimination(pairs: Contrast) -> Tensor | None:
    """L_disc: averaged over the batch and over the classes that have an observation."""
    if not pairs.has_observation.any():
        return None
    return pairs.losses[:, pairs.has_observation].mean()  # of (n, C')


def information_bound(pairs: Contrast, labels: Tensor) -> Tensor | None:
    """log K − L_disc ≤ I(Φ_s, Φ_t), in nats; K is the number of other classes observed.

    Only samples whose own class was observed form a pair from the joint distribution, so only they count. Negatives are
    of every other class alike: where a class is the share p > 1/K of the samples, it may be log(K p) too high.
    """
    negatives = int(pairs.has_observation.sum()) - 1
    paired = pairs.has_observation[labels]  # (n,)
    if negatives < 1 or not paired.any():
        return None
    per_sample = pairs.losses[paired][:, pairs.has_observation].sum(dim=1)  # (n',)
    return math.log(negatives) - per_sample.mean()
