"""A server with layers of its own, larger than a client's head, which it trains on clients' features."""

import io
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from repshare.board import Wants
from repshare.errors import Refused
from repshare.learning.models import Network
from repshare.learning.randomness import derive, torch_stream
from repshare.learning.samples import shuffle
from repshare.learning.states import copy_state
from repshare.methods.averaging import as_arrays
from repshare.methods.gathering import Gathering, Message
from repshare.sharing import wire
from repshare.sharing.task import Task

BATCH = 64  # samples in a step of the server's


def softened(student: Tensor, teacher: Tensor, temperature: float) -> Tensor:
    """Return T² KL(softmax(teacher/T), softmax(student/T)), averaged over the batch."""
    logs, wanted = (student / temperature).log_softmax(dim=1), (teacher / temperature).softmax(dim=1)
    return temperature**2 * F.kl_div(logs, wanted, reduction="batchmean")


def make_layers(dimension: int, classes: int, hidden: int, seed: int) -> nn.Sequential:
    """Return the server's layers."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(
            nn.Linear(dimension, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, classes)
        )


class LargerServer(Gathering):
    """Layers and their optimizer as they were before the newest round, whose messages train them when first asked for.

    So clients of a round may come in any order, and a run that was interrupted trains again to the same bits.
    """

    def __init__(self, task: Task, start: Network | None = None, options: Any = None) -> None:
        super().__init__(task, start, options)
        self.equip(0, None)

    def equip(self, seed: int, public: object) -> None:
        """Begin with layers of this seed."""
        self.seed = seed
        self.layers = make_layers(self.task.dimension, self.task.classes, self.options.hidden, derive(seed, "server"))
        self.optimizer = torch.optim.Adam(self.layers.parameters(), lr=self.options.server_rate)
        self._before = copy_state(self._state())

    def check(self, client: str, message: Message) -> None:
        """Refuse what is not a row of features, a row of logits and a class for each sample."""
        super().check(client, message)
        shapes, count = {name: array.shape for name, array in message.items()}, len(message.get("labels", ()))
        wanted = {"features": (count, self.task.dimension), "logits": (count, self.task.classes), "labels": (count,)}
        if not count or shapes != wanted or not np.isin(message["labels"], np.arange(self.task.classes)).all():
            raise Refused(f"{client} sent {shapes}, not features, logits and classes of its samples")

    def end_round(self) -> None:
        """Go on from what the newest round has made."""
        self.teach("", Wants(0, 0))
        self._before = copy_state(self._state())

    def teach(self, client: str, wants: Wants) -> bytes:
        """Return the logits for this client's samples of the newest round; no arrays if it was absent."""
        super().teach(client, wants)  # trains, unless that is done
        if client not in self.sent:
            return wire.encode_weights({}, round=self.round, samples=0)
        features = wire.decode_weights(self.sent[client])[0]["features"]
        with torch.no_grad():
            logits = self.layers(torch.from_numpy(features)).numpy()
        return wire.encode_weights({"logits": logits}, round=self.round, samples=len(logits))

    def lend(self) -> bytes:
        """Return the layers, for a test. In use, clients would send features and get classes back."""
        super().teach("", Wants(0, 0))
        layers = {f"server {name}": array for name, array in as_arrays(self.layers.state_dict()).items()}
        return wire.encode_weights(layers, round=self.round, samples=0)

    def combine(self, messages: Mapping[str, Message], samples: Mapping[str, int]) -> Message:
        """Train on all clients' features, from the state before this round."""
        self._load(copy_state(self._before))
        names = ("features", "logits", "labels")
        features, logits, labels = (
            torch.from_numpy(np.concatenate([each[name] for each in messages.values()])) for name in names
        )
        draws = torch_stream(self.seed, "server", "batches", self.round)
        for _ in range(self.options.server_epochs):
            for part in shuffle(len(labels), BATCH, draws):
                own = self.layers(features[part])
                loss = F.cross_entropy(own, labels[part].long())
                loss = loss + self.options.beta * softened(own, logits[part], self.options.temperature)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
        return {}

    def save(self) -> bytes:
        """Return all that is needed to continue to the same bits."""
        kept = io.BytesIO()
        torch.save(self._before, kept)
        return wire.encode_items({"state": kept.getvalue(), "sent": super().save()})

    def load(self, saved: bytes) -> None:
        """Continue from what `save` returned."""
        items = wire.decode_items(saved)
        self._before = torch.load(io.BytesIO(items["state"]), weights_only=True)
        self._load(copy_state(self._before))
        super().load(items["sent"])

    def _state(self) -> dict[str, Any]:
        return {"layers": self.layers.state_dict(), "optimizer": self.optimizer.state_dict()}

    def _load(self, state: dict[str, Any]) -> None:
        self.layers.load_state_dict(state["layers"])
        self.optimizer.load_state_dict(state["optimizer"])
