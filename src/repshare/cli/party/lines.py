"""A party's rounds as lines on the terminal: the first, one for each round, and the outcome."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Console

from repshare.cli import terminal
from repshare.cli.terminal import say
from repshare.records import to_json

if TYPE_CHECKING:
    from repshare.client import Record
    from repshare.measures import Measures
    from repshare.party.state import State
    from repshare.party.twins import Twins
    from repshare.space.learner import SpaceLearner


def first_line(state: "State") -> str:
    """The first line: the client, its task, its model and the folder of its state."""
    client, membership, folder = state.client, state.membership, state.folder.path
    learner, task = client.learner, membership.agreed
    resuming = f", resuming after round {client.round_number}" if client.round_number else ""
    size, means = f"{task.classes} classes, d' = {task.dimension}", learner.describe().name
    if learner.network is None:
        size, means = f"{learner.classes} classes", f"{means} of {learner.dimension:,} dimensions"
    place = f"in {membership.task}" if client.method.serve is not None else "alone"
    return (
        f"{client.name} {place} ({size}) with {means} and {len(learner.samples):,} samples{resuming}; state in {folder}"
    )


def round_line(record: "Record", space: "SpaceLearner | None") -> str:
    """Return the line of a round."""
    parts = [f"round {record.round:4}", f"loss {record.ce:6.3f}", f"train {record.train_accuracy:6.1%}"]
    if record.held_out is not None and record.held_out_alone is not None:
        parts[1:] = [_compare(record.held_out_alone, record.held_out, record.others, space)]
    elif record.others is not None:
        parts.append(f"with {_name_others(record.others)}" if record.others else "no other client yet")
    if record.test_accuracy is not None:
        parts.append(f"test {record.test_accuracy:6.1%}")
    parts += [f"up {terminal.traffic(record.bytes_up)}", f"down {terminal.traffic(record.bytes_down)}"]
    if record.in_use is not None:
        parts.append(f"uses {record.in_use}")
    if record.epsilon is not None:
        parts.append(f"ε {record.epsilon:.3g}")
    return "   ".join([*parts, *filter(None, (record.trouble, record.doubt))])


def _compare(alone: float, together: float, others: int | None, space: "SpaceLearner | None") -> str:
    judged_on = "samples" if space is None else space.judged_on
    return f"alone {alone:6.1%}, with {_name_others(others)} {together:6.1%} (own {judged_on})"


def _name_others(others: int | None) -> str:
    return "the others" if others is None else "1 other" if others == 1 else f"{others} others"


def print_summary(state: "State", twins: "Twins | None", console: Console, *, as_json: bool) -> None:
    """Print the outcome: from the records, and of a common classifier the one in hand; last, beside the twins."""
    client, lines, in_hand, compared = state.client, state.records.read(), dict[str, Any](), ""
    metrics = client.measure() if lines and client.test is not None else None
    up, down = (sum(line[way] for line in lines) for way in ("bytes_up", "bytes_down"))
    troubled = sum(line["trouble"] is not None for line in lines)
    name, rounds = client.name, client.round_number
    if client.learner.space is not None and lines:
        together, alone = client.learner.compare_held_out()
        in_hand = {"held_out_alone": alone, "held_out": together, "others": state.others}
        in_hand["classifier"] = str(state.classifier)
        compared = (
            ""
            if alone is None or together is None
            else f"{_compare(alone, together, state.others, client.learner.space)}; "
        )
    beside = {} if twins is None or not lines else twins.compare()
    if as_json:
        summary = {"client": name, "rounds": rounds, "test_accuracy": None if metrics is None else metrics.accuracy}
        summary |= {"metrics": None if metrics is None else asdict(metrics), "bytes_up": up, "bytes_down": down}
        summary |= {"troubled_rounds": troubled, **in_hand, **({"compared": beside} if beside else {})}
        print(to_json(summary), end="", flush=True)
        return
    tests = "" if metrics is None else f"test accuracy {metrics.accuracy:.2%} ({_in_words(metrics)}); "
    trouble = f"; trouble in {troubled} of them" if troubled else ""
    sent = f"sent {terminal.traffic(up)} and received {terminal.traffic(down)} in all"
    sent = sent if client.method.serve is not None else "nothing was sent"
    say(console, f"{name} after {rounds} rounds: {compared}{tests}{sent}{trouble}", "bold")
    if lines and lines[-1]["trouble"] and not lines[-1]["bytes_up"]:
        say(console, "the last release was not sent", "yellow")
    if in_hand:
        say(
            console,
            f"the classifier is in {state.classifier}: repshare predict, export and load_classifier use it",
            "bold",
        )
    if lines and client.learner.network is not None:
        say(console, f"the model is in {state.model}: repshare predict, export and safetensors use it", "bold")
    if twins is not None and beside:
        say(console, _compare_all(twins, beside), "bold")


def _in_words(metrics: "Measures") -> str:
    auroc = "" if metrics.auroc is None else f"AUROC {metrics.auroc:.3f}, "
    return f"balanced {metrics.balanced_accuracy:.2%}, {auroc}calibration error {metrics.calibration_error:.3f}"


def _compare_all(twins: "Twins", beside: dict[str, float | None]) -> str:
    from repshare.party.twins import NETWORK

    told = {title: "not yet known" if value is None else f"{value:.1%}" for title, value in beside.items()}
    if NETWORK in told:
        network = twins.clients[NETWORK]
        told[NETWORK] += f" (after {network.round_number * network.policy.epochs} epochs)"
    return f"{', '.join(f'{title} {value}' for title, value in told.items())} ({twins.tested_on})"
