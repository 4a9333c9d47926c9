"""Run in Flower's environment: a node's app is sent messages, and a server sends some; print what came, as JSON."""

import json
import sys
from types import SimpleNamespace

from flwr.app import ConfigRecord, Context, Error, Message, MessageType, RecordDict
from flwr.supercore.task_identity import TaskIdentity

from repshare.board import Wants
from repshare_flower import make_client_app, make_server_app, runs
from repshare_flower.apps import FlowerNodes


def send(app, context, kind, **fields):
    """The answer to this message."""
    content = RecordDict({"repshare": ConfigRecord(fields)})
    message = Message(content, dst_node_id=context.node_id, message_type=kind)
    message.metadata.__dict__["_message_id"] = "1"
    return app(message, context)


def fail(context):
    raise ValueError("the patient is called Ada")


def make_context(config, partition=0):
    """A node's, with nothing in its state."""
    node = {"partition-id": partition, "num-partitions": 2}
    return Context(run_id=1, node_id=5, node_config=node, state=RecordDict(), run_config=config)


def learn_twice(config, teacher):
    """What a node tells and keeps after two rounds, each of which finds what the one before has left."""
    kept, context = [], make_context(config)
    app = make_client_app(runs.make_client, report=True, keep=lambda client, _: kept.append(client.round_number))
    answers = [send(app, context, MessageType.TRAIN, round=number, teacher=teacher) for number in (1, 2)]
    last = send(app, context, MessageType.EVALUATE, round=2)
    releases = [answer.content["repshare"]["release"].hex() for answer in answers]
    return {"releases": releases, "accuracy": last.content["repshare"]["accuracy"], "kept": kept}


class Grid:
    """Two nodes, of which the second fails."""

    def send_and_receive(self, messages, *, timeout):
        self.sent, self.timeout = messages, timeout
        for number, message in enumerate(messages):
            message.metadata.__dict__["_message_id"] = str(number)
        first, second = messages
        yield Message(RecordDict({"repshare": ConfigRecord({"name": "a"})}), reply_to=first)
        yield Message(Error(code=0, reason="the client failed"), reply_to=second)


class SlowGrid:
    """Two nodes with real apps, of which the second is there from the third look on."""

    def __init__(self, config):
        self.looks, self.sent, self.app = 0, [], make_client_app(runs.make_client)
        self.contexts = {node: make_context(config, partition) for partition, node in enumerate((5, 6))}

    def get_node_ids(self):
        self.looks += 1
        return [5, 6] if self.looks > 2 else [5]

    def send_and_receive(self, messages, *, timeout):
        self.sent.append([messages[0].metadata.message_type, len(messages)])
        for message in messages:
            message.metadata.__dict__["_message_id"] = "1"
            yield self.app(message, self.contexts[message.metadata.dst_node_id])


def serve(config, wanted):
    """What a ServerApp sends in a run: kinds of messages, and to how many nodes."""
    grid = SlowGrid(config)
    make_server_app(lambda context: wanted._replace(rounds=1))(grid, make_context(config))
    return grid.sent


def ask_two(wanted):
    """What a server sends to two nodes, and gets back."""
    grid = Grid()
    answers = FlowerNodes(grid, wanted._replace(timeout=7.5)).ask("train", 3, {5: {"round": 3}, 6: {"round": 3}})
    sent = [[each.metadata.dst_node_id, each.metadata.message_type, each.metadata.group_id] for each in grid.sent]
    return {"sent": sent, "timeout": grid.timeout, "answers": {str(node): each for node, each in answers.items()}}


def main(config):
    TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 5  # as a node's process does
    context, app, said = make_context(config), make_client_app(runs.make_client), []
    wanted = runs.describe(SimpleNamespace(run_config=config))
    server = wanted.server
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
    twice = learn_twice(config, server.teach("client 1", Wants(1, 0)))
    print(json.dumps([*said, twice, serve(config, wanted), ask_two(wanted)]))


main(json.loads(sys.argv[1]))
