"""A client that chooses the class of the nearest prototype."""

import torch
from torch import Tensor

from repshare.learning.samples import Samples
from repshare.learning.training import Learner


class PrototypeLearner(Learner):
    """A learner that chooses the class of the nearest prototype, once it has any."""

    def scores(self, samples: Samples) -> Tensor:
        """Return minus the squared distance to each prototype (n, C)."""
        if not self.remembered or self.options.decide == "head":
            return super().scores(samples)
        prototypes, known = self.remembered["prototypes"], self.remembered["known"]
        distances = [torch.cdist(features, prototypes).square() for (features, _), _ in self._outputs(samples)]
        return -torch.cat(distances).masked_fill(~known, torch.inf).cpu()
