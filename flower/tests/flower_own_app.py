"""A ClientApp as Flower's users write one: SGD on the whole data, in PyTorch. Its state counts its rounds."""

import numpy as np
import torch
from flwr.app import ArrayRecord, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch.nn import functional as F

from repshare import LeNet5

app = ClientApp()


@app.train()
def train(message, context):
    before = context.state.get("count", MetricRecord({"rounds": 0}))["rounds"]
    config = message.content["config"]
    assert config["server-round"] == before + 1, "the state is that of the round before"
    context.state["count"] = MetricRecord({"rounds": before + 1})
    data = np.load(context.node_config["data"])
    inputs, labels = torch.from_numpy(data["x"]), torch.from_numpy(data["y"])
    model = LeNet5()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
    for _ in range(context.run_config["local-epochs"]):
        optimizer.zero_grad()
        F.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    metrics = MetricRecord({"num-examples": len(labels)})
    content = RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics})
    return Message(content, reply_to=message)
