"""The part that `repshare join` and `repshare peer` share: a party's rounds, and their lines on the terminal."""

import json
import logging
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from repshare.cli.interrupts import interruptible, pause
from repshare.cli.privacy import policy_warnings
from repshare.config import Policy
from repshare.errors import ConfigError, ExchangeError
from repshare.fields import check_least, check_within
from repshare.results import terminal
from repshare.results.terminal import say

if TYPE_CHECKING:
    from repshare.client import Client, Record
    from repshare.exchange.peer import PeerExchange
    from repshare.exchange.relay import Membership, RelayExchange
    from repshare.party.party import Party
    from repshare.party.state import State
    from repshare.secure import SecureExchange
    from repshare.sharing.task import Task


DEFAULT_MINIMUM_COUNT = 2  # samples in an average that leaves: one alone would be that sample's features


@dataclass(frozen=True)
class WorkOptions:
    """The course of a party's work: rounds, state, output."""

    rounds: int | None = None
    """Stop after this round. Default: continue until Ctrl-C."""
    state: Path | None = None
    """Folder with the state, from which the same command continues. Default: repshare-TASK-CLIENT."""
    restart: bool = False
    """Delete the rounds in the state folder, withdraw what was shared, and start at round 1.
    The privacy ledger is kept."""
    dry_run: bool = False
    """Only show what would leave this machine in a round. Nothing is sent or written."""
    agreement: Path | None = None
    """File with the agreement of a common classifier, as `repshare relay tasks describe` prints it.
    A relay whose task states another one is refused. Peers and --dry-run need it, unless the party's file has it."""
    seed: int = 0
    """Seed of the starting weights and of all random choices."""
    eval_every: int = 1
    """Number of rounds between tests, if the party has test data."""
    pace: float = 0.0
    """Minimum duration of a round, so that slower parties can keep up."""
    device: str = "cpu"
    """PyTorch device on which to train. auto: a GPU (cuda, mps) if there is one, else cpu."""
    threads: int | None = None
    """Number of threads. Default: PyTorch's choice."""
    report: bool = False
    """Send accuracies, losses, bytes, ε and the model's size and type to the relay's page after each round.
    None of it is needed to take part, and no ε covers accuracies and losses."""
    json: bool = False
    """Print one JSON object for each round, and one at the end, on standard output, and nothing else there."""

    def __post_init__(self) -> None:
        check_least(self, rounds=1, eval_every=1, threads=1)
        check_within(self, 0, 1_000_000, "pace")


def run_rounds(
    state: "State",
    exchange: "RelayExchange | PeerExchange",
    work: WorkOptions,
    console: Console,
    *,
    reconnected: str,
    group: "SecureExchange | None" = None,
) -> None:
    """Continue round after round from where the state is. `reconnected` is printed after trouble."""
    from repshare.exchange.relay import RelayExchange
    from repshare.party.common import take_part_in_group, take_part_in_space
    from repshare.party.state import take_part
    from repshare.results.records import to_json

    client = state.client
    with interruptible("the same command continues from here") as until_interrupted:
        if work.restart:
            exchange.withdraw()
            state.clear()
        state.restore()
        say(console, _first_line(state))
        for warning in _warnings(client):
            say(console, warning, "yellow")
        if client.guard is not None and not client.guard.ledger.entries:
            say(console, "a new privacy ledger begins: the ε of an earlier one, lost or not, adds to it")
        if client.guard is not None and client.guard.pending.body is not None:
            unsent = "a release that was charged and not acknowledged is sent first; --restart withdraws it"
            say(console, unsent, "yellow")
        before = None
        if client.method.in_space and group is not None:
            rounds = take_part_in_group(state, group, work.rounds, eval_every=work.eval_every)
        elif client.method.in_space:
            rounds = take_part_in_space(state, exchange, work.rounds, eval_every=work.eval_every)
        else:
            rounds = take_part(state, work.rounds, eval_every=work.eval_every)
        for record in until_interrupted(rounds):
            if record is None:
                continue
            if work.json:
                print(to_json(asdict(record)), end="", flush=True)
            else:
                say(console, _round_line(record), "yellow" if record.trouble else "")
            if before is not None and before.trouble and not record.trouble:
                say(console, reconnected)
            before = record
            if work.report and isinstance(exchange, RelayExchange) and not isinstance(client.trouble, ExchangeError):
                _report(exchange, client, record, console)
            if record.round != work.rounds:
                pause(work.pace - record.seconds)
        _print_summary(state, console, as_json=work.json)


def _report(relay: "RelayExchange", client: "Client", record: "Record", console: Console) -> None:
    from repshare.party.state import make_report

    try:
        relay.report(make_report(client, record))
    except ExchangeError as error:  # a report is not worth a round
        say(console, f"round {record.round} was not reported: {error}", "yellow")


