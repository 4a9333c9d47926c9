"""Algorithm 2 with DP-SGD (Abadi et al. 2016, by Opacus), so that the model, too, is differentially private.

Every sample's gradient is clipped, noise is added to their sum, and each step is on a Poisson sample: each sample is
in it with the same probability, independent of the others. A sample's loss depends on the teacher, the model and the
sample alone: no term divides by the size of the batch, and no layer normalises over it.
"""

import logging
import secrets
import warnings
from collections import defaultdict
from functools import cached_property, lru_cache
from typing import Any

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from opacus.validators import ModuleValidator
from torch import Tensor, nn
from torch.nn import functional as F

from repshare.errors import CheckpointError, ConfigError, ModelError
from repshare.learning import objective
from repshare.learning.measures import Averages, Losses
from repshare.learning.objective import Terms
from repshare.learning.randomness import derive, secret_stream, torch_stream
from repshare.learning.samples import change_tensors
from repshare.learning.training import Learner
from repshare.privacy.end_to_end import EndToEndGuard


class PrivateLearner(Learner):
    """A learner whose weights are differentially private, if its starting weights do not depend on the data."""

    no_loss = "with end_to_end, it is not known that this loss depends on each sample alone"

    def __init__(self, model: nn.Module, *arguments: Any, **options: Any) -> None:
        super().__init__(make_private(model), *arguments, **options)
        for parameter in self.network.model.parameters():
            parameter.data = parameter.data.contiguous()  # as Opacus lays gradients out
        policy, seed, device = self.policy, options["seed"], self.samples.device
        self.seeded = policy.seeded_noise
        # The samples of a step are drawn on the CPU, its noise where the weights are.
        self.secret = torch_stream(seed, self.name, "dp-sgd") if self.seeded else secret_stream()
        self.noising = self.secret
        if device.type != "cpu":
            noise_seed = derive(seed, self.name, "dp-sgd noise") if self.seeded else secrets.randbits(64)
            self.noising = torch.Generator(device).manual_seed(noise_seed)
        self.rate = min(1.0, policy.batch_size / len(self.samples))
        self.epoch_steps = -(-len(self.samples) // policy.batch_size)
        self._observed: GradSampleModule | None = GradSampleModule(self.network.model, loss_reduction="sum")

    def train(self) -> Losses:
        """Train local epochs of DP-SGD: as many steps as there would be batches.

        When the budget is spent, there is no noise any more, if nothing can leave; no training, if the model can.
        """
        guard = self._guard()
        if guard.close():
            if guard.sends_model:
                return self._measure()
            self._forget()
            guard.count(1.0, 0.0)  # so that, whatever becomes of the ledger, this model never leaves
            return super().train()
        descent, averages, model = self._private, Averages(), self.network.model
        buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
        model.train()
        with self._own_noise():
            for _ in range(self.policy.epochs * self.epoch_steps):
                guard.count(self.rate, descent.noise_multiplier)
                drawn = (torch.rand(len(self.samples), generator=self.secret) < self.rate).nonzero().squeeze(1)
                descent.zero_grad()
                if len(drawn):
                    inputs, labels = self.samples.batch(drawn)
                    averages.add(*self._backward_each(inputs, labels), labels)
                    self.left_out["samples' gradients"] += _leave_out_overflows(descent.params)
                else:  # noise is added all the same: others must not notice that no sample was drawn
                    for parameter in descent.params:
                        parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
                descent.step()
        descent.zero_grad()
        if changed := [name for name, buffer in model.named_buffers() if not torch.equal(buffer, buffers[name])]:
            raise ModelError(
                f"{type(model).__name__} changes its buffer {changed[0]} in training: no noise covers that"
            )
        return averages.result()

    def state(self) -> dict[str, Any]:
        """Return all that another learner of the same kind needs to continue; to the same bits, if noise is seeded."""
        streams = {"secret": self.secret.get_state(), "noising": self.noising.get_state()} if self.seeded else {}
        return {**super().state(), "noisy": self._observed is not None, **streams}

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state. Noise that cannot be predicted is not drawn again."""
        if "noisy" not in state:
            raise CheckpointError(
                f"{self.name} was trained without DP-SGD, or by a version that did not count its steps, so that no ε "
                "covers its model: begin again (--restart)"
            )
        super().load_state(state)
        if not state["noisy"]:
            self._stop_observing()
        if self.seeded:
            self.secret.set_state(state["secret"])
            self.noising.set_state(state["noising"])

    def _guard(self) -> EndToEndGuard:
        if not isinstance(self.guard, EndToEndGuard):
            raise ConfigError("DP-SGD needs a guard that knows how much noise the budget takes")
        return self.guard

    def _measure(self) -> Losses:
        """Return the losses on the client's samples as the model is."""
        averages = Averages()
        for (features, logits), labels in self._outputs(self.samples):
            averages.add(self.terms(features, logits, labels), logits, labels)
        return averages.result()

    def _forget(self) -> None:
        """Forget what only noise needs. Called once, when noise ends."""
        if self._observed is not None:
            self._stop_observing()
            self.optimizer.state = defaultdict(dict)  # Adam's averages are of noise: its steps would stay tiny for long

    def _stop_observing(self) -> None:
        """Stop computing single samples' gradients; weights lie in memory as they do in other learners."""
        if self._observed is not None:
            self._observed.remove_hooks()
            self._observed = None
        for parameter in self.network.model.parameters():
            if parameter.ndim == 4:
                parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)

    @cached_property
    def _private(self) -> DPOptimizer:
        """The optimizer, with the noise that the guard has planned for."""
        return DPOptimizer(
            self.optimizer,
            noise_multiplier=self._guard().steps.noise,
            max_grad_norm=self.policy.grad_clip,
            expected_batch_size=self.policy.batch_size,
            generator=self.noising,
        )

    def _backward_each(self, inputs: Any, labels: Tensor) -> tuple[Terms, Tensor]:
        """Leave each sample's own gradient where Opacus finds it; return the means of the terms, for the record."""
        layer, head = self.network.layer, self.network.head
        layer.training = False  # Opacus cannot see what becomes of an output that another hook has kept,
        # Where channels are last, Opacus gives wrong gradients without an error.
        channels_first = change_tensors(inputs, lambda each: each.clone(memory_format=torch.contiguous_format))
        features, _ = self.network(channels_first)
        layer.training = True  # so that the head is asked once more
        logits = head(features)
        terms = self._terms_of_each(features, logits, labels)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Full backward hook")  # that images have no gradient is as it should be
            self._weigh(terms).sum().backward()  # type: ignore[no-untyped-call]
        means = [None if term is None else term.mean() for term in terms]
        return Terms(*means), logits  # type: ignore[arg-type]

    def _terms_of_each(self, features: Tensor, logits: Tensor, labels: Tensor) -> Terms:
        """Return the loss of each sample (n,), term by term, from the sample and the lesson alone."""
        ce = F.cross_entropy(logits, labels, reduction="none")
        fold = Tensor.sum if self.policy.summed else Tensor.mean
        length = fold(features.square(), dim=1) if self.policy.lambda_length else None
        if self.lesson is None:
            return Terms(ce, length=length)
        lesson, kd = self.lesson, None
        if lesson.has_mean.any():
            distances = (self.represented(features, logits) - lesson.means[labels]).square()  # (n, d)
            kd = fold(distances, dim=1) * lesson.has_mean[labels]
        if not len(lesson.observations) or not lesson.has_observation.any():
            return Terms(ce, kd, length=length)
        with torch.set_grad_enabled(self.policy.lambda_disc > 0):
            shown = self._pair(lesson.observations, len(labels)).expand(len(labels), -1, -1)  # (n, C, d)
            pairs = objective.contrast(logits, self.network.head(shown), labels, lesson.has_observation)
            disc = fold(pairs.losses[:, lesson.has_observation], dim=1)  # over (n, C')
        return Terms(ce, kd, disc, objective.information_bound(pairs, labels), length)


