"""A Flower ClientApp as a method here: it trains each client's weights in this process, and they are averaged as FL's.

repshare compare --methods examples/flower/as_method.py:FLOWER --method-options FLOWER.app=my_app.py:app

The app is written for Flower's FedAvg: `train` takes an ArrayRecord "arrays" and a ConfigRecord "config", and answers
with an ArrayRecord. Its node_config has "data", a file with this client's samples, x and y, for numpy.load.
"""

import tempfile
import time
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from flwr.app import DEFAULT_TTL, ArrayRecord, ConfigRecord, Context, Message, MessageType, Metadata, RecordDict
from flwr.common.serde import recorddict_from_proto, recorddict_to_proto
from flwr.proto.recorddict_pb2 import RecordDict as Encoded

from repshare.imports import run_file
from repshare.measures import Record
from repshare.sharing import wire
from repshare_lab.methods import FL
from repshare_lab.methods.averaging import copy_into
from repshare_lab.methods.fedavg import WeightsLearner
from repshare_lab.methods.policies import refuse_privacy

load = lru_cache(run_file)  # once in a process


@dataclass(frozen=True)
class Options:
    """Set with --method-options FLOWER.app=my_app.py:app."""

    app: str = "my_app.py:app"
    """The ClientApp, as file.py:NAME."""


class FlowerLearner(WeightsLearner):
    """A learner that leaves its training to the app, whose Context keeps its state from round to round."""

    def __init__(self, *arguments: Any, **given: Any) -> None:
        super().__init__(*arguments, **given)
        self.app = getattr(load(self.options.app), self.options.app.rpartition(":")[2])
        self.remembered = {"round": torch.tensor(0), "state": torch.zeros(0, dtype=torch.uint8)}
        self.folder = tempfile.TemporaryDirectory()
        inputs, labels = self.samples.batch(torch.arange(len(self.samples)))
        np.savez(f"{self.folder.name}/samples.npz", x=inputs.cpu().numpy(), y=labels.cpu().numpy())

    def run_epochs(self) -> Record:
        """Let the app train from these weights, and take its own."""
        model, kept, policy = self.network.model, self.remembered, self.policy
        state = recorddict_from_proto(Encoded.FromString(kept["state"].numpy().tobytes()))
        run = {"local-epochs": policy.epochs, "batch-size": policy.batch_size}
        context = Context(1, 1, {"data": f"{self.folder.name}/samples.npz"}, state, run)
        config = ConfigRecord({"server-round": int(kept["round"]) + 1, "lr": policy.learning_rate})
        content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "config": config})
        about = Metadata(1, "1", 0, 1, "", "", time.time(), DEFAULT_TTL, MessageType.TRAIN)
        with self._own_noise():
            reply = self.app(Message(content, metadata=about), context)
        (arrays,) = reply.content.array_records.values()
        copy_into(model.state_dict(), {name: array.numpy() for name, array in arrays.items()})
        encoded = recorddict_to_proto(context.state).SerializeToString()
        kept["state"] = torch.from_numpy(np.frombuffer(encoded, np.uint8).copy())
        scores, labels = torch.from_numpy(self.scores(self.samples)), self.samples.labels
        ce, right = torch.nn.functional.cross_entropy(scores, labels), scores.argmax(dim=1) == labels
        return Record(ce=float(ce), train_accuracy=float(right.double().mean()))

    def absorb(self, body: bytes) -> None:
        """Continue from the average, and remember the number of its round."""
        super().absorb(body)
        self.remembered["round"] = torch.tensor(wire.decode_weights(body)[1])


refuse = partial(refuse_privacy, "FLOWER")  # the app's training is not private
FLOWER = FL._replace(
    name="FLOWER", title="a Flower ClientApp", options=Options(), learner=FlowerLearner.open, adapt=refuse,
)  # fmt: skip
