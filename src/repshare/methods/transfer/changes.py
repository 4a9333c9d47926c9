"""A server that keeps the mean change of each round, as a few singular vectors."""

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from repshare.board import Wants
from repshare.errors import Refused
from repshare.learning.models import Network
from repshare.methods.gathering import Gathering, Message, mean_by_samples
from repshare.methods.transfer.low_rank import compress, expand
from repshare.sharing import wire
from repshare.sharing.task import Task


class MeanChanges(Gathering):
    """The mean change of each round. A client gets those since its last message: it knew the ones before."""

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        super().__init__(task, start, options)
        self.history, self.last = dict[str, bytes](), dict[str, int]()

    def check(self, client: str, message: Message) -> None:
        """Refuse a change of another mentee."""
        super().check(client, message)
        first = wire.decode_weights(next(iter(self.sent.values())))[0] if self.sent else message
        try:
            same = [{name: x.shape for name, x in expand(each).items()} for each in (message, first)]
        except ValueError as error:
            raise Refused(f"{client}'s change cannot be put together: {error}") from error
        if same[0] != same[1]:
            raise Refused(f"{client}'s change is of another mentee: all need the same one")

    def combine(self, messages: Mapping[str, Message], samples: Mapping[str, int]) -> Message:
        """Return the mean change by samples, compressed."""
        mean = mean_by_samples({client: expand(message) for client, message in messages.items()}, samples)
        return compress({name: x.astype(np.float32) for name, x in mean.items()}, self.options.energy(self.round))

    def accept(self, client: str, body: bytes) -> None:
        """Keep a client's change, and note which ones it knew when it made it."""
        super().accept(client, body)
        self.last[client] = max(self.last.get(client, 0), wire.decode_weights(body)[1])

    def end_round(self) -> None:
        """Keep the mean change of the newest round."""
        if self.sent:
            self.history[str(self.round)] = super().teach("", Wants(0, 0))

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return the mean changes since the client's last message, oldest first."""
        newest = {str(self.round): super().teach(client, wants)} if self.sent else {}
        known = self.last.get(client, 0)
        return wire.encode_items({n: body for n, body in {**self.history, **newest}.items() if int(n) >= known})

    def save(self) -> bytes:
        """Return all that is needed to continue to the same bits."""
        items = {"history": wire.encode_items(self.history), "last": json.dumps(self.last).encode()}
        return wire.encode_items({"sent": super().save(), **items})

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""
        items = wire.decode_items(saved)
        super().load(items["sent"])
        self.history, self.last = wire.decode_items(items["history"]), json.loads(items["last"])
