"""`repshare relay serve`, `invite`, `revoke` and `check`: run a relay, through which clients anywhere learn together.

A relay keeps everything in one file (--db) or in Redis (--redis); all commands work while it is running.
"""

import logging
import shlex
import sys
import time
from pathlib import Path
from typing import Literal

from repshare.cli.parsing.options import Json
from repshare.cli.relay_tasks import DatabaseOptions, Name, TaskValues, create_task
from repshare.errors import ConfigError, StoreError
from repshare.files import write_atomically
from repshare.relay.auth import REMEMBERED_SECONDS, Grant
from repshare.relay.checking import check_all
from repshare.relay.options import Address, RelayOptions
from repshare.results.terminal import print_json


def serve(
    storage: DatabaseOptions,
    address: Address,
    options: RelayOptions,
    values: TaskValues,
    task: str | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
) -> None:
    """Start a relay. Ctrl-C or SIGTERM stops it without losing data.

    To try it out on this machine, without tokens:

    repshare relay serve --db memory --insecure --task digits --classes 10 --dimension 84

    For others, with tokens (see `repshare relay invite`) and TLS:

    repshare relay serve --host 0.0.0.0 --port 443 --certificate relay.pem --key relay.key

    repshare relay serve --redis redis://10.0.0.5:6379/0 --host 0.0.0.0 --behind-proxy

    Args:
        task: Create this task first, if it does not exist.
        log_level: Log messages from this level on, as JSON lines on standard error.
    """
    from repshare.relay import server
    from repshare.relay.monitoring import logs

    address.check(insecure=options.insecure)
    logs.set_up(log_level)
    with storage.open() as relay:
        for warning in relay.database.inspect():
            logs.log_event(warning, logging.WARNING)
        if task is not None:
            create_task(relay, task, values)
        server.serve(relay.database, options, address, relay.audit)


def invite(
    name: Name,
    storage: DatabaseOptions,
    task: str | None = None,
    role: Literal["client", "viewer", "admin"] = "client",
    url: str = "https://RELAY",
    renew: bool = False,
    days: float | None = None,
    out: Path | None = None,
    json: Json = False,
) -> None:
    """Make a token, and write it to a file that only you can read, or print it once. Only its hash is kept.

    repshare relay invite alice --task mnist --out alice.token

    repshare relay invite alice --task mnist --days 30 --out alice.token    (it ends by itself)

    repshare relay invite alice --task mnist --renew    (the old token ends)

    repshare relay invite me --role admin

    Args:
        name: Name of the client, viewer or admin.
        task: The task. Viewers and admins without one see all tasks.
        role: client: publishes and learns. viewer: sees the state of tasks. admin: creates and deletes tasks, too.
        url: Address of the relay, for the command that is shown.
        renew: End the token that this name has, and make a new one.
        days: Number of days after which the token ends. Default: never.
        out: Write the token to this file, which only you can read, instead of printing it.
    """
    if out is not None and ((out.exists() and not renew) or not out.parent.is_dir()):
        raise ConfigError(f"{out} already exists" if out.exists() else f"there is no folder {out.parent}")
    with storage.open() as relay:
        if task is not None:
            relay.tasks.get(task)
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
        print(
            f"Send {name} this token in a file, over a channel you trust, and this line:\n"
            f"  repshare join {url} --party party.py:function "
            f"--token-file {shlex.quote(out.name if out else f'{name}.token')}",
            file=sys.stderr,
        )


def revoke(name: Name, storage: DatabaseOptions, task: str | None = None, withdraw: bool = False) -> None:
    """End a token. Running relays notice within a second or two. What was published stays, unless with --withdraw.

    repshare relay revoke alice --task mnist

    repshare relay revoke alice --task mnist --withdraw    (its release goes, too)

    repshare relay revoke me    (a token for all tasks)

    Args:
        name: Whose token to end.
        task: The task that the token is for. Default: a token for all tasks.
        withdraw: Also delete what the client has published.
    """
    from repshare.relay.background import forget

    if withdraw and task is None:
        raise ConfigError("--withdraw withdraws a release from a task: give --task, too")
    with storage.open() as relay:
        grant = relay.access.revoke(name, task)
        relay.audit.note_operator("revoke", task=task, client=name, role=grant.role)
        print(f"the {grant.role} token of {name} has ended", file=sys.stderr)
        if withdraw and task is not None:
            time.sleep(2 * REMEMBERED_SECONDS)  # until running relays have noticed: it could publish again before
            there = relay.tasks.get(task)
            there.board.withdraw(name)
            forget(there, [name])
            relay.audit.note_operator("withdraw", task=task, client=name)
            print(f"the release of {name} is withdrawn", file=sys.stderr)


def check(storage: DatabaseOptions, repair: bool = False, json: Json = False) -> None:
    """Read everything that a relay has stored, and report what is damaged. The exit code is 1 if anything is.

    repshare relay check

    repshare relay check --repair    (also while the relay is running)

    A relay repairs the damage that it meets, and logs it; this command looks at everything.

    Args:
        repair: Repair what can be repaired, and delete releases, tokens and secure sums that cannot be read.
    """
    with storage.open(audited=False) as relay:
        findings = list(check_all(relay.database, repair=repair))
    if json:
        print_json({"damaged": [finding._asdict() for finding in findings]})
    else:
        for finding in findings:
            print(f"{finding.where}: {finding.key}: {finding.reason}{' (repaired)' if finding.repaired else ''}")
    if left := sum(not finding.repaired for finding in findings):
        raise StoreError(f"{left} stored values are damaged: repshare relay check --repair")
    print("everything that is stored can be read and is consistent", file=sys.stderr)
