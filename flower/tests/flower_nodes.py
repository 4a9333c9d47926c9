"""Nodes in this process, with real clients of a run: what Flower's are, without Flower."""

from types import SimpleNamespace

from repshare_flower import runs
from repshare_flower.messages import read_question, write_answer
from repshare_flower.nodes import finish, introduce, take_part
from repshare_lab.simulation.plan import make_run, resolve
from repshare_lab.simulation.workers import encode_model

SMALL = {"dataset": "digits", "samples": 120, "clients": 2, "partition": "shards", "classes_per_client": 5, "rounds": 2}


def context(config, **node):
    """What Flower hands to an app, as far as a run needs it."""
    node = {name.replace("_", "-"): value for name, value in node.items()}
    return SimpleNamespace(run_config=config, node_config=node)


def same_run(config, splits):
    """The run that a configuration describes, for the simulator."""
    run = runs.read_run(config)
    return make_run(run.method, run.seed, resolve(run.setting, splits))


class LocalNodes:
    """Clients that are made anew for every message, and keep their state as bytes."""

    def __init__(self, config, clients=2, *, report=False):
        self.config, self.report = config, report
        self.there = list(range(clients))
        self.states, self.files, self.sent = {}, {}, []

    def client(self, node):
        client = runs.make_client(context(self.config, partition_id=node))
        if node in self.states:
            client.load(self.states[node])
        return client

    def present(self):
        return self.there

    def ask(self, kind, round, questions):
        return {node: self.answer(kind, node, read_question(fields)) for node, fields in questions.items()}

    def answer(self, kind, node, question):
        client = self.client(node)
        if kind == "query":
            answer = introduce(client, question)
        elif kind == "train":
            answer, _ = take_part(client, question)
        else:
            answer, _ = finish(client, question, report=self.report)
            self.files[client.name] = encode_model(client)
        if kind != "query":
            self.states[node] = client.save()
        self.sent.append(write_answer(answer))
        return self.sent[-1]
