"""The part that `repshare join` and `repshare peer` share: a party's rounds on the terminal."""

import logging
import math
import time
from collections.abc import Generator
from typing import TYPE_CHECKING

from rich.console import Console

from repshare.cli.interrupts import interruptible, pause
from repshare.cli.party.client import WorkOptions
from repshare.cli.party.lines import first_line, print_summary, round_line
from repshare.cli.party.preview import list_data, list_warnings
from repshare.cli.terminal import say
from repshare.errors import ExchangeError

if TYPE_CHECKING:
    from repshare.client import Client, Record
    from repshare.exchange.peer import PeerExchange
    from repshare.exchange.relay import RelayExchange
    from repshare.party.state import OwnRecord, State
    from repshare.secure import GroupExchange

REMIND_SECONDS = 60.0  # between two lines that say what is waited for


def run_rounds(
    state: "State",
    exchange: "RelayExchange | PeerExchange",
    work: WorkOptions,
    console: Console,
    *,
    reconnected: str = "",
    group: "GroupExchange | None" = None,
) -> None:
    """Continue round after round from where the state is. `reconnected` is printed after trouble."""
    from repshare.exchange.relay import RelayExchange
    from repshare.party.controls import Controls

    client = state.client
    with interruptible("the same command continues from here") as until_interrupted:
        if work.restart:
            exchange.withdraw()
            state.clear()
        controls = Controls(state.folder.path, client) if work.compare else None
        state.restore()
        say(console, first_line(state))
        for line in list_data(client.samples, client.test):
            say(console, line)
        _warn(client, console)
        if controls is not None:
            controls.catch_up()
        before, remind = None, -math.inf
        for record in until_interrupted(_rounds(state, exchange, group, work, console)):
            if record is None:
                if group is None and state.others == 0 and time.monotonic() >= remind:
                    say(console, "waiting for another client (everything is saved; Ctrl-C stops)")
                    remind = time.monotonic() + REMIND_SECONDS
                continue
            say(console, round_line(record, client.learner.judged_on), "yellow" if record.trouble else "")
            if before is not None and before.trouble and not record.trouble:
                say(console, reconnected)
            before = record
            if work.report and isinstance(exchange, RelayExchange) and not isinstance(client.trouble, ExchangeError):
                _report(exchange, client, record, console)
            if controls is not None:
                controls.catch_up()
            if record.round != work.rounds:
                pause(work.pace - record.seconds)
        print_summary(state, controls, console)


def _rounds(
    state: "State",
    exchange: "RelayExchange | PeerExchange",
    group: "GroupExchange | None",
    work: WorkOptions,
    console: Console,
) -> "Generator[OwnRecord | None]":
    from repshare.party.rounds import take_part, take_part_in_group, take_part_until_settled

    def settled() -> None:
        say(console, "settled: waits until somebody joins, leaves or changes; Ctrl-C ends, and keeps what was learned")

    def tell(told: str) -> None:
        say(console, told, "yellow")

    enough = state.client.learner.enough
    if group is not None:
        return take_part_in_group(state, group, work.rounds, settled=settled, tell=tell)
    if enough is not None:
        return take_part_until_settled(state, exchange, work.rounds, settled=settled)
    return take_part(state, work.rounds)


def _warn(client: "Client", console: Console) -> None:
    """Print warnings and facts before the first round."""
    for warning in list_warnings(client):
        say(console, warning, "yellow")
    if client.guard is not None and not client.guard.ledger.entries:
        say(console, "a new privacy ledger begins: the ε of an earlier one, lost or not, adds to it")
    if client.guard is not None:
        say(console, "a round may take minutes here: each own sample is left out in turn")
    if client.guard is not None and client.guard.pending.body is not None:
        unsent = "a release that was charged and not acknowledged is sent first; --restart withdraws it"
        say(console, unsent, "yellow")


def _report(relay: "RelayExchange", client: "Client", record: "Record", console: Console) -> None:
    from repshare.party.state import make_report

    try:
        relay.report(make_report(client, record))
    except ExchangeError as error:  # a report is not worth a round
        say(console, f"round {record.round} was not reported: {error}", "yellow")


class _LogLines(logging.Handler):
    """Log messages as lines on the terminal."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self.console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print it."""
        say(self.console, record.getMessage(), "yellow")


def show_log(console: Console, logger_name: str, *, level: int = logging.WARNING) -> None:
    """Show what this logger has to say, from this level on, on the terminal."""
    logger = logging.getLogger(logger_name)
    logger.handlers, logger.propagate = [_LogLines(console)], False
    logger.setLevel(level)
