"""A client: collect, train, release, publish. The same loop serves the simulator and the real world."""

import hashlib
import io
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from repshare.config import Policy
from repshare.errors import BudgetExhausted, ConfigError, ExchangeError, LeftOut
from repshare.exchange import Exchange, Traffic
from repshare.files import write_atomically
from repshare.measures import Measures, Record, measure
from repshare.methods import CS, RS, Method, make_wants
from repshare.network import features
from repshare.network.models import Network
from repshare.privacy import make_guard
from repshare.samples import Labelled, Samples, Setup, as_samples, choose_device, without_labels
from repshare.sharing.representations import Wants
from repshare.space import Space
from repshare.space.agreement import Agreement
from repshare.space.exposure import Exposure

__all__ = ["Client", "Record", "make_wants"]


class Client:
    """One party: data and a model of its own, a policy, and an exchange to learn with others through.

    Examples:
        >>> for record in Client(model, data, exchange).rounds(20):
        ...     print(record.round, record.train_accuracy)
    """

    def __init__(
        self,
        model: nn.Module | Network | None = None,
        data: Labelled | Samples | None = None,
        exchange: Exchange | None = None,
        *,
        name: str = "client",
        policy: Policy | None = None,
        method: Method | None = None,
        test: Labelled | Samples | None = None,
        seed: int = 0,
        device: str = "cpu",
        head: str | None = None,
        ledger: Path | None = None,
        space: Agreement | Space | None = None,
        classes: int | None = None,
        norm_bound: float = math.inf,
        secret: bytes | None = None,
    ) -> None:
        """Create a client.

        Args:
            model: Any classifier that ends in a linear layer. What enters that layer are its features. A `Network`
                is one that was split there already, and is taken as it is. In a space there is none.
            data: Training samples: a pair (inputs, labels), a `Table`, or a PyTorch or Hugging Face dataset.
            exchange: The way to other clients. Without one, the client learns alone.
            name: The client's name. Its random streams depend on it.
            policy: How it learns and what it shares. Default: `Policy()`.
            method: One of `repshare.methods`, or your own. Default: RS, the paper's; with a space, CS.
            test: Samples to test on after each round, in the same form as `data`.
            seed: The seed of its random streams.
            device: The PyTorch device on which it trains. auto: a GPU (cuda, mps) if there is one, else cpu.
            head: Name of the model's last linear layer, if it cannot be found automatically.
            ledger: With a privacy budget, the file that records what was spent. Without one, that is forgotten with
                this client.
            space: The space that clients agree on, in place of a model. CS's default: what suits the data, from seed 0.
            classes: In a space, the number of all clients' classes. Default: as many as the agreement names, else
                one more than the largest label.
            norm_bound: The longest vector that clients agreed on. A longer one that comes back is refused.
            secret: CS: what decides, with each sample's own bytes, which samples are held out. Default: from the seed.
        """
        if data is None:
            raise ConfigError("a client needs samples to learn from: give data")
        self.name, self.exchange, self.seed = name, exchange, seed
        self.method = method = (RS if space is None else CS) if method is None else method
        policy, device = method.adapt(policy or Policy()), choose_device(device)
        samples, test = as_samples(data, device), as_samples(test, device)
        if isinstance(space, Agreement):
            space.check_named(samples)
            space.check_named(test)
        self.samples, self.test = samples, test
        alone = method.serve is None  # nothing is ever shared
        self.setup = Setup(
            samples, policy, name, seed, model, head, space, classes, alone, norm_bound, secret, method.options
        )
        self.learner = method.learner(self.setup)
        self.policy = policy = self.learner.policy
        described = self.learner.describe()
        if not (policy.share_inputs or alone or method.shares_weights):
            features.check(described.representation, described.name)
        if test is not None:
            test.check_labels(self.learner.classes)
        self.guard = self.learner.guard = None if alone else make_guard(self.learner, name, seed, ledger)
        self.round_number, self.released = 0, 0
        self.teacher: Path | None = None  # a file that keeps the last one: a round that was cut off is repeated with it
        self.before_publish: Callable[[bytes], None] = lambda body: (
            None
        )  # notes a release, or raises what keeps it here
        self.published: bytes | None = None  # the last release that has arrived
        self.trouble: ExchangeError | BudgetExhausted | None = None  # the reason why the last round exchanged nothing

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
        started, before = time.perf_counter(), self._count_bytes()
        down = self.collect()
        record = self.train()
        body = self.release()
        up = self.publish(body)
        seconds = time.perf_counter() - started
        if before is not None and (after := self._count_bytes()) is not None:
            up, down = after.sent - before.sent, after.received - before.received
        return self._complete(record, (up, down), seconds, test=test)

    def collect(self) -> int:
        """Begin a round: ask for a teacher, and learn from it from now on. Returns its size in bytes."""
        self.round_number += 1
        self.trouble = None
        if self.exchange is None or self.method.serve is None:
            return 0
        try:
            wants = make_wants(self.method, self.policy, self.seed, self.name, self.round_number)
            body = self._ask(self.exchange, wants)
            self.learner.absorb(body)
        except ExchangeError as error:
            self.trouble = error
            return 0
        return len(body)

    def _ask(self, exchange: Exchange, wants: Wants) -> bytes:
        """A teacher; in a round that was cut off, the one that it began with."""
        question, path = hashlib.sha256(repr(wants).encode()).digest(), self.teacher
        if path is not None and path.exists() and (kept := path.read_bytes()).startswith(question):
            return kept[len(question) :]
        body = exchange.collect(wants)
        if path is not None:
            write_atomically(path, question + body, private=True)
        return body

    def train(self) -> Record:
        """Train on this client's own samples for a round."""
        return self.learner.train()

    def release(self) -> bytes | None:
        """Make what leaves after this round; None: nothing does.

        What was charged and not acknowledged is released again instead: that costs nothing.
        """
        if self.exchange is None or self.method.serve is None:
            return None
        if self.guard is not None:
            self.guard.check_exchange(self.exchange)
            if self.guard.pending.body is not None:
                return self.guard.pending.body  # never a share of the noise that may have left: see note_failure
        most = self.policy.releases
        if self.round_number % self.policy.release_every or (most is not None and self.released >= most):
            return None
        self.check_exposure()
        try:
            return self.learner.release(self.round_number)
        except (ExchangeError, BudgetExhausted) as error:
            self.trouble = error
            return None

    def publish(self, body: bytes | None) -> int:
        """Publish this release, if any. Returns its size in bytes; 0: it has not arrived.

        Args:
            body: What `release` returned.
        """
        if self.exchange is None or body is None:
            return 0
        try:
            self.before_publish(body)
            self.exchange.publish(body)  # the only line through which anything leaves a client
        except (ExchangeError, BudgetExhausted) as error:
            self.trouble = error
            if isinstance(error, LeftOut):
                self.learner.start_over()
            if self.guard is not None:
                self.guard.note_failure(self.exchange)
            return 0
        if self.guard is not None:
            self.guard.pending.acknowledge(self.round_number)
        self.released, self.published = self.released + 1, body
        self.learner.acknowledge()
        return len(body)

    def evaluate(self) -> float:
        """Accuracy on the test data, from 0 to 1."""
        if self.test is None:
            raise ValueError("this client was given no test data")
        return self.learner.evaluate(self.test).accuracy

    def measure(self) -> Measures:
        """Accuracy, balanced accuracy, AUROC, calibration error and recalls on the test data."""
        if self.test is None:
            raise ValueError("this client was given no test data")
        scores = self.learner.scores(self.test)
        return measure(scores, self.learner.probabilities(scores), self.test.labels.numpy())

    @property
    def model(self) -> nn.Module:
        """The model, as it was given to this client, in evaluation mode. A client in a space has none."""
        model: nn.Module = self.learner.module
        return model

    def predict(self, inputs: Any) -> torch.Tensor:
        """The class of each input (n,), by whatever this client is tested by: its model, or a space's classifier.

        Args:
            inputs: A batch of inputs, in the form of the training data's.
        """
        return torch.from_numpy(self.learner.scores(self._unlabelled(inputs)).argmax(axis=1))

    def probabilities(self, inputs: Any) -> torch.Tensor:
        """The probability of each class for each input (n, C). Those of squared loss are rough.

        Args:
            inputs: A batch of inputs, in the form of the training data's.
        """
        scores = self.learner.scores(self._unlabelled(inputs))
        return torch.from_numpy(self.learner.probabilities(scores))

    def features(self, inputs: Any) -> torch.Tensor:
        """The vector that stands for each input (n, d'): features of the model, or vectors of a space.

        Args:
            inputs: A batch of inputs, in the form of the training data's.
        """
        return torch.from_numpy(self.learner.view(self._unlabelled(inputs)).features)

    def save(self) -> bytes:
        """All that the same client, built again, needs to continue to the same bits: see `load`."""
        kept = io.BytesIO()
        guard = {} if self.guard is None else {"guard": self.guard.state()}
        own = _as_tensors({"round": self.round_number, "released": self.released, **self.learner.state()})
        torch.save({**own, **guard}, kept)
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

    def exposure(self, behind: Callable[[int], float] | None = None) -> Exposure | None:
        """What the next release shows; None where no rule is: without a space, or with a budget.

        Args:
            behind: The samples behind what is seen, given this client's. Default: as the exchange counts them.
        """
        if self.method.serve is None:
            return None
        shown: Exposure | None = self.learner.exposure(behind or (self.exchange or Exchange()).behind)
        return shown

    def check_exposure(self) -> None:
        """Raise ConfigError if a release would show single samples, and the policy does not accept that."""
        shown = self.exposure()
        if shown is not None and not self.policy.accept_exposure:
            shown.check()

    def _unlabelled(self, inputs: Any) -> Samples:
        return without_labels(inputs, str(self.samples.device))

    def _count_bytes(self) -> Traffic | None:
        """Bytes so far, where the exchange counts its own."""
        return None if self.exchange is None else self.exchange.traffic()

    def _complete(self, record: Record, traffic: tuple[int, int], seconds: float, *, test: bool) -> Record:
        """Complete the learner's record with what only the client knows: name, bytes, seconds, troubles and ε."""
        told = [str(each) for each in (self.trouble, record.trouble) if each is not None]
        if isinstance(self.trouble, ExchangeError) and self.guard is not None and self.guard.pending.body:
            told.append("the charged release is kept, and sent again until it is accepted")
        up, down = traffic
        return replace(
            record,
            round=self.round_number,
            client=self.name,
            test_accuracy=self.evaluate() if test and self.test else None,
            bytes_up=record.bytes_up or up,
            bytes_down=record.bytes_down or down,
            seconds=record.seconds + seconds,
            trouble="; ".join(told) or None,
            epsilon=None if self.guard is None else self.guard.spent,
        )


def _as_tensors(state: Any) -> Any:
    """Put tensors for arrays, which `torch.load` would not read back without running code."""
    match state:
        case np.ndarray():
            return torch.from_numpy(state)
        case Mapping():
            return {name: _as_tensors(each) for name, each in state.items()}
        case list() | tuple():
            return type(state)(map(_as_tensors, state))
    return state
