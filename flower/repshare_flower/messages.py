"""The contents of the messages between a server and its nodes, and their checks on entry."""

from collections.abc import Mapping
from typing import Any, NamedTuple, get_args

from repshare.board import Wants
from repshare.config import Precision
from repshare.errors import Malformed
from repshare.sharing.task import MOST_OBSERVATIONS, MOST_ROUNDS

Fields = dict[str, Any]  # of one message: whole numbers, numbers, words, lists of words, bytes

MOST_PEERS, MOST_LETTERS = 200, 100  # peers in one answer, and letters of a name
MOST_SEED = 2**63 - 1
PRECISIONS = get_args(Precision)


class NodeQuestion(NamedTuple):
    """A server's message to a node."""

    round: int
    """The round to carry out; 0 before the first."""
    teacher: bytes | None = None
    """What the node learns from in this round, if the method has a server."""


class NodeAnswer(NamedTuple):
    """A node's message to the server: all that leaves it."""

    name: str
    """The client's name."""
    wants: Wants
    """What it asks for in its next round."""
    release: bytes | None = None
    """What it shares after this round, exactly as an exchange would publish it."""
    accuracy: float | None = None
    """Its test accuracy, if it chose to report it."""


def write_question(question: NodeQuestion) -> Fields:
    """Return a question as a record."""
    return _without_gaps(question._asdict())


def read_question(record: Mapping[str, Any]) -> NodeQuestion:
    """Return the question that a record holds. Raises Malformed if it holds none."""
    teacher = record.get("teacher")
    if teacher is not None and not isinstance(teacher, bytes):
        raise Malformed("a teacher must be bytes")
    return NodeQuestion(_whole(record, "round", MOST_ROUNDS), teacher)


def write_answer(answer: NodeAnswer) -> Fields:
    """Return an answer as a record."""
    told, wants = answer._asdict(), answer.wants._asdict()
    del told["wants"]
    if answer.wants.peers is not None:
        wants["peers"] = list(answer.wants.peers)
    return _without_gaps({**told, **wants})


def read_answer(record: Mapping[str, Any]) -> NodeAnswer:
    """Return the answer that a record holds. Raises Malformed if it holds none."""
    name, release, accuracy = record.get("name"), record.get("release"), record.get("accuracy")
    if not isinstance(name, str) or not 0 < len(name) <= MOST_LETTERS or not name.isprintable():
        raise Malformed(f"a name must have 1 to {MOST_LETTERS} printable characters")
    if release is not None and not isinstance(release, bytes):
        raise Malformed(f"{name}: a release must be bytes")
    if accuracy is not None and not (isinstance(accuracy, float) and 0 <= accuracy <= 1):
        raise Malformed(f"{name}: an accuracy must be a number from 0 to 1")
    return NodeAnswer(name, _read_wants(record), release, accuracy)


def _read_wants(record: Mapping[str, Any]) -> Wants:
    peers, precision = record.get("peers"), str(record.get("precision"))
    if peers is not None and not (
        isinstance(peers, list) and len(peers) <= MOST_PEERS and all(isinstance(peer, str) for peer in peers)
    ):
        raise Malformed(f"peers must be at most {MOST_PEERS} names")
    if precision not in PRECISIONS:
        raise Malformed(f"precision must be one of {', '.join(PRECISIONS)}")
    observations, seed = _whole(record, "observations", MOST_OBSERVATIONS), _whole(record, "seed", MOST_SEED)
    return Wants(observations, seed, None if peers is None else tuple(peers), precision=precision)


def _whole(record: Mapping[str, Any], name: str, most: int) -> int:
    value = record.get(name)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise Malformed(f"{name} must be a whole number from 0 to {most}")
    return value


def _without_gaps(fields: Mapping[str, Any]) -> Fields:
    """Return the fields that have a value: a record of Flower's has no None."""
    return {name: value for name, value in fields.items() if value is not None}
