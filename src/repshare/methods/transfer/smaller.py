"""The clients of such a server: each learns from the server's logits for its samples, and is tested with its layers."""

from typing import Any

import torch
from torch import Tensor

from repshare.learning.measures import Averages, Losses
from repshare.learning.samples import Samples, shuffle
from repshare.learning.training import Batch, Learner
from repshare.methods.transfer.larger import make_layers, softened


class TransferLearner(Learner):
    """A learner with the server's logits for its samples, and for tests with the server's layers."""

    _rows: Tensor | None = None  # of the current batch

    def train(self) -> Losses:
        """Train as all do, knowing which samples are in a batch."""
        averages = Averages()
        self.network.model.train()
        with self._own_noise():
            for _ in range(self.policy.epochs):
                for rows in shuffle(len(self.samples), self.policy.batch_size, self.batches):
                    self._rows = rows
                    inputs, labels = self.samples.batch(rows)
                    averages.add(*self._step(inputs, labels), labels)
        return averages.result()

    def scores(self, samples: Samples) -> Tensor:
        """Return the server's logits for these samples' features (n, C); the client's own before it has any."""
        layers = {name.removeprefix("server "): x for name, x in self.remembered.items() if name.startswith("server ")}
        if not layers:
            return super().scores(samples)
        model = make_layers(self.dimension, self.network.classes, len(layers["0.bias"]), 0)
        model.load_state_dict(layers)
        features = torch.cat([features for (features, _), _ in self._outputs(samples)]).cpu()
        with torch.inference_mode():
            return model(features)  # type: ignore[no-any-return]


def loss(learner: Any, batch: Batch) -> Tensor:
    """Return α KL with the server's logits, once there are any."""
    if "logits" not in learner.remembered:
        return batch.logits.new_zeros(())
    taught = learner.remembered["logits"][learner._rows].to(batch.logits)
    return float(learner.options.alpha) * softened(batch.logits, taught, learner.options.temperature)
