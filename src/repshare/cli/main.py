"""`repshare`: parse the command line, carry it out, and say in one line what went wrong if anything did."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Annotated, Any, NamedTuple, Union

from repshare import __version__, imports
from repshare.cli.interrupts import Interrupted
from repshare.errors import ConfigError, RepshareError, StoreError, WorkerFailed

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
SHELLS = ("bash", "zsh", "fish")


class Command(NamedTuple):
    """A command: its line in the list of commands, and where it is. It is imported when it is needed."""

    summary: str
    home: str
    methods: str = ""
    """The source of the list of methods in its help, if it has one."""

    def load(self) -> Callable[..., Any]:
        """Return the function that carries it out."""
        return _import(self.home)


class CommandGroup(NamedTuple):
    """Commands of one family: `repshare relay serve`, `repshare relay invite` …"""

    summary: str
    commands: "Commands"


def _import(home: str) -> Callable[..., Any]:
    module, _, name = home.partition(":")
    loaded: Callable[..., Any] = getattr(import_module(f"repshare.cli.{module}"), name)
    return loaded


Commands = Mapping[str, Command | CommandGroup]
METHODS = "learning:list_methods"

KEYS: Commands = {
    "new": Command("Make a key, and print its public half.", "peer:new"),
    "show": Command("Print the public half of a key, or the peers in a trust file.", "peer:show"),
    "trust": Command("Trust this public key for this peer.", "peer:trust"),
}
PRIVACY: Commands = {
    "plan": Command("Show how much noise a privacy budget means, before it is spent.", "privacy:plan"),
    "ledger": Command("Show how much of the budget a client has spent.", "privacy:ledger"),
    "audit": Command("Attack releases, to measure what they reveal.", "audit:audit"),
}
TASKS: Commands = {
    "create": Command("Create a task.", "relay_tasks:create"),
    "list": Command("List the tasks, and who has a token.", "relay_tasks:list_tasks"),
    "export": Command("Write a task and its releases to a file.", "relay_tasks:export"),
    "import": Command("Create a task from an exported file.", "relay_tasks:import_task"),
    "delete": Command("Delete a task, its releases and its tokens.", "relay_tasks:delete"),
}
RELAY: Commands = {
    "serve": Command("Start a relay.", "relay:serve"),
    "invite": Command("Make a token for a client, a viewer or an admin.", "relay:invite"),
    "revoke": Command("End a token.", "relay:revoke"),
    "check": Command("Look for damage in what a relay has stored, and repair it.", "relay:check"),
    "tasks": CommandGroup("Create, list, export, import and delete tasks.", TASKS),
}
COMMANDS: Commands = {
    "demo": Command("Watch clients with different networks learn together.", "demo.command:demo"),
    "compare": Command(
        "Compare methods on the same data: a table, a figure, all records.", "learning:compare", METHODS
    ),
    "run": Command("Run one method.", "learning:run", METHODS),
    "report": Command("Write one HTML file about recorded runs.", "report:report"),
    "reproduce": Command("Reproduce the paper's tables and figures, and further studies.", "reproduce:reproduce"),
    "data": Command("List the datasets, or download them.", "data:data"),
    "join": Command("Train with others through a relay.", "join:join"),
    "peer": Command("Train with others without a server.", "peer:peer"),
    "keys": CommandGroup("Make keys, and say whose you trust (new, show, trust).", KEYS),
    "privacy": CommandGroup("Plan, account for and audit privacy (plan, ledger, audit).", PRIVACY),
    "relay": CommandGroup("Run a relay (serve, invite, revoke, check, tasks).", RELAY),
}

TITLE = "Learn together by sharing representations: not data, not weights."
MORE = """

examples:
  repshare demo
  repshare compare --dataset digits --clients 3 --rounds 10
  repshare join URL --task party.py:alice --token-file alice.token

