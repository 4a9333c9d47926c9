"""Soft labels: what clients' networks say about public samples, and training towards what comes back."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from repshare.errors import ConfigError, Malformed, Refused
from repshare.fields import check_whole
from repshare.learning.measures import Losses
from repshare.learning.randomness import torch_stream
from repshare.learning.samples import Samples, shuffle
from repshare.methods.distillation import LogitLearner
from repshare.methods.gathering import Gathering, Message
from repshare.sharing import wire


@dataclass(frozen=True)
class SoftLabelOptions:
    """The options that all these methods have."""

    per_round: int = 1000
    """Number of public samples whose soft labels are exchanged in a round, drawn at random. At most all there are."""
    public_epochs: int = 1
    """Passes over these samples in a round, towards the soft labels that came back."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "per_round", "public_epochs")


class PublicLearner(LogitLearner):
    """A learner with public samples. It first trains on them, towards what came back, then on its own."""

    uses_public: ClassVar[bool] = True

    def __init__(self, *arguments: Any, seed: int, public: Samples | None = None, **given: Any) -> None:
        if public is None:
            raise ConfigError("this method learns from public samples, the same for all clients: give `public`")
        super().__init__(*arguments, seed=seed, **given)
        self.public, self._seed = public, seed

    def chosen(self, round: int) -> Tensor:
        """Return which public samples the soft labels of a round are of: the same for all clients."""
        order = torch.randperm(len(self.public), generator=torch_stream(self._seed, "public", round))
        return order[: self.options.per_round].sort().values

    def answer(self, rows: Tensor) -> Tensor:
        """Return the logits of some public samples (n, C)."""
        return LogitLearner.scores(self, self.public.part(rows))

    def taught(self) -> tuple[Tensor, Tensor] | None:
        """Return rows of public samples and their targets (n, C), if any came back."""
        kept = self.remembered
        return (self.chosen(int(kept["round"])), kept["targets"]) if "targets" in kept else None

    def towards(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Return the loss of a batch of public samples: cross-entropy with the soft labels."""
        return F.cross_entropy(logits, targets)

    def public_step(self, rows: Tensor, targets: Tensor) -> float:
        """Make one step on a batch of public samples. Return its loss."""
        _, logits = self._forward(self.public.batch(rows)[0])
        loss = self.towards(logits, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        self._descend(loss)
        return float(loss.detach())

    def digest(self) -> float | None:
        """Train on public samples towards what came back. Return the mean loss."""
        if (taught := self.taught()) is None:
            return None
        rows, targets = taught
        self.network.model.train()
        with self._own_noise():
            parts = self.passes(self.options.public_epochs, len(rows))
            return float(np.mean([self.public_step(rows[part], targets[part]) for part in parts]))

    def passes(self, epochs: int, count: int) -> list[Tensor]:
        """Return the batches of some passes over so many samples, each pass in an order of its own."""
        return [part for _ in range(epochs) for part in shuffle(count, self.policy.batch_size, self.batches)]

    def train(self) -> Losses:
        """Digest what came back, then train on the client's own samples."""
        kd = self.digest()
        return super().train()._replace(kd=kd)


def share_probabilities(learner: Any, round: int) -> bytes:
    """Return soft labels: probabilities of the classes for each public sample of this round."""
    return encode(learner.answer(learner.chosen(round)).softmax(dim=1), round)


def share_logits(learner: Any, round: int) -> bytes:
    """Return logits for each public sample of this round."""
    return encode(learner.answer(learner.chosen(round)), round)


def encode(labels: Tensor, round: int) -> bytes:
    """Encode soft labels (n, C)."""
    return wire.encode_weights({"labels": labels.float().numpy()}, round=round, samples=1)


def absorb(learner: Any, body: bytes) -> None:
    """Remember the soft labels that came back, if any did."""
    received, round, _ = wire.decode_weights(body)
    if not received:
        return
    wanted = {"labels": (len(learner.chosen(round)), learner.network.classes)}
    if {name: array.shape for name, array in received.items()} != wanted:
        raise Malformed(f"the soft labels are not {wanted['labels'][0]} rows of {wanted['labels'][1]} numbers")
    if not np.isfinite(received["labels"]).all():
        raise Malformed("a soft label is not finite")
    like = learner.network.head.weight
    learner.remembered["targets"] = torch.from_numpy(received["labels"].astype(np.float32)).to(like)
    learner.remembered["round"] = torch.tensor(round)


class SoftLabels(Gathering):
    """The soft labels of the newest round, and their mean."""

    def check(self, client: str, message: Message) -> None:
        """Refuse what is not one row of numbers for each public sample, as the others sent."""
        super().check(client, message)
        shapes = {name: array.shape for name, array in message.items()}
        like = wire.decode_weights(next(iter(self.sent.values())))[0] if self.sent else message
        rows = shapes.get("labels", ())
        if len(rows) != 2 or set(shapes) != {"labels"} or rows[1] != self.task.classes or rows != like["labels"].shape:
            raise Refused(f"{client}'s soft labels are not like the others': {shapes}")

    def combine(self, messages: Mapping[str, Message], samples: Mapping[str, int]) -> Message:
        """Return the mean over clients."""
        return {"labels": average([each["labels"] for each in messages.values()])}


def average(labels: Sequence[NDArray[Any]]) -> NDArray[np.float32]:
    """Return the mean of several clients' soft labels (n, C), added up in fp64."""
    return np.asarray(np.mean([each.astype(np.float64) for each in labels], axis=0), np.float32)
