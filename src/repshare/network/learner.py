"""Algorithm 2: one client's local update. Of this folder, read this file first."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
import safetensors.torch
import torch
from torch import Tensor, nn
from torch.nn.utils import get_total_norm

from repshare.config import Policy
from repshare.errors import ConfigError, DataError, ModelError
from repshare.learner import Learner
from repshare.measures import Description, Doubles, Record, Score, View, count_hits
from repshare.network import features, objective
from repshare.network.models import Network, split
from repshare.network.objective import Terms
from repshare.network.steps import OPTIMIZERS, count_parameters, is_large
from repshare.network.targets import Targets, make_targets
from repshare.randomness import numpy_stream, torch_stream
from repshare.samples import EVALUATION_BATCH, LARGE_EVALUATION_BATCH, Samples, Setup
from repshare.sharing import wire
from repshare.sharing.representations import Floats, Integers, Teacher, make_release, may_share

FILE = "model.safetensors"
ROW_MAJOR = torch.contiguous_format  # the only layout that safetensors has


class Batch(NamedTuple):
    """A batch of training as a method's own loss sees it."""

    inputs: Any
    labels: Tensor  # (n,)
    features: Tensor  # (n, d')
    logits: Tensor  # (n, C)


class NetworkLearner(Learner):
    """One client's network, optimizer, data and random streams: all that local training needs."""

    def __init__(
        self,
        model: nn.Module | Network,
        samples: Samples,
        policy: Policy,
        *,
        name: str,
        seed: int,
        head: str | None = None,
        norm_bound: float = math.inf,
        options: Any = None,
    ) -> None:
        """`options` are for a method's own learner. A network that was split already is taken as it is."""
        self.network: Network = model if isinstance(model, Network) else _open(model, samples, head)
        self.classes = self.network.classes
        self.representation = features.examine(self.network, _example(samples))
        samples.check_labels(self.classes)
        policy.check_chosen(len(samples), self.classes)
        self.samples, self.policy, self.name, self.options = samples, policy, name, options
        overflows_caches = is_large(self.network.model) and samples.device.type == "cpu"
        self.evaluation_batch = LARGE_EVALUATION_BATCH if overflows_caches else EVALUATION_BATCH  # samples
        self.behind = None
        self.remembered: dict[str, Tensor] = {}  # a method's state from round to round
        self.targets: Targets | None = None
        self.norm_bound = norm_bound  # the agreed largest length of a vector
        self.steps = 0  # of the last training
        self._left_out = 0  # steps of this training that were not finite, and changed nothing
        self._equip(seed)

    @classmethod
    def open(cls, given: Setup) -> Self:
        """Make the learner of a client."""
        if given.model is None:
            raise ConfigError(f"{given.name} trains a network: give it as model")
        return cls(
            given.model, given.samples, given.policy, name=given.name, seed=given.seed, head=given.head,
            norm_bound=given.norm_bound, options=given.options,
        )  # fmt: skip

    def _equip(self, seed: int) -> None:
        """Get ready for training: an optimizer, and random streams."""
        self.trained = [*self.network.model.parameters()]
        self.optimizer = OPTIMIZERS[self.policy.optimizer](self.trained, lr=self.policy.learning_rate, fused=True)
        self.batches = torch_stream(seed, self.name, "batches")
        self.pairing = torch_stream(seed, self.name, "pairing")
        self.averaging = numpy_stream(seed, self.name, "averaging")
        self.noise = torch_stream(seed, self.name, "noise")

    @property
    def dimension(self) -> int:  # type: ignore[override]
        """d', the length of what stands for a sample."""
        return self.width(self.network)

    @property
    def module(self) -> nn.Module:
        """The model, as it was given, in evaluation mode."""
        return self.network.model.eval()

    @staticmethod
    def width(network: Network) -> int:
        """The length of what stands for a sample, for a client with this network."""
        return network.dimension

    def train(self) -> Record:
        """Descend on L = L_CE + λ_KD · L_KD + λ_disc · L_disc + λ_length · L_length for some local epochs.

        A method may add a term of its own. Steps that are not finite are left out.
        """
        averages, self.steps, self._left_out = Averages(), 0, 0
        self.network.model.train()
        self.optimizer.zero_grad()  # the model's maker may have left some
        with self._own_noise():
            for _ in range(self.policy.epochs):
                for inputs, labels in self.samples.shuffled(self.policy.batch_size, self.batches):
                    averages.add(*self._step(inputs, labels), labels)
        told = f"{self._left_out} steps were not finite and left out" if self._left_out else None
        return replace(averages.result(), trouble=told)

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
        own = self.own_loss(batch)
        if own is not None:
            if not isinstance(own, Tensor) or own.numel() != 1:
                told = own.shape if isinstance(own, Tensor) else own
                raise ConfigError(f"a method's own loss must be one number, not {told!r}")
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
        self._left_out += not finite
        if finite:
            self.optimizer.step()
        self.optimizer.zero_grad()

    def own_loss(self, batch: Batch) -> Tensor | None:
        """A method's own term of a batch's loss, one number; None: it has none."""
        return None

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
        """The loss of a batch, term by term; without a teacher, only the terms that need none."""
        ce = objective.cross_entropy(logits, labels)
        length = objective.length(features) if self.policy.lambda_length else None
        if self.targets is None:
            return Terms(ce, length=length)
        targets = self.targets
        kd = objective.distillation(self.represented(features, logits), labels, targets)
        if not len(targets.observations):
            return Terms(ce, kd, length=length)
        with torch.set_grad_enabled(self.policy.lambda_disc > 0):
            observed = self._pair(targets.observations, len(labels))  # (n or 1, C, d)
            pairs = objective.contrast(logits, self.network.head(observed), labels, targets.has_observation)
            disc = objective.discrimination(pairs)
        return Terms(ce, kd, disc, objective.information_bound(pairs, labels), length)

    def represented(self, features: Tensor, logits: Tensor) -> Tensor:
        """The vectors that stand for samples: their features."""
        return features

    def represent(self) -> tuple[Floats, Integers]:
        """A vector (d,) for every sample, and its label; nothing random takes part."""
        rows = [self.represented(*outputs) for outputs, _ in self._outputs(self.samples)]
        return torch.cat(rows).float().cpu().numpy(), self.samples.labels.numpy()

    def release(self, round: int) -> bytes:
        """Averages over the samples that the policy lets take part."""
        vectors, labels = self.represent()
        release = make_release(vectors, labels, self.averaging, self.policy, round)
        return wire.encode_release(release, self.policy.precision or "fp32")

    def absorb(self, body: bytes) -> None:
        """Learn from this teacher from now on. Before any training, one without any class has means of zero.

        So round 1 has a teacher (Algorithm 1, line 1). The authors' emulation averages outputs of the untrained
        networks, which are short, 0.04 to 0.08 a number, and nearly the same for all inputs. Zeros need no release.
        """
        trained = self.targets is not None or self.steps or self.optimizer.state
        teacher = wire.decode_teacher(body)
        targets = self.make_targets(teacher)
        if not trained and self.policy.start == "zeros" and not targets.has_mean.any():
            targets = targets._replace(has_mean=torch.ones_like(targets.has_mean))  # the means are zeros
        self.targets, self.behind = targets, float(teacher.means.counts.sum()) or None

    def make_targets(self, teacher: Teacher) -> Targets:
        """Arrange a teacher for training. Raises Malformed if it does not fit."""
        like, most = self.network.head.weight, self.policy.m_down
        return make_targets(teacher, like, self.dimension, most=most, norm_bound=self.norm_bound, longest=self._longest)

    def _longest(self) -> float:
        """The longest vector that stands for a sample."""
        lengths = np.linalg.norm(self.represent()[0].astype(np.float64), axis=1)
        return float(lengths[np.isfinite(lengths)].max(initial=0.0))

    def evaluate(self, samples: Samples) -> Score:
        """Count how many of these samples the model gets right."""
        return count_hits(self.scores(samples), samples.labels.numpy())

    def scores(self, samples: Samples) -> Doubles | Floats:
        """The logits of these samples (n, C)."""
        return torch.cat([logits.cpu() for (_, logits), _ in self._outputs(samples)]).numpy()

    def probabilities(self, scores: Doubles | Floats) -> Doubles:
        """The softmax of logits (n, C)."""
        return torch.from_numpy(scores).double().softmax(dim=1).numpy()

    def view(self, samples: Samples) -> View:
        """These samples' features, and the head."""
        features = torch.cat([features for (features, _), _ in self._outputs(samples)])
        head = self.network.head
        bias = torch.zeros(self.classes) if head.bias is None else head.bias
        return View(*(tensor.detach().float().cpu().numpy().copy() for tensor in (features, head.weight, bias)))

    def describe(self) -> Description:
        """What it shares, and which figures of its rounds it reports."""
        figures = ("test_accuracy", "train_accuracy")
        model = self.network.model
        name, parameters = type(model).__name__, count_parameters(model)
        return Description(self.representation, self.policy.precision or "fp32", figures, name, parameters)

    def shared_counts(self) -> Integers:
        """The number of samples of each class that count in what is shared (C,)."""
        labels = self.samples.labels.numpy()
        counts = np.bincount(labels[may_share(labels, self.policy)], minlength=self.classes)
        return np.where(counts >= self.policy.fewest, counts, 0)

    def single_samples(self) -> list[int]:
        """The classes with an observation of one sample, or with one sample."""
        if self.policy.fewest > 1:
            return []
        alone = self.policy.n_avg == 1 and self.policy.m_up > 0
        return [label for label, count in enumerate(self.shared_counts()) if count == 1 or (alone and count)]

    def files(self, round: int) -> dict[str, bytes]:
        """The model's weights, by their names in its state_dict."""
        weights = self.network.model.state_dict()
        plain = {name: each.detach().cpu().clone(memory_format=ROW_MAJOR) for name, each in weights.items()}
        return {FILE: safetensors.torch.save(plain)}

    def identity(self) -> dict[str, Any]:
        """The model and the optimizer."""
        kind, parameters = type(self.network.model).__name__, count_parameters(self.network.model)
        chosen = {"optimizer": self.policy.optimizer, "learning_rate": self.policy.learning_rate}
        return {"model": f"{kind}, {parameters:,} parameters", **chosen}

    def state(self) -> dict[str, Any]:
        """All that another learner of the same kind needs to continue to the same bits."""
        return {
            "model": self.network.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "lesson": None if self.targets is None else tuple(self.targets),
            "batches": self.batches.get_state(),
            "pairing": self.pairing.get_state(),
            "averaging": json.dumps(self.averaging.bit_generator.state),
            "noise": self.noise.get_state(),
            **({"remembered": self.remembered} if self.remembered else {}),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Continue from this state."""
        self.network.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.targets = None if state["lesson"] is None else self._check(Targets(*state["lesson"]))
        self.batches.set_state(state["batches"])
        self.pairing.set_state(state["pairing"])
        self.averaging.bit_generator.state = json.loads(state["averaging"])
        self.noise.set_state(state["noise"])
        self.remembered = dict(state.get("remembered", {}))

    def _check(self, targets: Targets) -> Targets:
        """Refuse targets of another model."""
        wanted = (self.network.classes, self.dimension)
        if targets.means.shape != wanted or targets.observations.shape[1:] != wanted:
            raise ValueError(f"its targets are {tuple(targets.means.shape)}, not of {wanted}")
        return targets

    def _outputs(self, samples: Samples) -> "list[tuple[tuple[Tensor, Tensor], Tensor]]":
        self.network.model.eval()
        with torch.inference_mode():
            return [(self._forward(inputs), labels) for inputs, labels in samples.in_order(self.evaluation_batch)]

    def _forward(self, inputs: Any) -> tuple[Tensor, Tensor]:
        """Features and logits in fp32, whatever the network computes with."""
        if self.policy.compute == "fp32":
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
    """A model as features and head, ready for training on the samples' device."""
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


class Averages:
    """Means over samples of what each batch reports. Values are read at the end: reading one waits for it on a GPU."""

    def __init__(self) -> None:
        self._seen: dict[str, list[tuple[Tensor, int]]] = {}

    def add(self, terms: Terms, logits: Tensor, labels: Tensor) -> None:
        """Note a batch."""
        for name, value in zip(Terms._fields, terms, strict=True):
            if value is not None:
                self._seen.setdefault(name, []).append((value.detach(), len(labels)))
        right = (logits.detach().argmax(1) == labels).sum()
        self._seen.setdefault("train_accuracy", []).append((right / len(labels), len(labels)))

    def result(self) -> Record:
        """The means."""
        return Record(**{name: self._mean(name) for name in self._seen if name != "length"})  # type: ignore[arg-type]

    def _mean(self, name: str) -> float | None:
        seen = self._seen.get(name)
        if not seen:
            return None
        finite = [(float(value), count) for value, count in seen if value.isfinite()]
        return sum(value * count for value, count in finite) / sum(count for _, count in finite) if finite else math.nan
