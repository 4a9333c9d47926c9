"""A client: collect, train, release, publish. The same loop serves the simulator and the real world."""

import io
import math
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from repshare.config import Level, Policy
from repshare.errors import BudgetExhausted, ConfigError, ExchangeError
from repshare.exchange import Exchange
from repshare.learning import features
from repshare.learning.common.learner import CommonLearner
from repshare.learning.measures import Measures, Record, measure
from repshare.learning.models import Network
from repshare.learning.randomness import numpy_stream
from repshare.learning.samples import Labelled, Samples, choose_device, without_labels
from repshare.learning.training import Learner
from repshare.methods import RS, Method
from repshare.methods.method import make_wants
from repshare.spaces import choose
from repshare.spaces.agreement import Common

if TYPE_CHECKING:
    from repshare.privacy.guard import Guard


__all__ = ["Client", "Record", "make_wants"]


class Client:
    """One party: a model and data of its own, a policy, and an exchange to learn with others through.

    Examples:
        >>> for record in Client(model, data, exchange).rounds(20):
        ...     print(record.round, record.train_accuracy)
    """

    def __init__(
        self,
        model: nn.Module | Network,
        data: Labelled | Samples,
        exchange: Exchange | None = None,
        *,
        name: str = "client",
        policy: Policy | None = None,
        method: Method = RS,
        test: Labelled | Samples | None = None,
        seed: int = 0,
        device: str = "cpu",
        head: str | None = None,
        levels: Sequence[Level] | None = None,
        ledger: Path | None = None,
        common: Common | None = None,
        norm_bound: float = math.inf,
        public: Labelled | Samples | None = None,
        secret: bytes | None = None,
    ) -> None:
        """Create a client.

        Args:
            model: Any classifier that ends in a linear layer. What enters that layer are its features. A `Network`
                is one that was split there already, and is taken as it is.
            data: Training samples: a pair (inputs, labels), a PyTorch or Hugging Face dataset, or a DataLoader.
            exchange: The way to other clients. Without one, the client learns alone.
            name: The client's name. Its random streams depend on it.
            policy: How it learns and what it shares. Default: `Policy()`.
            method: One of `repshare.methods`, or your own. Default: RS, the paper's.
            test: Samples to test on after each round, in the same form as `data`.
            seed: The seed of its random streams.
            device: The PyTorch device on which it trains. auto: a GPU (cuda, mps) if there is one, else cpu.
            head: Name of the model's last linear layer, if it cannot be found automatically.
            levels: With a privacy budget, each sample's own: "public", "never", or the ε that it may spend.
            ledger: With a privacy budget, the file that records what was spent. Without one, that is forgotten with
                this client.
            common: What clients of CS agree on. Default: the space that suits the data, from seed 0.
            norm_bound: The longest vector that clients agreed on. A longer one that comes back is refused.
            public: Samples that all clients have, in the same form as `data`, for a method that learns from them.
            secret: CS: what decides, with each sample's own bytes, which samples are held out. Default: from the seed.
        """
        self.name, self.exchange, self.method, self.seed = name, exchange, method, seed
        self.policy = method.adapt(policy or Policy())
        device = choose_device(device)
        samples = data if isinstance(data, Samples) else Samples(data, device=device)
        if method.in_space:
            common = common or Common(choose((), samples.batch(torch.arange(1))[0], 0))
            self.policy = common.adapt(self.policy)
        self.samples = samples
        public = Samples(public, device=device) if public is not None and not isinstance(public, Samples) else public
        own = {"common": common, "alone": method.share is None, "secret": secret, "levels": levels}
        self.learner = self._make_learner(model, samples, public, head=head, **(own if method.in_space else {}))
        self.learner.norm_bound = norm_bound
        if not self.policy.share_inputs and method.share is not None and not method.shares_weights:
            features.check(self.learner.made, type(model).__name__)
        self.test = Samples(test, device=device) if test is not None and not isinstance(test, Samples) else test
        if self.test is not None:
            self.test.check_labels(self.learner.network.classes)
        self.guard = self._make_guard(levels)
        self.learner.guard = self.guard
        if ledger is not None and self.guard is None:
            raise ConfigError("a ledger needs a policy with epsilon: without one, exact averages would leave")
        if ledger is not None and self.guard is not None:
            self.guard.keep_in(ledger)
        self.round_number, self.released = 0, 0
        self.trouble: ExchangeError | BudgetExhausted | None = None  # what kept the last round from exchanging
        self._undone = False  # whether the last round's training was taken back

    def rounds(self, count: int, *, eval_every: int = 1) -> Iterator[Record]:
        """Take part for `count` rounds; yield a record after each.

        Args:
            count: Number of rounds.
            eval_every: Number of rounds between tests, if there are test data. The last round always has one.
        """
        if eval_every < 1:
            raise ConfigError(f"eval_every must be at least 1, not {eval_every}")
        for done in range(1, count + 1):
            yield self.round(test=done % eval_every == 0 or done == count)

    def round(self, *, test: bool = True) -> Record:
        """Collect, train, release, publish. An exchange that is unavailable or refuses never costs the training.

        Without a new teacher, or with one that does not fit, the client continues with the last one.

        Args:
            test: Whether to test after the round, if there are test data.
        """
        started = time.perf_counter()
        self.round_number += 1
        self.trouble = None
        before_round = None if self.exchange is None else self.exchange.traffic()
        down = self._collect()
        before = self.learner.snapshot()
        self.learner.left_out.clear()
        losses = self.learner.train()
        self._undone = self.learner.take_back(before)
        up = self._publish()
        now = None if self.exchange is None else self.exchange.traffic()
        if before_round is not None and now is not None:
            up, down = now.sent - before_round.sent, now.received - before_round.received
        up, down = self.learner.crossed() or (up, down)
        seconds = time.perf_counter() - started + self.learner.preparation
        self.learner.preparation = 0.0
        return Record(
            round=self.round_number,
            client=self.name,
            ce=losses.ce,
            kd=losses.kd,
            disc=losses.disc,
            bound=losses.bound,
            train_accuracy=losses.accuracy,
            test_accuracy=self.evaluate() if test and self.test else None,
            bytes_up=up,
            bytes_down=down,
            seconds=seconds,
            trouble=self._tell_trouble(),
            epsilon=None if self.guard is None else self.guard.spent,
            gap=losses.gap,
            held_out=losses.held_out,
            held_out_alone=losses.held_out_alone,
            doubt=losses.doubt,
        )

    def evaluate(self) -> float:
        """Return the accuracy on the test data, from 0 to 1."""
        if self.test is None:
            raise ValueError("this client was given no test data")
        return self.learner.evaluate(self.test).accuracy

    def measure(self) -> Measures:
        """Return accuracy, balanced accuracy, AUROC, calibration error and recalls on the test data."""
        if self.test is None:
            raise ValueError("this client was given no test data")
        scores = self.learner.scores(self.test)
        return measure(scores.argmax(1), self.learner.as_probabilities(scores), self.test.labels)

    @property
    def model(self) -> nn.Module:
        """The model, as it was given to this client, in evaluation mode. In a common space nothing trains it."""
        return self.learner.network.model.eval()

    def predict(self, inputs: Any) -> torch.Tensor:
        """Return the class of each input (n,), by whatever this client is tested by: its model, or a common classifier.

        Args:
            inputs: A batch of inputs, in the form of the training data's.
        """
        return self.learner.predict(self._unlabelled(inputs))

    def probabilities(self, inputs: Any) -> torch.Tensor:
        """Return the probability of each class for each input (n, C). Those of a common classifier are rough.

        Args:
            inputs: A batch of inputs, in the form of the training data's.
        """
        return self.learner.as_probabilities(self.learner.scores(self._unlabelled(inputs)))

    def features(self, inputs: Any) -> torch.Tensor:
        """Return the vector that stands for each input (n, d'): features of the model, or vectors of a common space.

        Args:
            inputs: A batch of inputs, in the form of the training data's.
        """
        return torch.from_numpy(self.learner.look(self._unlabelled(inputs)).features)

    def _unlabelled(self, inputs: Any) -> Samples:
        return without_labels(inputs, str(self.learner.samples.device))

    def save(self) -> bytes:
        """Return all that the same client, built again, needs to continue to the same bits: see `load`."""
        kept = io.BytesIO()
        guard = {} if self.guard is None else {"guard": self.guard.state()}
        torch.save({"round": self.round_number, "released": self.released, **guard, **self.learner.state()}, kept)
        return kept.getvalue()

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned.

        Args:
            saved: The bytes that `save` returned.
        """
        state = torch.load(io.BytesIO(saved), weights_only=True)
        self.round_number, self.released = int(state.pop("round")), int(state.pop("released", 0))
        guard = state.pop("guard", None)
        self.learner.load_state(state)
        if self.guard is not None and guard is not None:
            self.guard.load_state(guard)

    def _collect(self) -> int:
        if self.exchange is None or self.method.absorb is None:
            return 0
        try:
            wants = make_wants(self.method, self.policy, self.seed, self.name, self.round_number)
            body = self.exchange.collect(wants)
            self.method.absorb(self.learner, body)
        except ExchangeError as error:
            self.trouble = error
            return 0
        return len(body)

    def _publish(self) -> int:
        """Release and publish. What was charged and not acknowledged is sent again instead: that costs nothing."""
        if self.exchange is None or self.method.share is None:
            return 0
        pending = None if self.guard is None else self.guard.pending
        body = None if pending is None else pending.body
        if body is None and not self._is_due():
            return 0
        shares_noise = self.policy.noise_shares > 1 and not self.policy.seeded_noise
        if shares_noise and not self.exchange.hides_single_releases:
            raise ConfigError("a share of the noise hides nothing by itself: noise_shares needs a group (--group)")
        try:
            if body is None:
                body = self.method.share(self.learner, self.round_number)
            self.exchange.publish(body)  # what leaves a client leaves here
        except (ExchangeError, BudgetExhausted) as error:
            self.trouble = error
            if shares_noise and pending is not None and self.exchange.may_have_left():
                pending.drop()  # with others' new shares of noise, the same bytes would be another release
            return 0
        if pending is not None:
            pending.acknowledge(self.round_number)
        self.released += 1
        self.learner.publish()
        return len(body)

    def _tell_trouble(self) -> str | None:
        told = [] if self.trouble is None else [str(self.trouble)]
        left_out = self.learner.left_out.items()
        told += [f"{count} {what} were not finite and left out" for what, count in left_out if count]
        if self._undone:
            told.append("training made numbers of the model that are not finite, and was undone")
        if isinstance(self.trouble, ExchangeError) and self.guard is not None and self.guard.pending.body:
            told.append("the charged release is kept, and sent again until it is accepted")
        return "; ".join(told) or None

    def _is_due(self) -> bool:
        """Return whether the policy wants a release after this round."""
        most = self.policy.releases
        return self.round_number % self.policy.release_every == 0 and (most is None or self.released < most)

    def _make_learner(
        self, model: nn.Module | Network, samples: Samples, public: Samples | None, **own: Any
    ) -> Learner:
        given: dict[str, Any] = {**own, "name": self.name, "seed": self.seed}
        given |= {"loss": self.method.loss, "options": self.method.options}
        if getattr(self.method.learner, "uses_public", False):
            given["public"] = public
        return self.method.choose_learner()(model, samples, self.policy, **given)

    def _make_guard(self, levels: Sequence[Level] | None) -> "Guard | None":
        policy, learner = self.policy, self.learner
        if policy.epsilon is None:
            if levels is not None:
                raise ConfigError("levels need a policy with epsilon and adjacency add-remove")
            return None
        from repshare.privacy.guard import Guard
        from repshare.privacy.sums import SumsGuard

        seeded = numpy_stream(self.seed, self.name, "privacy") if policy.seeded_noise else None
        given: dict[str, Any] = {"levels": levels, "seeded": seeded}
        labels, classes = learner.samples.labels.numpy(), learner.network.classes
        if isinstance(learner, CommonLearner):
            return SumsGuard(policy, labels, classes=classes, space=learner.common.name, **given)
        return Guard(
            policy, labels, dimension=learner.dimension, classes=policy.share_classes or range(classes), **given
        )
