"""Run in Flower's environment: one node's app is sent each kind of message; print what it answers, as JSON."""

import json
import sys
from types import SimpleNamespace

from flwr.app import ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from repshare import make_client_app
from repshare.board import Wants
from repshare.simulation.flower import runs


def send(app, context, kind, **fields):
    """The answer to this message."""
    content = RecordDict({"repshare": ConfigRecord(fields)})
    message = Message(content, dst_node_id=context.node_id, message_type=kind)
    message.metadata.__dict__["_message_id"] = "1"
    return app(message, context)


def fail(context):
    raise ValueError("the patient is called Ada")


def main(config):
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 5  # as a node's process does
    node = {"partition-id": 0, "num-partitions": 2}
    context = Context(run_id=1, node_id=5, node_config=node, state=RecordDict(), run_config=config)
    app = make_client_app(runs.make_client)
    said = []
    server = runs.describe(SimpleNamespace(run_config=config)).server
    for kind, question in (
        (MessageType.QUERY, {"round": 0}),
        (MessageType.TRAIN, {"round": 1, "teacher": server.teach("client 1", Wants(1, 0))}),
        (MessageType.EVALUATE, {"round": 1}),
    ):
        reply = send(app, context, kind, **question)
        whole = b"".join(part.deflate() for part in (reply, reply.content, *reply.content.values()))
        record = reply.content["repshare"]
        fields = {name: value.hex() if isinstance(value, bytes) else value for name, value in record.items()}
        said.append({"kind": kind, "records": sorted(reply.content), "fields": fields, "bytes": len(whole)})
    try:
        send(make_client_app(fail), context, MessageType.TRAIN, round=1)
    except RuntimeError as error:
        said.append({"kind": "error", "text": f"{type(error).__name__}: {error}"})
    print(json.dumps(said))


main(json.loads(sys.argv[1]))
