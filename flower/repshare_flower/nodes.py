"""A node's side: a client's answers to the server's questions."""

from repshare.board import Wants
from repshare.client import Client, make_wants
from repshare.errors import ConfigError
from repshare.measures import Record
from repshare.methods import Method
from repshare_flower.messages import NodeAnswer, NodeQuestion
from repshare_lab.simulation.workers import Mailbox


def check_method(method: Method) -> None:
    """Raise ConfigError if a round of this method is not one message to each client and one back."""
    if method.sends_batches:
        raise ConfigError(f"{method.name} sends every batch, and a message is a whole round: use the simulator")
    if method.models == "pooled":
        raise ConfigError(f"{method.name} has all data in one place: use the simulator")


def introduce(client: Client, question: NodeQuestion) -> NodeAnswer:
    """Return the client's name, and what it asks for in the round that follows."""
    client.round_number = question.round
    return NodeAnswer(client.name, _next_wants(client))


def take_part(client: Client, question: NodeQuestion) -> tuple[NodeAnswer, Record]:
    """Carry out a round: `Client.round`, with an exchange whose other end is a message. The record stays here."""
    box = Mailbox(question.teacher or b"")
    client.exchange = box
    client.round_number = question.round - 1  # the run's round, also for one who has missed some
    record = client.round(test=False)
    return NodeAnswer(client.name, _next_wants(client), box.outbox), record


def finish(client: Client, question: NodeQuestion, *, report: bool) -> tuple[NodeAnswer, float | None]:
    """Take the server's part of what was learned, if there is one. The test accuracy is in the answer only if asked."""
    if question.teacher is not None and client.method.serve is not None:
        client.learner.absorb(question.teacher)
    accuracy = client.evaluate() if client.test else None
    return NodeAnswer(client.name, _next_wants(client), accuracy=accuracy if report else None), accuracy


def _next_wants(client: Client) -> Wants:
    return make_wants(client.method, client.policy, client.seed, client.name, client.round_number + 1)