def make_private(model: nn.Module) -> nn.Module:
    """Return the model without what mixes samples: batch normalisation becomes group normalisation, in a copy."""
    mixing = [type(layer).__name__ for layer in model.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    if ModuleValidator.validate(model, strict=False):
        model = ModuleValidator.fix(model)
    if mixing:
        _note(
            f"{type(model).__name__}: {len(mixing)} batch normalisations are now group normalisations, since batch "
            "statistics would mix the samples' gradients"
        )
    for layer in model.modules():
        if getattr(layer, "inplace", False):
            layer.inplace = False  # type: ignore[assignment]  # gradients are looked at in between
    if problems := ModuleValidator.validate(model, strict=False):
        raise ModelError(f"{type(model).__name__} cannot be trained with DP-SGD: {problems[0]}")
    return model


def _leave_out_overflows(parameters: list[nn.Parameter]) -> int:
    """Set gradients of infinite length, which no factor shortens to a bound, to zero. Return their number."""
    own: list[Tensor] = [parameter.grad_sample for parameter in parameters]  # type: ignore[attr-defined]  # (n, …)
    lengths = torch.stack([torch.linalg.vector_norm(gradients.reshape(len(gradients), -1), dim=1) for gradients in own])
    broken = ~lengths.square().sum(0).isfinite()
    for gradients in own:
        gradients.masked_fill_(broken.view(-1, *[1] * (gradients.ndim - 1)), 0.0)
    return int(broken.sum())


@lru_cache
def _note(text: str) -> None:
    """Log it once."""
    logging.getLogger("repshare").warning(text)
