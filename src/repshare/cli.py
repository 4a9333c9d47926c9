"""`repshare`: parse the command line, carry it out, and say in one line what went wrong if anything did."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import tyro

from repshare import extras
from repshare.commands import (
    auditing,
    data,
    demo,
    joining,
    learning,
    peering,
    privacy,
    relay,
    reporting,
    reproducing,
    tasks,
)
from repshare.errors import RepshareError, StoreError, WorkerFailed
from repshare.interrupts import Interrupted

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130


class Group(NamedTuple):
    """Commands of one family: `repshare relay serve`, `repshare relay invite` …"""

    description: str
    commands: "Commands"


Commands = Mapping[str, Callable[..., Any] | Group]

COMMANDS: Commands = {
    "compare": learning.compare,
    "run": learning.run,
    "reproduce": reproducing.reproduce,
    "join": joining.join,
    "peer": peering.peer,
    "keys": Group(peering.KEYS, {"new": peering.new, "show": peering.show, "trust": peering.trust}),
    "demo": demo.demo,
    "report": reporting.report,
    "privacy": Group(privacy.__doc__ or "", {"plan": privacy.plan, "ledger": privacy.ledger, "audit": auditing.audit}),
    "data": data.data,
    "relay": Group(
        relay.__doc__ or "",
        {
            "serve": relay.serve,
            "invite": relay.invite,
            "revoke": relay.revoke,
            "check": relay.check,
            "tasks": Group(
                tasks.__doc__ or "",
                {
                    "create": tasks.create,
                    "list": tasks.list_tasks,
                    "export": tasks.export,
                    "import": tasks.import_task,
                    "delete": tasks.delete,
                },
            ),
        },
    ),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Parse the command line, carry it out, and say in one line what went wrong if anything did."""
    description = "Learn together by sharing representations: not data, not weights."
    try:
        try:
            _carry_out("repshare", description, COMMANDS, list(sys.argv[1:] if arguments is None else arguments))
        except ModuleNotFoundError as error:
            raise extras.missing(error) from error
    except (RepshareError, Interrupted) as error:
        print(f"repshare: {error}", file=sys.stderr)
        sys.exit(_exit_code(error))
    except KeyboardInterrupt:
        print("repshare: interrupted", file=sys.stderr)
        sys.exit(INTERRUPTED)
    except BrokenPipeError:  # whoever read our output has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(FAILED)


def _carry_out(program: str, description: str, commands: Commands, arguments: list[str]) -> None:
    chosen = commands.get(arguments[0]) if arguments else None
    if isinstance(chosen, Group):
        _carry_out(f"{program} {arguments[0]}", chosen.description, chosen.commands, arguments[1:])
        return
    tyro.extras.subcommand_cli_from_dict(
        {name: _entry(command) if isinstance(command, Group) else command for name, command in commands.items()},
        prog=program,
        description=description,
        args=arguments,
        config=(tyro.conf.OmitArgPrefixes, tyro.conf.OmitSubcommandPrefixes),
    )


def _entry(group: Group) -> Callable[[], None]:
    """A group's line in the list of commands; it is never called."""

    def entry() -> None: ...

    entry.__doc__ = group.description
    return entry


def _exit_code(error: Exception) -> int:
    if isinstance(error, Interrupted):
        return INTERRUPTED
    return FAILED if isinstance(error, WorkerFailed | StoreError) else BAD_INPUT
