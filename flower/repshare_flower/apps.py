"""Flower's two apps: a ClientApp around clients, and a ServerApp around what is between them.

Flower is imported when an app is made: what is between the apps is tested, and described, without it.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from repshare.client import Client
from repshare.imports import missing
from repshare_flower.messages import Fields, NodeAnswer, NodeQuestion, read_question, write_answer
from repshare_flower.nodes import finish, introduce, take_part
from repshare_flower.rounds import FlowerRun, ServedRound, collaborate

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

KEY = "repshare"  # of the one record in each message, and in a node's state
POLL_SECONDS, REMINDER_SECONDS = 0.5, 10.0
log = logging.getLogger("flwr")  # the one that Flower shows; a node's stays on the node


def make_client_app(
    make_client: "Callable[[Context], Client]",
    *,
    report: bool = False,
    keep: "Callable[[Client, Context], None] | None" = None,
) -> "ClientApp":
    """Return Flower's ClientApp for clients of this package.

    A client is made anew for every message. What it has learned is kept between them in the Context, which Flower
    leaves on the node and stores together with the answer: a round counts for both or for neither.

    Args:
        make_client: Returns the node's client: for the same Context always the same model, data, name and seed. The
            Context has the configuration of the node and of the run.
        report: Whether the test accuracy after the last round leaves the node, if the client has test data.
        keep: Called on the node after the last round, with the client and the Context: to keep what was learned.
    """
    _import_flower()
    from flwr.clientapp import ClientApp

    app, client = ClientApp(), FlowerClient(make_client, report=report, keep=keep)
    app.query()(_answering(client.query))
    app.train()(_answering(client.train))
    app.evaluate()(_answering(client.evaluate))
    return app


class FlowerClient:
    """A node's client, made for each message and brought to where the last one left it."""

    def __init__(
        self,
        make_client: "Callable[[Context], Client]",
        *,
        report: bool,
        keep: "Callable[[Client, Context], None] | None",
    ) -> None:
        self.make_client, self.report, self.keep = make_client, report, keep

    def query(self, context: "Context", question: NodeQuestion) -> NodeAnswer:
        """Tell the client's name, and what it wants."""
        return introduce(self._load(context), question)

    def train(self, context: "Context", question: NodeQuestion) -> NodeAnswer:
        """Carry out a round."""
        client = self._load(context)
        answer, record = take_part(client, question)
        self._save(client, context)
        trouble = f"; {record.trouble}" if record.trouble else ""
        log.info(
            "%s, round %d: %.1f %% of its samples%s", client.name, record.round, 100 * record.train_accuracy, trouble
        )
        return answer

    def evaluate(self, context: "Context", question: NodeQuestion) -> NodeAnswer:
        """Finish, test, and keep what was learned."""
        client = self._load(context)
        answer, accuracy = finish(client, question, report=self.report)
        self._save(client, context)
        log.info("%s: test accuracy %s", client.name, "not known" if accuracy is None else f"{accuracy:.2%}")
        if self.keep is not None:
            self.keep(client, context)
        return answer

    def _load(self, context: "Context") -> Client:
        client = self.make_client(context)
        if KEY in context.state:
            client.load(context.state[KEY]["client"])
        return client

    def _save(self, client: Client, context: "Context") -> None:
        from flwr.app import ConfigRecord

        context.state[KEY] = ConfigRecord({"client": client.save()})


def _answering(work: "Callable[[Context, NodeQuestion], NodeAnswer]") -> "Callable[[Message, Context], Message]":
    """Return the function that Flower calls with a message."""
    from flwr.app import ConfigRecord, Message, RecordDict

    def answer(message: "Message", context: "Context") -> "Message":
        try:
            told = write_answer(work(context, read_question(message.content[KEY])))
        except Exception as error:  # also an error in the user's code
            # Flower sends an error's text to the server. It may quote samples, so it stays in the node's log.
            raise RuntimeError("the client failed: see the log of its node") from error
        return Message(RecordDict({KEY: ConfigRecord(told)}), reply_to=message)

    return answer


def make_server_app(describe: "Callable[[Context], FlowerRun]") -> "ServerApp":
    """Return Flower's ServerApp for what is between clients of this package.

    Args:
        describe: Returns the run: the method, its server, the rounds, how many clients to wait for. It is
            given Flower's Context, which has the configuration of the run.
    """
    _import_flower()
    from flwr.serverapp import ServerApp

    def main(grid: "Grid", context: "Context") -> None:
        wanted = describe(context)
        nodes = FlowerNodes(grid, wanted)
        nodes.wait()
        for report in collaborate(nodes, wanted):
            tell(report)

    app = ServerApp()
    app.main()(main)
    return app


class FlowerNodes:
    """The SuperNodes of a run, real or simulated."""

    def __init__(self, grid: "Grid", wanted: FlowerRun) -> None:
        self.grid, self.wanted = grid, wanted

    def wait(self) -> None:
        """Return when as many are there as the run waits for."""
        told = 0.0
        while (count := len(self.present())) < self.wanted.clients:
            if time.monotonic() > told + REMINDER_SECONDS:
                told = time.monotonic()
                log.info("waiting for %d clients: %d are there", self.wanted.clients, count)
            time.sleep(POLL_SECONDS)

    def present(self) -> Collection[int]:
        """Return the nodes that are there now."""
        return list(self.grid.get_node_ids())

    def ask(self, kind: str, round: int, questions: Mapping[int, Fields]) -> Mapping[int, Fields]:
        """Send a message to each node, and wait for the replies. A node's error is in its own log."""
        from flwr.app import ConfigRecord, Message, RecordDict

        messages = [
            Message(RecordDict({KEY: ConfigRecord(fields)}), dst_node_id=node, message_type=kind, group_id=str(round))
            for node, fields in questions.items()
        ]
        answers = dict[int, Fields]()
        for reply in self.grid.send_and_receive(messages, timeout=self.wanted.timeout):
            if reply.has_error():
                log.warning("node %d: %s", reply.metadata.src_node_id, reply.error.reason)
            else:
                answers[reply.metadata.src_node_id] = dict(reply.content.get(KEY, {}))
        return answers


def tell(report: ServedRound) -> None:
    """Log a report."""
    for line in report.refused:
        log.warning("round %d: %s", report.round, line)
    if report.accuracy:
        told = ", ".join(f"{name} {accuracy:.2%}" for name, accuracy in report.accuracy.items())
        log.info("test accuracy after round %d: %s", report.round, told)
    elif report.answered:
        log.info("round %d: %d clients, %d releases accepted, %s bytes up, %s bytes down", report.round,
                 report.answered, len(report.accepted), f"{report.bytes_up:,}", f"{report.bytes_down:,}")  # fmt: skip


def _import_flower() -> Any:
    """Import Flower. Raises ConfigError with what to install if it is not there."""
    try:
        import flwr
    except ModuleNotFoundError as error:
        raise missing(error) from error
    return flwr