def default_folder(membership: "Membership") -> Path:
    """Return the folder of a client's state: below the current folder, whatever names a relay gives."""
    return Path(re.sub(r"[^\w.\-]+", "-", f"repshare-{membership.task}-{membership.client}"))


def make_client(reference: str, name: str, work: WorkOptions, policy: Policy, task: "Task | None" = None) -> "Client":
    """Make the client of `file.py:function`. It shares no average of fewer samples than the task's or its own bound.

    It learns from no vector that is longer than the task's bound. In a common space, its method is CS.
    """
    import torch

    from repshare.client import Client
    from repshare.learning.models import choose_device
    from repshare.learning.randomness import derive
    from repshare.methods import CS, RS
    from repshare.party.party import agree, load_party
    from repshare.spaces.agreement import read_common

    if work.threads is not None:
        torch.set_num_threads(work.threads)
    party = load_party(reference, derive(work.seed, name, "model"))
    if work.agreement is not None:
        party = replace(party, common=read_common(_read(work.agreement), module=party.backbone))
    common = party.common if task is None else agree(party, task)
    return Client(
        party.model,
        party.data,
        name=name,
        policy=_merge_policies(party, policy, 1 if task is None else task.minimum_count),
        method=RS if common is None else CS,
        common=common,
        test=party.test,
        seed=work.seed,
        device=choose_device(work.device),
        head=party.head,
        levels=party.levels,
        norm_bound=math.inf if task is None else task.norm_bound,
    )


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file {path} cannot be read: {getattr(error, 'strerror', 'not text')}") from error


def _merge_policies(party: "Party", given: Policy, least: int) -> Policy:
    """Return the party's policy with what the command line sets otherwise than the default.

    Unless minimum_count says otherwise, no average of a single sample leaves, whatever the task allows.
    """
    default = Policy()
    names = [field.name for field in fields(Policy)]
    changed = {name: getattr(given, name) for name in names if getattr(given, name) != getattr(default, name)}
    policy = replace(party.policy or default, **changed)
    if policy.m_up and policy.n_avg < least:
        raise ConfigError(f"the task takes no average of fewer than {least} samples, but n_avg is {policy.n_avg}")
    own = DEFAULT_MINIMUM_COUNT if policy.minimum_count is None else policy.minimum_count
    if policy.m_up and policy.n_avg == 1 and policy.minimum_count is None:
        raise ConfigError(
            "with n_avg = 1, every observation would be a single sample's features: raise --n-avg, or give "
            "--minimum-count 1 if they may leave"
        )
    return replace(policy, minimum_count=max(own, least))


def _first_line(state: "State") -> str:
    from repshare.learning.common_learner import CommonLearner

    client, membership, folder = state.client, state.membership, state.folder.path
    learner, task = client.learner, membership.agreed
    resuming = f", resuming after round {client.round_number}" if client.round_number else ""
    size, means = f"{task.classes} classes, d' = {task.dimension}", type(learner.network.model).__name__
    if isinstance(learner, CommonLearner):
        size, means = f"{learner.network.classes} classes", f"the space {learner.common.space.name}"
        means += f" of {learner.dimension:,} dimensions"
    return (
        f"{client.name} in {membership.task} ({size}) with {means} and {len(learner.samples):,} samples{resuming}; "
        f"state in {folder}"
    )


def _round_line(record: "Record") -> str:
    parts = [f"round {record.round:4}", f"loss {record.ce:6.3f}", f"train {record.train_accuracy:6.1%}"]
    if record.held_out is not None and record.held_out_alone is not None:
        parts[1:] = [_compare(record.held_out_alone, record.held_out, record.others)]
    elif record.others is not None:
        parts.append(f"with {_name_others(record.others)}" if record.others else "no other client yet")
    if record.test_accuracy is not None:
        parts.append(f"test {record.test_accuracy:6.1%}")
    parts += [f"up {terminal.traffic(record.bytes_up)}", f"down {terminal.traffic(record.bytes_down)}"]
    if record.epsilon is not None:
        parts.append(f"ε {record.epsilon:.3g}")
    return "   ".join([*parts, *filter(None, (record.trouble, record.doubt))])


def _compare(alone: float, together: float, others: int | None) -> str:
    return f"alone {alone:6.1%}, with {_name_others(others)} {together:6.1%} (own held-out samples)"


def _name_others(others: int | None) -> str:
    return "the others" if others is None else "1 other" if others == 1 else f"{others} others"


