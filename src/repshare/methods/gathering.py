"""A server that needs each client's message of a round, not only their sum."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repshare.board import Wants
from repshare.errors import Refused
from repshare.learning.models import Network
from repshare.sharing import wire
from repshare.sharing.task import Task

Message = Mapping[str, NDArray[Any]]


def mean_by_samples(messages: Mapping[str, Message], samples: Mapping[str, int]) -> dict[str, NDArray[np.float64]]:
    """Return the mean of clients' arrays of the same names, in which a client counts by its samples."""
    total, mean = sum(samples.values()), dict[str, Any]()
    for client, message in messages.items():
        for name, array in message.items():
            mean[name] = mean.get(name, 0) + samples[client] / total * array.astype(np.float64)
    return {name: np.asarray(array) for name, array in mean.items()}


class Gathering:
    """The messages of the newest round by client. `combine` makes of them what comes back, whatever their order.

    A message of an older round, which a straggler sends, counts for nothing.
    """

    one_architecture = False

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        self.task, self.start, self.options = task, start, options
        self.round, self.sent = 0, dict[str, bytes]()
        self.first: Message = {}
        self._body: bytes | None = None

    def combine(self, messages: Mapping[str, Message], samples: Mapping[str, int]) -> Message:
        """Return what comes back, given what each client sent and how many samples it says it has."""
        raise NotImplementedError

    def check(self, client: str, message: Message) -> None:
        """Refuse what cannot be combined."""
        if not all(np.isfinite(array).all() for array in message.values()):
            raise Refused(f"{client} sent numbers that are not finite")

    def accept(self, client: str, body: bytes) -> None:
        """Keep a client's message. The first of a newer round ends the one before."""
        message, round, _ = wire.decode_weights(body)
        self.check(client, message)
        if round < self.round:
            return
        if round > self.round:
            self.end_round()
            self.round, self.sent = round, {}
        self.sent[client], self._body = body, None

    def end_round(self) -> None:
        """Note that no message of the newest round so far will come any more."""

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return what the newest round's messages make; `first` before there are any."""
        if self._body is None:
            self._body = wire.encode_weights(self._combined(), round=self.round, samples=len(self.sent))
        return self._body

    def _combined(self) -> Message:
        read = {client: wire.decode_weights(body) for client, body in sorted(self.sent.items())}
        messages = {client: message for client, (message, _, _) in read.items()}
        samples = {client: count for client, (_, _, count) in read.items()}
        return self.combine(messages, samples) if read else self.first

    def save(self) -> bytes:
        """Return all that is needed to continue to the same bits."""
        return wire.encode_items(self.sent)

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""
        self.sent, self._body = wire.decode_items(saved), None
        self.round = max((wire.decode_weights(body)[1] for body in self.sent.values()), default=0)