repshare --version prints the version.
Tab completion: repshare --tyro-write-completion bash FILE (also zsh, fish)."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, carry it out, and say in one line what went wrong if anything did."""
    try:
        try:
            _carry_out(
                "repshare", CommandGroup(TITLE, COMMANDS), list(sys.argv[1:] if arguments is None else arguments)
            )
        except ModuleNotFoundError as error:
            raise imports.missing(error) from error
    except (RepshareError, Interrupted) as error:
        print(f"repshare: {error}", file=sys.stderr)
        sys.exit(_exit_code(error))
    except KeyboardInterrupt:
        print("repshare: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # the reader of our output has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)


def _carry_out(program: str, group: CommandGroup, arguments: list[str]) -> None:
    first, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    chosen = group.commands.get(first)
    if first in ("", "-h", "--help", "--help-all"):
        print(overview(program, group))
        sys.exit(0 if first else BAD_INPUT)
    elif isinstance(chosen, CommandGroup):
        _carry_out(f"{program} {first}", chosen, rest)
    elif chosen is not None:
        _call(f"{program} {first}", chosen, rest)
    elif first == "--version":
        print(f"repshare {__version__}")
    elif first == "--tyro-write-completion":
        _write_completion(rest)
    else:
        from repshare.cli.parsing.arguments import refuse, suggest

        what = "option" if first.startswith("-") else "command"
        refuse(f"unknown {what} {first}{suggest(first, [*group.commands, '--help', '--version'])}", program)


def overview(program: str, group: CommandGroup) -> str:
    """Return the list of a group's commands."""
    lines = [group.summary, "", f"usage: {program} COMMAND [OPTIONS]", "", "commands:"]
    lines += [f"  {name:<11}{command.summary}" for name, command in group.commands.items()]
    lines += ["", f"{program} COMMAND --help shows a command's options, with examples."]
    return "\n".join(lines) + (MORE if program == "repshare" else "")


def _call(program: str, chosen: Command, arguments: list[str]) -> None:
    from repshare.cli.parsing.arguments import check_arguments

    command = chosen.load()
    if any(word in arguments for word in ("-h", "--help", "--help-all")):
        from repshare.cli.parsing.help import describe

        methods = _import(chosen.methods)(arguments) if chosen.methods else ()
        print(describe(program, command, methods, everything="--help-all" in arguments))
        sys.exit(0)
    check_arguments(program, command, arguments)
    import tyro

    tyro.cli(command, prog=program, args=arguments, config=(tyro.conf.OmitArgPrefixes, tyro.conf.FlagCreatePairsOff))


def _write_completion(arguments: list[str]) -> None:
    """Write a script for a shell, by which it completes commands, options and choices."""
    if len(arguments) != 2 or arguments[0] not in SHELLS:
        raise ConfigError(f"--tyro-write-completion needs a shell ({', '.join(SHELLS)}) and a file")
    import tyro

    config = (tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes, tyro.conf.FlagCreatePairsOff)
    try:
        tyro.cli(_one_of(COMMANDS), prog="repshare", args=["--tyro-write-completion", *arguments], config=config)
    except OSError as error:
        raise ConfigError(f"{arguments[1]} cannot be written: {error.strerror}") from error


def _one_of(commands: Commands) -> Any:
    """Return the commands as tyro knows them: a union."""
    import tyro

    def choose(group: CommandGroup) -> Callable[..., None]:
        def chosen(command: Any) -> None: ...

        chosen.__annotations__["command"] = _one_of(group.commands)
        return chosen

    known = (
        (name, command, choose(command) if isinstance(command, CommandGroup) else command.load())
        for name, command in commands.items()
    )
    return Union[  # noqa: UP007 there are as many as there are commands
        tuple(
            Annotated[Any, tyro.conf.subcommand(name=name, description=command.summary, constructor=made)]
            for name, command, made in known
        )
    ]


def _exit_code(error: Exception) -> int:
    if isinstance(error, Interrupted):
        return INTERRUPTED
    return FAILED if isinstance(error, WorkerFailed | StoreError) else BAD_INPUT
