"""A client's own network next to the common classifier: paired with it, or taught by the pair.

A pair adds up what both say of a sample: log p = (1 − m) · log p_network + m · log softmax(s · scores), up to a
constant, with m and s chosen on this client's held-out samples. Distilled, the network learns the pair's answers
at mixtures of its own samples, and is then used alone, without the common space.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from repshare.errors import ConfigError
from repshare.learning.common.learner import CommonLearner
from repshare.learning.measures import Losses, Score
from repshare.learning.samples import Samples
from repshare.learning.training import Learner

SHARES = tuple(tenth / 10 for tenth in range(11))  # m
SCALES = (1.0, 3.0, 10.0, 30.0)  # s, for squared loss, whose scores are no logarithms


class Mixture(NamedTuple):
    """The weights with which a network and the common classifier are added up."""

    share: float  # m
    scale: float  # s

    def __call__(self, logits: Tensor, scores: Tensor) -> Tensor:
        """Return log-probabilities (n, C)."""
        both = (1 - self.share) * logits.log_softmax(dim=1) + self.share * (self.scale * scores).log_softmax(dim=1)
        return both.log_softmax(dim=1)


class PairedLearner(CommonLearner):
    """Dual variables in the common space, and a network that trains on all samples that are not held out."""

    no_loss = ""  # the network is

    def __init__(self, model: Any, samples: Samples, *arguments: Any, **options: Any) -> None:
        super().__init__(model, samples, *arguments, **options)
        if not len(self.held_rows):
            raise ConfigError(f"{self.name} holds no sample out, which a pair needs: raise held_out, or leave pair out")
        rest = torch.ones(len(samples), dtype=torch.bool)
        rest[self.held_rows] = False
        self.samples, self._held_samples = samples.part(rest.nonzero()[:, 0]), samples.part(self.held_rows)
        self.mixture = Mixture(1.0, 1.0)

    def _equip(self, seed: int) -> None:
        Learner._equip(self, seed)

    def snapshot(self) -> Any:
        """Return a copy of the state, to which `take_back` may return."""
        return Learner.snapshot(self)

    def take_back(self, before: Any) -> bool:
        """Undo training that left the network with numbers that are not finite, and were before."""
        return Learner.take_back(self, before)

    def train(self) -> Losses:
        """Improve the dual variables, train the network, and choose how to mix them."""
        losses = CommonLearner.train(self)
        network = Learner.train(self)
        logits = torch.cat([logits for (_, logits), _ in self._outputs(self._held_samples)])
        scores, labels = self.classifier()(self.held[0]), self.held[1]
        choices = [Mixture(share, scale) for share in SHARES for scale in SCALES]
        self.mixture = min(choices, key=lambda mixture: float(F.nll_loss(mixture(logits, scores), labels)))
        if self.policy.pair == "distil":
            self._distil()
        return losses._replace(ce=network.ce, accuracy=network.accuracy)

    def _distil(self) -> None:
        """Teach the network what the pair says of mixtures of two samples, one of each sample with another."""
        linear, common = self.classifier(), self.common
        for inputs, _ in self.samples.shuffled(self.policy.batch_size, self.batches):
            others = torch.randperm(len(inputs), generator=self.pairing)
            shares = torch.rand(len(inputs), 1, 1, 1, generator=self.pairing)
            mixed = shares * inputs + (1 - shares) * inputs[others]
            with torch.no_grad():
                self.network.model.eval()
                target = self.mixture(self._forward(mixed)[1], linear(common.space(common.prepare(mixed)))).exp()
                self.network.model.train()
            loss = -(target * self._forward(mixed)[1].log_softmax(dim=1)).sum(dim=1).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            self._descend(loss)

    def evaluate(self, samples: Samples) -> Score:
        """Count how many of these samples the pair gets right; distilled, the network alone."""
        return Learner.evaluate(self, samples)

    def scores(self, samples: Samples) -> Tensor:
        """Return the pair's log-probabilities of these samples (n, C); distilled, the network's logits."""
        logits = torch.cat([logits for (_, logits), _ in self._outputs(samples)])
        if self.policy.pair == "pair":
            logits = self.mixture(logits, self.classifier()(self.embed_once(samples)))
        return logits.cpu()

    def as_probabilities(self, scores: Tensor) -> Tensor:
        """Return probabilities (n, C) in place of scores."""
        return Learner.as_probabilities(self, scores)

    def state(self) -> dict[str, Any]:
        """Return all that another learner of the same kind needs to continue to the same bits."""
        return {**Learner.state(self), **CommonLearner.state(self), "mixture": tuple(self.mixture)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        Learner.load_state(self, state)
        CommonLearner.load_state(self, state)
        self.mixture = Mixture(*state["mixture"])
