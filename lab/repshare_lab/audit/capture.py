"""Real releases to attack: what clients of the package publish, as bytes, and what they collect."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from repshare.board import Board, Wants
from repshare.client import Client
from repshare.config import Policy
from repshare.errors import RepshareError
from repshare.exchange import Exchange
from repshare.exchange.local import LocalExchange
from repshare.methods import CS, RS
from repshare.methods.method import make_wants
from repshare.sharing import wire
from repshare.sharing.parts import Part, read_total
from repshare.sharing.representations import Release, Representations
from repshare.sharing.sums import scales
from repshare.sharing.task import Task
from repshare.space.agreement import Agreement
from repshare.space.dual import Dual
from repshare.space.learner import SpaceLearner
from repshare.space.model import Linear
from repshare.space.solution import SolutionKey, solve
from repshare_lab.audit.sequences import Array, Points, Seen

Inputs = NDArray[np.float32]
Labels = NDArray[np.int64]


@dataclass
class Tapped(Exchange):
    """A client's exchange, every byte of which is kept. What is published arrives when all clients have their turn."""

    inner: LocalExchange
    published: list[bytes] = field(default_factory=list)
    collected: list[bytes] = field(default_factory=list)

    def publish(self, body: bytes) -> None:
        """Keep what is published."""
        self.published.append(body)

    def collect(self, wants: Wants) -> bytes:
        """Hand out a teacher, and keep it."""
        self.collected.append(self.inner.collect(wants))
        return self.collected[-1]

    def deliver(self) -> None:
        """Hand the last release over."""
        self.inner.publish(self.published[-1])


class Captured(NamedTuple):
    """What was seen of some clients, and, to judge attacks by, who was in it."""

    seen: Seen
    members: Points
    weights: Array  # (m, R, C)  α of the members, which no attack gets
    classifiers: tuple[Linear, ...]  # the common one after each release


def capture(
    common: Agreement, inputs: Inputs, labels: Labels, owners: Sequence[NDArray[np.int64]], classes: int, *,
    visible: int, releases: int, policy: Policy | None = None,
) -> Captured:  # fmt: skip
    """Let clients learn together, all in step, and return what the relay sees of the first ones' total.

    Args:
        common: What the clients agree on, with squared loss.
        inputs: Points of all clients.
        labels: Their labels.
        owners: Each client's samples, as rows.
        classes: C.
        visible: Of how many clients the total is seen: 1 for a client that is not in a group.
        releases: How often they release.
        policy: Their policy. Default: the default, with what a client would refuse to release.
    """
    board, taps, clients = Board(common.task(classes)), list[Tapped](), list[Client]()
    policy = policy or Policy(share_inputs=True, accept_exposure=True, minimum_count=1)  # to be attacked
    for number, rows in enumerate(owners):
        tap = Tapped(LocalExchange(board, f"client {number}"))
        data, name = _data(inputs[rows], labels[rows]), tap.inner.client
        clients.append(Client(None, data, tap, name=name, space=common, classes=classes, policy=policy))
        taps.append(tap)
    learners = [client.learner for client in clients[:visible]]
    duals = [cast(Dual, cast(SpaceLearner, each).model) for each in learners]
    weights = []
    for _ in range(releases):
        for client in clients:
            if (trouble := client.round(test=False).trouble) is not None:
                raise RepshareError(f"nothing was released: {trouble}")
        weights.append(np.concatenate([each.published.alpha for each in duals]))
        for tap in taps:
            tap.deliver()
    last = taps[0].inner.collect(make_wants(CS, clients[0].policy, 0, "relay", releases))
    bodies = [*taps[0].collected, last]
    totals = tuple(_read(body, classes, common) for body in bodies)
    vectors = np.concatenate([each.vectors for each in duals]).astype(np.float64)
    own = np.concatenate([each.labels for each in duals])
    parts = [[wire.decode_release(body) for body in tap.published] for tap in taps[:visible]]
    everyone = next(total.samples for total in totals if total is not None)
    seen = _add_up(parts, classes, common.space.dimension)
    seen = seen._replace(totals=totals[:releases], everyone=everyone, share=seen.samples / visible / everyone)
    read = [solve(total, SolutionKey(everyone, None, testing=True)) for total in totals if total]
    return Captured(seen, Points(vectors, own), np.stack(weights, axis=1), tuple(each.linear for each in read))


class Told(NamedTuple):
    """Sums of vectors that a client released, each of samples of one class, and who was in them."""

    sums: Array  # (C, k, d)
    counts: Array  # (C, k)  0: there is none
    members: Points


class Noisy(NamedTuple):
    """Class sums with noise that some clients released, and what clients make of all of them."""

    told: Told
    variance: float  # of the noise on each number of the sums of vectors
    classifiers: tuple[Linear, ...]  # of those clients
    alone: tuple[Linear, ...]  # those of their own samples alone


