"""Algorithm 2, one client's local update. Read this first."""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from repshare.config import Policy
from repshare.errors import ConfigError, DataError, ModelError
from repshare.learning import features, objective
from repshare.learning.measures import Averages, Losses, Score, View, count_hits
from repshare.learning.models import Network, split
from repshare.learning.objective import Lesson, Terms
from repshare.learning.optimizers import OPTIMIZERS
from repshare.learning.precision import choose_compute, is_large
from repshare.learning.randomness import numpy_stream, torch_stream
from repshare.learning.samples import EVALUATION_BATCH, LARGE_EVALUATION_BATCH, Samples
from repshare.learning.states import copy_state, find_broken, seems_finite
from repshare.sharing.representations import Floats, Integers, Protection


class Batch(NamedTuple):
    """A batch of training as a method's own loss sees it."""

    inputs: Any
    labels: Tensor  # (n,)
    features: Tensor  # (n, d')
    logits: Tensor  # (n, C)


Loss = Callable[["Learner", Batch], Tensor]  # one number, added to the batch's loss


class Learner:
    """One client's network, optimizer, data and random streams: all that local training needs."""

    no_loss: ClassVar[str] = ""  # why a method cannot add a term to the loss, if it cannot

    def __init__(
        self,
        model: nn.Module | Network,
        samples: Samples,
        policy: Policy,
        *,
        name: str,
        seed: int,
        head: str | None = None,
        loss: Loss | None = None,
        options: Any = None,
    ) -> None:
        """`loss` and `options` are a method's: a term that it adds to the loss, and its own dataclass of options.

        A network that was split already is taken as it is.
        """
        self.network = model if isinstance(model, Network) else _open(model, samples, head)
        self.made = self._examine(samples)  # what stands for a sample, and so what is averaged
        samples.check_labels(self.network.classes)
        _check_policy(policy, len(samples), self.network.classes)
        self.samples, self.policy, self.name, self.loss, self.options = samples, policy, name, loss, options
        large, place = is_large(self.network.model), samples.device.type
        self.compute = choose_compute(policy, place, large=large)
        self.evaluation_batch = LARGE_EVALUATION_BATCH if large and place == "cpu" else EVALUATION_BATCH  # samples
        self.remembered: dict[str, Tensor] = {}  # what a method keeps from round to round
        self.guard: Protection | None = None  # what makes releases instead, if anything
        self.lesson: Lesson | None = None
        self.norm_bound = math.inf  # what others agreed no vector is longer than
        self.steps = 0  # of the last training
        self.left_out = Counter[str]()  # what was not finite in this round's training, and changed nothing
        self.preparation = 0.0  # seconds of work before the first round that are its own
        self._equip(seed)

    def _examine(self, samples: Samples) -> features.Made:
        """Describe what stands for a sample."""
        return features.examine(self.network, _example(samples))

    def _equip(self, seed: int) -> None:
        """Get ready for training: an optimizer, and random streams."""
        self.trained = [*self.network.model.parameters()]
        self.optimizer = OPTIMIZERS[self.policy.optimizer](self.trained, lr=self.policy.learning_rate, fused=True)
        self.batches = torch_stream(seed, self.name, "batches")
        self.pairing = torch_stream(seed, self.name, "pairing")
        self.averaging = numpy_stream(seed, self.name, "averaging")
        self.noise = torch_stream(seed, self.name, "noise")

    @property
    def dimension(self) -> int:
        """The length of what this client represents a sample by."""
        return self.width(self.network)

    @staticmethod
    def width(network: Network) -> int:
        """Return the same for clients with this network."""
        return network.dimension

    def train(self) -> Losses:
        """Train local epochs of gradient descent on L = L_CE + λ_KD · L_KD + λ_disc · L_disc + λ_length · L_length.

        A method may add a term of its own.
        """
        averages = Averages()
        self.steps = 0
        self.network.model.train()
        self.optimizer.zero_grad()  # the model's maker may have left some
        with self._own_noise():
            for _ in range(self.policy.epochs):
                for inputs, labels in self.samples.shuffled(self.policy.batch_size, self.batches):
                    averages.add(*self._step(inputs, labels), labels)
        return averages.result()

    def _step(self, inputs: Any, labels: Tensor) -> tuple[Terms, Tensor]:
        """Make one step. Return the terms and the logits of the batch."""
        try:
            features, logits = self._forward(inputs)
        except ValueError as error:  # batch normalisation says so of a single value
            raise DataError(f"{self.name} cannot train on a batch of {len(labels)}: {error}") from error
        terms, loss, logits = self._backward(Batch(inputs, labels, features, logits))
        self._descend(loss)
        return terms, logits

    def _backward(self, batch: Batch) -> tuple[Terms, Tensor, Tensor]:
        """Leave the gradients of a batch with the weights; its terms, its loss and its logits."""
        terms = self.terms(batch.features, batch.logits, batch.labels)
        loss = self._weigh(terms)
        if self.loss is not None:
            own = self.loss(self, batch)
            if not isinstance(own, Tensor) or own.numel() != 1:
                raise ConfigError(f"a method's own loss must be one number, not {getattr(own, 'shape', own)!r}")
            loss = loss + own.squeeze()
        loss.backward()  # type: ignore[no-untyped-call]
        return terms, loss, batch.logits

    def _descend(self, loss: Tensor) -> None:
        """Make one step, unless the loss or a gradient is not finite, and drop the gradients.

        A gradient whose length overflows counts as not finite: Adam would remember its square for good.
        """
        gradients = [parameter.grad for parameter in self.trained if parameter.grad is not None]
        finite = bool((loss.detach() + get_total_norm(gradients).float().square()).isfinite())
        self.steps += finite
        self.left_out["steps"] += not finite
        if finite:
            self.optimizer.step()
        self.optimizer.zero_grad()

    def _weigh(self, terms: Terms) -> Tensor:
        policy, loss = self.policy, terms.ce
        for weight, term in (
            (policy.lambda_kd, terms.kd),
            (policy.lambda_disc, terms.disc),
            (policy.lambda_length, terms.length),
        ):
            if term is not None and weight:
                loss = loss + weight * term
        return loss

    @contextmanager
    def _own_noise(self) -> Iterator[None]:
        """Let PyTorch's own generators, of dropout say, draw from this client's stream."""
        device, seed = self.samples.device, int(torch.randint(2**62, (), generator=self.noise))
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            torch.default_generator.manual_seed(seed)
            if device.type == "cuda":
                with torch.cuda.device(device):  # it seeds the current GPU, which may be another
                    torch.cuda.manual_seed(seed)
            yield

    def terms(self, features: Tensor, logits: Tensor, labels: Tensor) -> Terms:
        """Return the loss of a batch, term by term; without a teacher, only the terms that need none."""
        ce, summed = objective.cross_entropy(logits, labels), self.policy.summed
        length = objective.length(features, summed=summed) if self.policy.lambda_length else None
        if self.lesson is None:
            return Terms(ce, length=length)
        lesson = self.lesson
        kd = objective.distillation(self.represented(features, logits), labels, lesson, summed=summed)
        if not len(lesson.observations):
            return Terms(ce, kd, length=length)
        with torch.set_grad_enabled(self.policy.lambda_disc > 0):
            observed = self._pair(lesson.observations, len(labels))  # (n or 1, C, d)
            pairs = objective.contrast(logits, self.network.head(observed), labels, lesson.has_observation)
            disc = objective.discrimination(pairs, summed=summed)
        return Terms(ce, kd, disc, objective.information_bound(pairs, labels), length)

    def represented(self, features: Tensor, logits: Tensor) -> Tensor:
        """Return the vectors that stand for samples: their features."""
        return features

    def represent(self) -> tuple[Floats, Integers]:
        """Return a vector (d,) for every sample, and its label; nothing random takes part."""
        rows = [self.represented(*outputs) for outputs, _ in self._outputs(self.samples)]
        return torch.cat(rows).float().cpu().numpy(), self.samples.labels.numpy()

    def publish(self) -> None:
        """Note that what was shared last has arrived."""

    def crossed(self) -> tuple[int, int] | None:
        """Return bytes up and down since the last call, where it is training that sends and receives."""
        return None

    def evaluate(self, samples: Samples) -> Score:
        """Count how many of these samples the model gets right."""
        return count_hits(self.predict(samples), samples.labels, self.network.classes)

    def predict(self, samples: Samples) -> Tensor:
        """Return the class that the model chooses for each of these samples (n,)."""
        return self.scores(samples).argmax(1)

    def scores(self, samples: Samples) -> Tensor:
        """Return a score for each of these samples and class (n, C). The largest one is the class."""
        return torch.cat([logits.cpu() for (_, logits), _ in self._outputs(samples)])

    def as_probabilities(self, scores: Tensor) -> Tensor:
        """Return probabilities (n, C) in place of scores."""
        return scores.double().softmax(dim=1)

    def look(self, samples: Samples) -> View:
        """Return this client's view of these samples."""
        features = torch.cat([features for (features, _), _ in self._outputs(samples)])
        head = self.network.head
        bias = torch.zeros(self.network.classes) if head.bias is None else head.bias
        return View(*(tensor.detach().float().cpu().numpy().copy() for tensor in (features, head.weight, bias)))

    def snapshot(self) -> Any:
        """Return a copy of the state, to which `take_back` may return."""
        return copy_state(self.state())

    def take_back(self, before: Any) -> bool:
        """Undo training that left numbers that are not finite, and were before; return whether it had to."""
        after = self.state()
        undo = not seems_finite(after) and bool(find_broken(after) - find_broken(before))
        if undo:
            self.load_state(before)
        return undo

    def state(self) -> dict[str, Any]:
        """Return all that another learner of the same kind needs to continue to the same bits."""
        return {
            "model": self.network.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "lesson": None if self.lesson is None else tuple(self.lesson),
            "batches": self.batches.get_state(),
            "pairing": self.pairing.get_state(),
            "averaging": json.dumps(self.averaging.bit_generator.state),
            "noise": self.noise.get_state(),
            **({"remembered": self.remembered} if self.remembered else {}),
            **({"compute": self.compute} if self.policy.compute == "auto" else {}),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        self.network.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.lesson = None if state["lesson"] is None else self._check(Lesson(*state["lesson"]))
        self.batches.set_state(state["batches"])
        self.pairing.set_state(state["pairing"])
        self.averaging.bit_generator.state = json.loads(state["averaging"])
        self.noise.set_state(state["noise"])
        self.remembered = dict(state.get("remembered", {}))
        self.compute = state.get("compute", self.compute)  # on another machine, too

    def _check(self, lesson: Lesson) -> Lesson:
        """Refuse a lesson of another model."""
        wanted = (self.network.classes, self.dimension)
        if lesson.means.shape != wanted or lesson.observations.shape[1:] != wanted:
            raise ValueError(f"it has a lesson of {tuple(lesson.means.shape)}, not of {wanted}")
        return lesson

    def _outputs(self, samples: Samples) -> "list[tuple[tuple[Tensor, Tensor], Tensor]]":
        self.network.model.eval()
        with torch.inference_mode():
            return [(self._forward(inputs), labels) for inputs, labels in samples.in_order(self.evaluation_batch)]

    def _forward(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Return features and logits in fp32, whatever the network computes with."""
        if self.compute == "fp32":
            return self.network(inputs)
        with torch.autocast(self.samples.device.type, torch.bfloat16):
            features, logits = self.network(inputs)
        return features.float(), logits.float()

    def _pair(self, observations: Tensor, count: int) -> Tensor:
        """Draw one observation of every class for each sample of a batch: m ~ Uniform(1 … M↓)."""
        if len(observations) == 1:
            return observations  # (1, C, d), the same for all
        chosen = torch.randint(len(observations), (count,), generator=self.pairing)
        return observations[chosen.to(observations.device)]  # (n, C, d)


def _open(model: nn.Module, samples: Samples, head: str | None) -> Network:
    """Return a model as features and head, ready for training on the samples' device."""
    network = split(model.to(samples.device), _example(samples), head)
    if not any(parameter.requires_grad for parameter in model.parameters()):
        raise ModelError(f"{type(model).__name__} has nothing to train: all its parameters are frozen")
    for parameter in model.parameters():
        if parameter.ndim == 4:  # as the images: convolutions are faster with the channels last
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return network


def _example(samples: Samples) -> Any:
    inputs, _ = samples.batch(torch.arange(min(features.ROWS, len(samples))))
    return inputs


def _check_policy(policy: Policy, samples: int, classes: int) -> None:
    """Check the indices of what may be shared: a wrong index must not share something else."""
    for name, chosen, count in (
        ("share_samples", policy.share_samples, samples),
        ("share_classes", policy.share_classes, classes),
    ):
        wrong = [index for index in chosen or () if not 0 <= index < count]
        if wrong:
            raise ConfigError(f"{name} has {wrong[0]}, but there are only 0 to {count - 1}")