def _print_summary(state: "State", console: Console, *, as_json: bool) -> None:
    """Print the outcome in a line: from the records, and of a common classifier the one in hand."""
    from repshare.learning.common_learner import CommonLearner

    lines, learner, in_hand, compared = state.records.read(), state.client.learner, dict[str, Any](), ""
    tested = [line["test_accuracy"] for line in lines if line["test_accuracy"] is not None]
    accuracy = tested[-1] if tested else None
    up, down = (sum(line[way] for line in lines) for way in ("bytes_up", "bytes_down"))
    troubled = sum(line["trouble"] is not None for line in lines)
    name, rounds = state.client.name, state.client.round_number
    if isinstance(learner, CommonLearner) and lines:
        together, alone = learner.judge()
        accuracy = accuracy if state.client.test is None else state.client.evaluate()
        in_hand = {"held_out_alone": alone, "held_out": together, "others": state.others}
        in_hand["classifier"] = str(state.classifier)
        compared = "" if alone is None or together is None else f"{_compare(alone, together, state.others)}; "
    if as_json:
        summary = {"client": name, "rounds": rounds, "test_accuracy": accuracy, "bytes_up": up, "bytes_down": down}
        print(json.dumps({**summary, "troubled_rounds": troubled, **in_hand}), flush=True)
        return
    tests = f"test accuracy {accuracy:.2%}; " if accuracy is not None else ""
    trouble = f"; trouble in {troubled} of them" if troubled else ""
    sent = f"sent {terminal.traffic(up)} and received {terminal.traffic(down)} in all"
    say(console, f"{name} after {rounds} rounds: {compared}{tests}{sent}{trouble}", "bold")
    if lines and lines[-1]["trouble"] and not lines[-1]["bytes_up"]:
        say(console, "the last release was not sent", "yellow")
    if in_hand:
        say(console, f"the classifier is in {state.classifier}: repshare.load_classifier reads it", "bold")
    if lines and state.trains_model:
        say(console, f"the model is in {state.model}: safetensors.torch.load_file reads its state_dict", "bold")


def show_preview(
    client: "Client", console: Console, *, as_json: bool, also: Sequence[str], masked: bool = False
) -> None:
    """Show what would leave in a round, and what `also` would; `masked`, if it enters a secure sum."""
    from repshare.party.preview import preview

    shown = {**preview(client, masked=masked), "also": list(also)}
    if as_json:
        terminal.print_json(shown)
        return
    title = "what enters the sum in a round" if masked else "what leaves in a round"
    heads, rows = "class|samples here|class mean|observations, each", list[Sequence[str]](_rows(shown["classes"]))
    if "agreement" in shown:
        names = shown["agreement"]["class_names"] or list(map(str, shown["classes"]))
        heads = "class|samples here|weighted average"
        rows = [(name, *row[1:3]) for name, row in zip(names, rows, strict=True)]
    console.print(terminal.make_table(heads, rows, title))
    vectors, size = f"{shown['vectors']} vectors of {shown['dimension']} numbers", f"{shown['bytes']:,} bytes a round"
    if masked:
        say(console, f"{vectors} are added to those of the others. What leaves, the same for all classes:")
        say(console, f"{shown['masked']} whole numbers, masked: {size}. Only the group's total can be read")
    else:
        say(console, f"{vectors} ({shown['precision']}), their classes and counts: {size}")
    say(console, f"Each is an average of representations: {shown['representation']}")
    if "agreement" in shown:
        told = ", ".join(f"{name} {value}" for name, value in shown["agreement"].items() if value not in (None, []))
        say(console, f"The clients agree on: {told}")
        say(console, f"{shown['held_out']} samples are held out: nothing of them leaves in any form.")
    say(console, f"Nothing else leaves but {'; and '.join(also)}. Nothing has been sent now.")
    for warning in _warnings(client):
        say(console, warning, "yellow")


def _warnings(client: "Client") -> list[str]:
    """Return what a user should know before sharing this."""
    from repshare.party.preview import single_samples

    found = policy_warnings(client.policy, in_space=client.method.in_space)
    if client.learner.made.shares_inputs:
        found.append(f"warning: what leaves are averages of your data ({client.learner.made})")
    labels = single_samples(client)
    if labels and client.policy.epsilon is None:
        named = f"class {labels[0]}" if len(labels) == 1 else f"classes {', '.join(map(str, labels))}"
        alone = "an average of one sample leaves, which is that sample's features"
        found.append(f"warning: of {named} {alone}: --minimum-count 2")
    return found


def _rows(classes: Mapping[int, Mapping[str, Any]]) -> Iterator[tuple[str, str, str, str]]:
    for label, counts in classes.items():
        over = counts["observations_over"]
        mean = f"1 over {_samples(counts['mean_over'])}" if counts["mean_over"] else "–"
        observed = f"{len(over)} over {_samples(over[0])}" if over else "–"
        yield str(label), f"{counts['samples']}", mean, observed


def _samples(count: int) -> str:
    return "1 sample: itself!" if count == 1 else f"{count} samples"


class _WarningLines(logging.Handler):
    """Warnings as lines on the terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__(logging.WARNING)
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print it."""
        say(self.console, record.getMessage(), "yellow")


def show_warnings(console: Console, logger_name: str) -> None:
    """Show the warnings of this logger on the terminal."""
    logger = logging.getLogger(logger_name)
    logger.handlers = [_WarningLines(console)]
    logger.propagate = False