def capture_sums(
    common: Agreement, inputs: Inputs, labels: Labels, owners: Sequence[Labels], classes: int, policy: Policy, *,
    visible: int, seed: int = 0,
) -> Noisy:  # fmt: skip
    """Let clients release noisy class sums once; return the total of the first ones.

    Args:
        common: What clients agree on, with the loss discriminant.
        inputs: Points of all clients.
        labels: Their labels.
        owners: Each client's samples, as rows.
        classes: C.
        policy: Their policy, with a budget and seeded noise.
        visible: Of how many clients the total is seen: 1 for a client that is not in a group.
        seed: The seed of their noise.
    """
    board, taps, learners, owned = Board(common.task(classes)), list[Tapped](), list[SpaceLearner](), list[Labels]()
    for number, rows in enumerate(owners):
        tap = Tapped(LocalExchange(board, f"client {number}"))
        given: dict[str, Any] = {"name": tap.inner.client, "space": common, "classes": classes, "policy": policy}
        client = Client(None, _data(inputs[rows], labels[rows]), tap, seed=seed, **given)
        if (trouble := client.round(test=False).trouble) is not None:
            raise RepshareError(f"nothing was released: {trouble}")
        tap.deliver()
        learner = cast(SpaceLearner, client.learner)
        taps.append(tap)
        learners.append(learner)
        owned.append(rows[learner.used_rows])
    dimension, (factor, constant) = common.space.dimension, scales(common.space.dimension)
    releases = [wire.decode_release(tap.published[0]).means.vectors.astype(np.float64) for tap in taps[:visible]]
    total = np.sum(releases, axis=0)
    members = np.concatenate(owned[:visible])
    vectors = common.vectors(torch.from_numpy(inputs[members])).astype(np.float64)
    counts = (total[:classes, dimension] / constant).clip(1, None)  # as far as noise lets it be known
    told = Told(total[:classes, None, :dimension] / factor, counts[:, None], Points(vectors, labels[members]))
    for learner, tap in zip(learners[:visible], taps, strict=False):
        learner.absorb(tap.collect(make_wants(CS, learner.policy, 0, tap.inner.client, 1)))
    classifiers = tuple(each.classifier() for each in learners[:visible])
    alone = tuple(each.model.alone() for each in learners[:visible])
    return Noisy(told, float(total[classes, dimension]) / factor**2, classifiers, alone)


def capture_means(
    network: nn.Module, inputs: Inputs, labels: Labels, classes: int, dimension: int, likewise: Sequence[Inputs]
) -> tuple[Told, Told, list[Array]]:
    """Let a client of RS train for a round and release; return its class means, its observations, and features.

    Args:
        network: Its network.
        inputs: Its samples.
        labels: Their labels.
        classes: C.
        dimension: d'.
        likewise: Inputs whose features are returned as well: the attacker is given the network.
    """
    tap = Tapped(LocalExchange(Board(Task(classes, dimension)), "client"))
    client = Client(network, _data(inputs, labels), tap, method=RS)
    client.round(test=False)
    release = wire.decode_release(tap.published[0])
    features = [client.features(torch.from_numpy(each)).double().numpy() for each in (inputs, *likewise)]
    members = Points(features[0], labels)
    means, observations = (_by_class(each, classes, members) for each in (release.means, release.observations))
    return means, observations, features[1:]


def _by_class(rows: Representations, classes: int, members: Points) -> Told:
    most = int(np.bincount(rows.labels, minlength=classes).max()) if len(rows.labels) else 0
    sums, counts = np.zeros((classes, most, rows.vectors.shape[1])), np.zeros((classes, most))
    for label in range(classes):
        own = np.flatnonzero(rows.labels == label)
        counts[label, : len(own)] = rows.counts[own]
        sums[label, : len(own)] = rows.vectors[own].astype(np.float64) * rows.counts[own, None]
    return Told(sums, counts, members)


def _data(inputs: Inputs, labels: Labels) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(inputs), torch.from_numpy(labels)


def _read(body: bytes, classes: int, common: Agreement) -> Part | None:
    return read_total(wire.decode_teacher(body), classes, common.space.dimension, common.name)


def _add_up(clients: Sequence[Sequence[Release]], classes: int, dimension: int) -> Seen:
    """Return the sums over some clients' samples, release by release."""
    counts = np.array([releases[0].means.counts[0] for releases in clients], np.float64)
    sums = np.array([
        sum(count * one.means.vectors.astype(np.float64) for count, one in zip(counts, releases, strict=True))
        for releases in zip(*clients, strict=True)
    ])  # (R, C + 1, d + …)  # fmt: skip
    shares = np.rint(sums[0, :classes, dimension + 1])
    return Seen(sums[:, :classes, : dimension + 1], sums[0, classes, :dimension], shares, (), 0, 0.0)
