"""A party's rounds as lines on the terminal: the first, one for each round, and the outcome."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from rich.console import Console

from repshare.cli import terminal
from repshare.cli.terminal import say

if TYPE_CHECKING:
    from repshare.learner import Learner
    from repshare.measures import Measures
    from repshare.party.controls import Controls
    from repshare.party.state import OwnRecord, State


def first_line(state: "State") -> str:
    """The first line: the client, its task, its model and the folder of its state."""
    client, membership, folder = state.client, state.membership, state.folder.path
    learner = client.learner
    resuming = f", resuming after round {client.round_number}" if client.round_number else ""
    size, means = f"{learner.classes} classes, d' = {learner.dimension:,}", learner.describe().name
    samples = f"{len(learner.samples):,} samples{resuming}"
    return f"{client.name} in {membership.task} ({size}) with {means} and {samples}; state in {folder}"


def round_line(record: "OwnRecord", judged_on: str) -> str:
    """The line of a round; `judged_on`: the samples that tell whether others help."""
    parts = [f"round {record.round:4}", f"loss {record.ce:6.3f}", f"train {record.train_accuracy:6.1%}"]
    if record.gains is not None:
        parts[1:] = [_tell(record.gains, record.others)]
    elif record.held_out is not None and record.held_out_alone is not None:
        parts[1:] = [_compare(record.held_out_alone, record.held_out, record.others, judged_on)]
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


def _compare(alone: float, together: float, others: int | None, judged_on: str) -> str:
    return f"alone {alone:6.1%}, with {_name_others(others)} {together:6.1%} (own {judged_on})"


def gain(learner: "Learner") -> str:
    """What the total in hand gains over a client's own samples, each left out in turn."""
    from repshare.party.state import describe_gains

    learner.gains = learner.compare_classes()
    gains = describe_gains(learner)
    return "the total has no part of others" if gains is None else _tell(gains, None)


def _tell(gains: Mapping[str, Any], others: int | None) -> str:
    told = [f"alone {_in_short(gains['alone'])}", f"with {_name_others(others)} {_in_short(gains['together'])}"]
    return f"{', '.join(told)} (own samples left out in turn)"


def _in_short(score: Mapping[str, Any]) -> str:
    beside = (
        "" if score["class"] is None else f" (balanced {score['balanced']:.1%}, {score['class']} {score['worst']:.1%})"
    )
    return f"{score['accuracy']:6.1%}{beside}"


def _name_others(others: int | None) -> str:
    return "the others" if others is None else "1 other" if others == 1 else f"{others} others"


def print_summary(state: "State", controls: "Controls | None", console: Console) -> None:
    """Print the outcome: from the records, and of what is in hand; last, beside the controls."""
    client, lines = state.client, state.records.read()
    metrics = client.measure() if lines and client.test is not None else None
    up, down = (sum(line[way] for line in lines) for way in ("bytes_up", "bytes_down"))
    troubled = sum(line["trouble"] is not None for line in lines)
    name, rounds = client.name, client.round_number
    together, alone = client.learner.compare_held_out() if lines else (None, None)
    beside = {} if controls is None or not lines else controls.compare()
    tests = "" if metrics is None else f"test accuracy {metrics.accuracy:.2%} ({_in_words(metrics)}); "
    trouble = f"; trouble in {troubled} of them" if troubled else ""
    sent = f"sent {terminal.traffic(up)} and received {terminal.traffic(down)} in all"
    compared = ""
    if lines and (gains := lines[-1].get("gains")):
        compared = f"{_tell(gains, state.others)}; "
    elif alone is not None and together is not None:
        compared = f"{_compare(alone, together, state.others, client.learner.judged_on)}; "
    say(console, f"{name} after {rounds} rounds: {compared}{tests}{sent}{trouble}", "bold")
    if lines and lines[-1]["trouble"] and not lines[-1]["bytes_up"]:
        say(console, "the last release was not sent", "yellow")
    for path in state.learned:
        say(console, f"the {path.stem} is in {path}: repshare predict and export use it", "bold")
    if controls is not None and beside:
        say(console, _compare_all(controls, beside), "bold")


def _in_words(metrics: "Measures") -> str:
    auroc = "" if metrics.auroc is None else f"AUROC {metrics.auroc:.3f}, "
    return f"balanced {metrics.balanced_accuracy:.2%}, {auroc}calibration error {metrics.calibration_error:.3f}"


def _compare_all(controls: "Controls", beside: dict[str, float | None]) -> str:
    told = [f"{title} {'not yet known' if value is None else f'{value:.1%}'}" for title, value in beside.items()]
    return f"{', '.join(told)} ({controls.tested_on})"
