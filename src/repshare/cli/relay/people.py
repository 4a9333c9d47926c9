"""`repshare relay invite`, `revoke` and `withdraw`: who takes part."""

import shlex
import sys
import time
from pathlib import Path

from repshare.cli.parsing import Json, print_json
from repshare.cli.relay.database import DatabaseOptions, Stored
from repshare.errors import ConfigError
from repshare.files import write_atomically
from repshare.relay.auth import Grant, Role

UNTIL_NOTICED_SECONDS = 2.0  # until every relay has noticed a revoked token


def invite(
    name: str = "",
    /,
    *,
    storage: DatabaseOptions,
    task: str | None = None,
    role: Role = "client",
    renew: bool = False,
    days: float | None = None,
    out: Path | None = None,
    file: Path | None = None,
    kit: Path | None = None,
    address: str = "https://RELAY",
    ca: Path | None = None,
    json: Json = False,
) -> None:
    """Make a token, and write it to a file that only you can read, or print it once. Only its hash is kept.

    repshare relay invite alice --task mnist --out alice.token

    repshare relay invite alice --task mnist --days 30 --out alice.token    (it ends by itself)

    repshare relay invite alice --task mnist --renew    (the old token ends)

    repshare relay invite --file names.txt --task cells --kit kits --address https://relay.example.org --ca ca.pem

    repshare relay invite me --role viewer

    Args:
        name: Name of the client or viewer.
        task: The task. Viewers without one see all tasks.
        role: client: publishes and learns. viewer: sees the state of tasks.
        renew: End the token that this name has, and make a new one.
        days: Number of days after which the token ends. Default: never.
        out: Write the token to this file, which only you can read, instead of printing it.
        file: Invite all clients in this file, a name in each line. --kit says where to.
        kit: Folder for a kit of each: agreement, CA, token, columns, a party file that runs, and the commands.
        address: The relay's address, as clients reach it, for the kits.
        ca: The authority of the relay's certificate, a file (PEM), for the kits.
    """
    if (file is None) != (kit is None) or bool(name) == (file is not None):
        raise ConfigError("give a name; or --file with names and --kit with a folder for them")
    if file is not None and kit is not None:
        _write_kits(file, kit, address, ca, storage, task, days)
        return
    if out is not None and ((out.exists() and not renew) or not out.parent.is_dir()):
        raise ConfigError(f"{out} already exists" if out.exists() else f"there is no folder {out.parent}")
    with storage.open(create=task is None) as relay:
        if task is not None:
            relay.get_task(task)
        token = relay.access.invite(Grant(role, name, task), renew=renew, days=days)
        relay.audit.note_operator("invite", task=task, client=name, role=role, days=days, renewed=renew)
    if out is not None:
        write_atomically(out, f"{token}\n", private=True)
    if json:
        given = {"file": str(out)} if out is not None else {"token": token}
        print_json({"role": role, "name": name, "task": task, **given})
        return
    if out is None:
        print(token)
    if role == "client":
        place = shlex.quote(out.name if out else f"{name}.token")
        print(
            f"Send {name} this token in a file, over a channel you trust, and this line:\n"
            f"  repshare join https://RELAY --party party.py:function --token-file {place}",
            file=sys.stderr,
        )


def _write_kits(
    file: Path, kit: Path, address: str, ca: Path | None, storage: DatabaseOptions, task: str | None, days: float | None
) -> None:
    from repshare.cli.relay.kit import InvitedTo, check_kits, read_names, write_kit

    if task is None:
        raise ConfigError("kits are for a --task")
    names = read_names(file)
    with storage.open() as relay:
        joined = relay.get_task(task).entry.task
        about = InvitedTo(task, joined.description or "", address, ca, joined.group_members)
        check_kits(kit, names, about)
        for name in names:
            write_kit(kit / name, name, relay.access.invite(Grant("client", name, task), days=days), about)
            relay.audit.note_operator("invite", task=task, client=name, role="client", days=days, renewed=False)
    print(f"{len(names)} kits in {kit}: send each over a channel you trust", file=sys.stderr)


def revoke(name: str, /, storage: DatabaseOptions, task: str | None = None, withdraw: bool = False) -> None:
    """End a token. Running relays notice within a second or two. What was published stays, unless with --withdraw.

    repshare relay revoke alice --task mnist

    repshare relay revoke alice --task mnist --withdraw    (its release goes, too)

    repshare relay revoke me    (a token for all tasks)

    Args:
        name: Whose token to end.
        task: The task that the token is for. Default: a token for all tasks.
        withdraw: Also delete what the client has published.
    """
    if withdraw and task is None:
        raise ConfigError("--withdraw withdraws a release from a task: give --task, too")
    with storage.open() as relay:
        try:
            grant = relay.access.revoke(name, task)
        except ConfigError as error:
            raise ConfigError(f"{error} ({relay.place})") from error
        relay.audit.note_operator("revoke", task=task, client=name, role=grant.role)
        print(f"the {grant.role} token of {name} has ended", file=sys.stderr)
        if withdraw and task is not None:
            time.sleep(UNTIL_NOTICED_SECONDS)
            _withdraw(relay, name, task)


def withdraw(name: str, /, storage: DatabaseOptions, task: str) -> None:
    """Take back what a client has published. Its token stays valid: it may publish again.

    repshare relay withdraw alice --task mnist

    Args:
        name: The client's name.
        task: The task.
    """
    with storage.open() as relay:
        if relay.get_task(task).board.find(name) is None:
            raise ConfigError(f"{name} has published nothing in {task} ({relay.place})")
        _withdraw(relay, name, task)


def _withdraw(relay: Stored, name: str, task: str) -> None:
    from repshare.relay.page import activity

    opened = relay.get_task(task)
    opened.board.withdraw(name)
    activity.forget(opened.activity, [name])
    relay.audit.note_operator("withdraw", task=task, client=name)
    print(f"the release of {name} is withdrawn", file=sys.stderr)
