"""The server's side: who takes part, and a round of questions and answers."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, Protocol

from repshare.board import Server
from repshare.errors import ExchangeError, Refused, Unreachable, WorkerFailed
from repshare.methods import Method
from repshare_flower.messages import Fields, NodeAnswer, NodeQuestion, read_answer, write_question
from repshare_flower.nodes import check_method


class FlowerRun(NamedTuple):
    """A collaboration, for the server's app."""

    method: Method
    """The method of all clients."""
    server: Server | None
    """What is between them: a `Board`, or whatever `method.serve` returns. None for a method that shares nothing."""
    rounds: int
    """Number of rounds."""
    clients: int = 1
    """Number of clients to wait for before the first round. More may join later."""
    timeout: float | None = None
    """Seconds to wait for the answers of a round; those that come later are lost. Default: until all are there."""


class ServedRound(NamedTuple):
    """The account of a round, as far as a server sees it."""

    round: int
    answered: int
    """Number of clients that answered."""
    accepted: tuple[str, ...]
    """Names of the clients whose releases were accepted."""
    refused: tuple[str, ...]
    """A line for each client without: who, and why."""
    bytes_up: int
    bytes_down: int
    accuracy: dict[str, float]
    """The test accuracy of each client that reports it, after the last round."""


class Nodes(Protocol):
    """The nodes of a run, each of which has a client."""

    def present(self) -> Collection[int]:
        """Return those that are there now."""

    def ask(self, kind: str, round: int, questions: Mapping[int, Fields]) -> Mapping[int, Fields]:
        """Send each its question. Return the answers of those that have one."""


def collaborate(nodes: Nodes, wanted: FlowerRun) -> Iterator[ServedRound]:
    """Carry out a run's rounds, and the test after the last; yield a report after each.

    All teachers of a round are made before the first of its releases is accepted, and releases are accepted in the
    order of names: the order of arrival makes no difference.
    """
    check_method(wanted.method)
    circle = Circle(nodes, wanted)
    for number in range(1, wanted.rounds + 1):
        yield circle.round(number)
    yield circle.finish(wanted.rounds)


class Circle:
    """The clients that take part, by node, with the last answer of each."""

    def __init__(self, nodes: Nodes, wanted: FlowerRun) -> None:
        self.nodes, self.method, self.server = nodes, wanted.method, wanted.server
        self.members: dict[int, NodeAnswer] = {}
        self._refused: list[str] = []

    def round(self, number: int) -> ServedRound:
        """Hand out teachers, and accept releases."""
        self._refused = []
        self._welcome(number)
        questions = {node: NodeQuestion(number, self._teach(each)) for node, each in self.members.items()}
        answers = self._ask("train", number, questions)
        if not answers:
            raise WorkerFailed(f"round {number}: no client answered; {'; '.join(self._refused) or 'there is none'}")
        accepted = [each.name for each in sorted(answers.values(), key=_by_name) if self._accept(each)]
        up = sum(len(each.release or b"") for each in answers.values())
        return ServedRound(number, len(answers), tuple(accepted), tuple(self._refused), up, _weigh(questions), {})

    def finish(self, number: int) -> ServedRound:
        """Give each client the server's part of what it has learned, if there is one; note what it reports."""
        self._refused = []
        questions = {node: NodeQuestion(number, self._servers_part(each)) for node, each in self.members.items()}
        answers = sorted(self._ask("evaluate", number, questions).values(), key=_by_name)
        accuracy = {each.name: each.accuracy for each in answers if each.accuracy is not None}
        return ServedRound(number, len(answers), (), tuple(self._refused), 0, _weigh(questions), accuracy)

    def _welcome(self, number: int) -> None:
        """Forget nodes that have left, and ask new ones who they are."""
        there = set(self.nodes.present())
        self.members = {node: answer for node, answer in self.members.items() if node in there}
        self._ask("query", number, {node: NodeQuestion(number - 1) for node in sorted(there - set(self.members))})

    def _ask(self, kind: str, number: int, questions: Mapping[int, NodeQuestion]) -> dict[int, NodeAnswer]:
        """Return the answers that can be read. Each is a member's, who keeps the name of its first answer."""
        asked = {node: write_question(question) for node, question in questions.items()}
        received, answers = self.nodes.ask(kind, number, asked) if asked else {}, dict[int, NodeAnswer]()
        for node in asked:
            try:
                answers[node] = self.members[node] = self._read(node, received)
            except ExchangeError as error:
                self._refused.append(f"node {node}: {error}")
        return answers

    def _read(self, node: int, received: Mapping[int, Fields]) -> NodeAnswer:
        if node not in received:
            raise Unreachable("no answer")
        answer = read_answer(received[node])
        if node in self.members and answer.name != self.members[node].name:
            raise Refused(f"it calls itself {answer.name}, and was {self.members[node].name} before")
        if any(other != node and each.name == answer.name for other, each in self.members.items()):
            raise Refused(f"there is another {answer.name}: give each client a name of its own")
        return answer

    def _teach(self, member: NodeAnswer) -> bytes | None:
        """Return a client's teacher. If what it wants is refused, it gets none, and continues with the last one."""
        try:
            return None if self.server is None else self.server.teach(member.name, member.wants)
        except ExchangeError as error:
            self._refused.append(f"{member.name}: {error}")
            return None

    def _servers_part(self, member: NodeAnswer) -> bytes | None:
        """Return the server's part of what a client is tested with, if it has any."""
        if self.method.models not in ("one", "part"):
            return None
        return self._teach(member)

    def _accept(self, answer: NodeAnswer) -> bool:
        """Whether there was a release and the server took it."""
        try:
            if answer.release is None or self.server is None:
                return False
            self.server.accept(answer.name, answer.release)
        except ExchangeError as error:
            self._refused.append(f"{answer.name}: {error}")
            return False
        return True


def _by_name(answer: NodeAnswer) -> tuple[int, str]:
    return len(answer.name), answer.name  # client 2 comes before client 10


def _weigh(questions: Mapping[int, NodeQuestion]) -> int:
    return sum(len(question.teacher or b"") for question in questions.values())
