"""`repshare`: parse the command line, carry it out, and say in one line what went wrong if anything did."""

import io
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, NamedTuple, NoReturn

from repshare import __version__, imports
from repshare.cli.groups import Layout
from repshare.cli.interrupts import Interrupted
from repshare.errors import ConfigError, RepshareError, StoreError, WorkerFailed

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
HELP = ("-h", "--help")


class Command(NamedTuple):
    """A command: its line in the list of commands, and where it is. It is imported when it is needed."""

    summary: str
    home: str
    layout: Layout | None = None

    def load(self) -> Callable[..., Any]:
        """The function that carries it out."""
        module, _, name = self.home.partition(":")
        function: Callable[..., Any] = getattr(import_module(module), name)
        return function


class CommandGroup(NamedTuple):
    """Commands of one family: `repshare relay serve`, `repshare relay invite` …"""

    summary: str
    commands: "Commands"


Commands = Mapping[str, Command | CommandGroup]

PRIVACY: Commands = {
    "ledger": Command("Show how much of the budget a client has spent.", "repshare.cli.ledger:ledger"),
}
TASKS: Commands = {
    "create": Command("Create a task.", "repshare.cli.relay.tasks:create"),
    "list": Command("List the tasks, and who has a token.", "repshare.cli.relay.tasks:list_tasks"),
    "describe": Command("Print the agreement of a task in a common space.", "repshare.cli.relay.tasks:describe"),
    "delete": Command("Delete a task, its releases and its tokens.", "repshare.cli.relay.tasks:delete"),
}
RELAY: Commands = {
    "serve": Command("Start a relay.", "repshare.cli.relay.serve:serve"),
    "invite": Command("Make a token for a client or a viewer.", "repshare.cli.relay.people:invite"),
    "revoke": Command("End a token.", "repshare.cli.relay.people:revoke"),
    "withdraw": Command("Take back a client's release.", "repshare.cli.relay.people:withdraw"),
    "backup": Command("Copy the database to a file, tokens included.", "repshare.cli.relay.backup:backup"),
    "restore": Command("Make a database from a backup.", "repshare.cli.relay.backup:restore"),
    "check": Command("Look for damage in what a relay has stored.", "repshare.cli.relay.backup:check"),
    "tasks": CommandGroup("Create, list and delete tasks.", TASKS),
}
COMMANDS: Commands = {
    "join": Command("Train with others through a relay.", "repshare.cli.party.join:join"),
    "peer": Command("Train with others without a server.", "repshare.cli.party.peer:peer"),
    "part": Command("Write a part to a file, to train with others without a network.", "repshare.cli.party.files:part"),
    "total": Command("Add up the parts of several parties.", "repshare.cli.party.files:total"),
    "receive": Command("Use the total of all parties.", "repshare.cli.party.files:receive"),
    "predict": Command("Classify samples with what join or peer has learned.", "repshare.cli.party.model:predict"),
    "export": Command("Write what join or peer has learned as ONNX.", "repshare.cli.party.model:export"),
    "keys": Command("Make a key for peer, and print its public half.", "repshare.cli.party.peer:keys"),
    "privacy": CommandGroup("Account for and audit privacy (ledger, audit).", PRIVACY),
    "relay": CommandGroup("Run a relay (serve, invite, revoke, backup, tasks …).", RELAY),
}

LABORATORY = ("demo", "compare", "methods", "report", "reproduce", "data", "privacy audit")
TITLE = "Learn together by sharing class sums of representations."
MORE = """

examples:
  repshare demo
  repshare compare --dataset digits --clients 3 --rounds 10
  repshare join URL --party party.py:alice --token-file alice.token

Exit codes: 0 done, 1 a worker or a store failed, 2 bad input, 130 Ctrl-C."""


def all_commands() -> Commands:
    """The commands of this package and of those that add a mapping to the entry points `repshare.commands`."""
    found = COMMANDS
    for package in sorted(entry_points(group="repshare.commands")):
        found = _join(package.load(), found)
    return found


def _join(one: Commands, other: Commands) -> Commands:
    """The commands of both; a group that both have is of both."""
    joined = {**one, **other}
    for name in one.keys() & other.keys():
        mine, theirs = one[name], other[name]
        if isinstance(mine, CommandGroup) and isinstance(theirs, CommandGroup):
            joined[name] = CommandGroup(theirs.summary, _join(mine.commands, theirs.commands))
    return joined


def _is_known(words: Sequence[str], commands: Commands = COMMANDS) -> bool:
    """Whether these words begin with a command of this package: then no other has to be looked at."""
    chosen = commands.get(words[0]) if words else None
    return isinstance(chosen, Command) or (chosen is not None and _is_known(words[1:], chosen.commands))


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, carry it out, and say in one line what went wrong if anything did."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if (
        isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.encoding.lower() != "utf-8"
    ):  # not every encoding of Windows has ▂ or ε
        sys.stdout.reconfigure(errors="replace")
    try:
        try:
            _carry_out("repshare", CommandGroup(TITLE, COMMANDS if _is_known(given) else all_commands()), given)
        except ModuleNotFoundError as error:
            raise imports.missing(error) from error
    except Interrupted as error:
        _fail(str(error), INTERRUPTED)
    except RepshareError as error:
        _fail(str(error), FAILED if isinstance(error, WorkerFailed | StoreError) else BAD_INPUT)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)


def _fail(message: str, code: int) -> NoReturn:
    print(f"repshare: {imports.visible(message)}", file=sys.stderr)
    sys.exit(code)


def _carry_out(program: str, group: CommandGroup, arguments: list[str]) -> None:
    first, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    chosen = group.commands.get(first)
    if first in ("", *HELP):
        print(overview(program, group))
        sys.exit(0 if first else BAD_INPUT)
    elif isinstance(chosen, CommandGroup):
        _carry_out(f"{program} {first}", chosen, rest)
    elif chosen is not None:
        from repshare.cli.parsing import Parser

        parser = Parser(f"{program} {first}".removeprefix("repshare "), chosen.load(), chosen.layout)
        if any(word in HELP for word in rest):
            print(parser.format_help(), end="")
            sys.exit(0)
        parser.call(rest)
    elif first == "--version":
        print(f"repshare {__version__}")
    elif f"{program} {first}".removeprefix("repshare ") in LABORATORY:
        raise ConfigError(f"{program} {first} is a command of the laboratory: {imports.how_to_install('lab')}")
    else:
        from repshare.cli.parsing import suggest

        what = "option" if first.startswith("-") else "command"
        hint = suggest(first, [*group.commands, "--help", "--version"])
        raise ConfigError(f"unknown {what} {first}{hint} See `{program} --help`")


def overview(program: str, group: CommandGroup) -> str:
    """The list of a group's commands."""
    lines = [group.summary, "", f"usage: {program} COMMAND [OPTIONS]", "", "commands:"]
    lines += [f"  {name:<11}{command.summary}" for name, command in group.commands.items()]
    lines += ["", f"{program} COMMAND --help shows a command's options, with examples."]
    return "\n".join(lines) + (MORE if program == "repshare" else "")
