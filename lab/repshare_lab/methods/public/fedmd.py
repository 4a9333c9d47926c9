"""FEDMD: clients agree on class scores of public samples, digest them, and revisit their own samples.

f̃(x) = 1/m · Σ_k f_k(x) for each public x of a round; then each client trains to bring f_k(x) close to f̃(x) (mean
absolute error of the logits, as in the authors' code) and, last, on its own samples. Models may differ.

The paper begins with training on the public labels. That is left out: no public label is used.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from repshare.board import Wants
from repshare.errors import ConfigError, Malformed, Refused
from repshare.fields import check_whole
from repshare.measures import Losses
from repshare.methods.method import Method
from repshare.network.models import Network
from repshare.randomness import torch_stream
from repshare.samples import Samples, shuffle
from repshare.sharing import wire
from repshare.sharing.task import Task
from repshare_lab.methods.distillation import LogitLearner
from repshare_lab.methods.policies import own_terms


@dataclass(frozen=True)
class ConsensusOptions:
    """How much of the public samples a round takes."""

    per_round: int = 1000
    """Number of public samples whose soft labels are exchanged in a round, drawn at random. At most all there are."""
    public_epochs: int = 1
    """Passes over these samples in a round, towards the soft labels that came back."""

    def __post_init__(self) -> None:
        check_whole(self, 1, "per_round", "public_epochs")


class ConsensusLearner(LogitLearner):
    """A learner with public samples. It first trains on them, towards what came back, then on its own."""

    def __init__(self, *arguments: Any, seed: int, public: Samples | None = None, **given: Any) -> None:
        if public is None:
            raise ConfigError("this method learns from public samples, the same for all clients: give `public`")
        super().__init__(*arguments, seed=seed, public=public, **given)
        self.public_samples, self._seed = public, seed

    def chosen(self, round: int) -> Tensor:
        """Return which public samples the soft labels of a round are of: the same for all clients."""
        order = torch.randperm(len(self.public_samples), generator=torch_stream(self._seed, "public", round))
        return order[: self.options.per_round].sort().values

    def run_epochs(self) -> Losses:
        """Digest what came back, then train on the client's own samples."""
        kd = self._digest() if "targets" in self.remembered else None
        return super().run_epochs()._replace(kd=kd)

    def _digest(self) -> float:
        """Train on public samples towards what came back. Return the mean loss."""
        rows, targets = self.chosen(int(self.remembered["round"])), self.remembered["targets"]
        self.network.model.train()
        with self._own_noise():
            passes = [
                shuffle(len(rows), self.policy.batch_size, self.batches) for _ in range(self.options.public_epochs)
            ]
            return float(np.mean([self._step_towards(rows[part], targets[part]) for parts in passes for part in parts]))

    def _step_towards(self, rows: Tensor, targets: Tensor) -> float:
        """Make one step on a batch of public samples. Return its loss."""
        _, logits = self._forward(self.public_samples.batch(rows)[0])
        loss = F.l1_loss(logits, targets)
        loss.backward()  # type: ignore[no-untyped-call]
        self._descend(loss)
        return float(loss.detach())

    def release(self, round: int) -> bytes:
        """Logits for each public sample of this round."""
        logits = self.scores(self.public_samples.part(self.chosen(round)))
        return wire.encode_weights({"labels": logits}, round=round, samples=1)

    def absorb(self, body: bytes) -> None:
        """Remember the soft labels that came back, if any did."""
        received, round, _ = wire.decode_weights(body)
        if not received:
            return
        wanted = {"labels": (len(self.chosen(round)), self.classes)}
        if {name: array.shape for name, array in received.items()} != wanted:
            raise Malformed(f"the soft labels are not {wanted['labels'][0]} rows of {wanted['labels'][1]} numbers")
        if not np.isfinite(received["labels"]).all():
            raise Malformed("a soft label is not finite")
        like = self.network.head.weight
        self.remembered["targets"] = torch.from_numpy(received["labels"].astype(np.float32)).to(like)
        self.remembered["round"] = torch.tensor(round)


class Consensus:
    """The soft labels of the newest round by client, and their mean. What a straggler sends late counts for nothing."""

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        self.classes, self.round, self.sent = task.classes, 0, dict[str, bytes]()
        self._body: bytes | None = None

    def accept(self, client: str, body: bytes) -> None:
        """Keep a client's soft labels. The first of a newer round ends the one before."""
        arrays, round, _ = wire.decode_weights(body)
        shapes = {name: array.shape for name, array in arrays.items()}
        rows = shapes.get("labels", ())
        like = _labels(next(iter(self.sent.values()))).shape if self.sent else rows
        if len(rows) != 2 or set(shapes) != {"labels"} or rows[1] != self.classes or rows != like:
            raise Refused(f"{client}'s soft labels are not like the others': {shapes}")
        if not np.isfinite(arrays["labels"]).all():
            raise Refused(f"{client} sent numbers that are not finite")
        if round >= self.round:
            self.sent = {**(self.sent if round == self.round else {}), client: body}
            self.round, self._body = round, None

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return the mean of the newest round's, in fp32; no soft labels before there are any."""
        if self._body is None:
            read = [_labels(body).astype(np.float64) for _, body in sorted(self.sent.items())]
            mean = {"labels": np.asarray(np.mean(read, axis=0), np.float32)} if read else {}
            self._body = wire.encode_weights(mean, round=self.round, samples=len(read))
        return self._body

    def save(self) -> bytes:
        """Return all that is needed to continue to the same bits."""
        return wire.encode_items(self.sent)

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""
        self.sent, self._body = wire.decode_items(saved), None
        self.round = max((wire.decode_weights(body)[1] for body in self.sent.values()), default=0)


def _labels(body: bytes) -> Any:
    return wire.decode_weights(body)[0]["labels"]


FEDMD = Method(
    "FEDMD", "consensus on class scores of public samples (FedMD)", ConsensusLearner.open, Consensus,
    ConsensusOptions(), partial(own_terms, "FEDMD"), uses_public=True,
    source="Li and Wang, 2019: FedMD: heterogenous federated learning via model distillation",
)  # fmt: skip
