"""Run a relay, through which clients anywhere learn together.

A relay keeps everything in one file (--db) or in Redis (--redis); all commands work while it is running.
"""

import shlex
import sys
from typing import Literal

from repshare.commands.tasks import Name, Place, Values, create_task, opened, print_json
from repshare.relay.address import Address
from repshare.relay.options import Options


def serve(
    place: Place,
    address: Address,
    options: Options,
    values: Values,
    task: str | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
) -> None:
    """Serve a relay until Ctrl-C or SIGTERM, which lose nothing.

    To try it out on this machine, without tokens:

    repshare relay serve --db memory --insecure --task digits --classes 10 --dimension 84

    For others, with tokens (see `repshare relay invite`) and TLS:

    repshare relay serve --host 0.0.0.0 --port 443 --certificate relay.pem --key relay.key

    repshare relay serve --redis redis://10.0.0.5:6379/0 --host 0.0.0.0 --behind-proxy

    Args:
        place: Where the relay keeps what it knows.
        address: Where the relay listens.
        options: What it takes, and from whom.
        values: With --task: what its clients agree on.
        task: Create this task first, if it is not there.
        log_level: How much is logged, as JSON lines on standard error.
    """
    from repshare.relay import logs, server

    address.check(insecure=options.insecure)
    logs.set_up(log_level)
    with opened(place) as database:
        if task is not None:
            create_task(database, task, values)
        server.serve(database, options, address)


def invite(
    name: Name,
    place: Place,
    task: str | None = None,
    role: Literal["client", "viewer", "admin"] = "client",
    url: str = "https://RELAY",
    renew: bool = False,
    json: bool = False,
) -> None:
    """Make a token, and print it once: only its hash is kept.

    repshare relay invite alice --task mnist > alice.token

    repshare relay invite alice --task mnist --renew    (the old token ends)

    repshare relay invite me --role admin

    Args:
        name: Who is invited. A client publishes under this name.
        place: Where the relay keeps what it knows.
        task: The task. A viewer or admin without one sees all.
        role: client: publishes and learns. viewer: sees how tasks stand. admin: creates and deletes tasks, too.
        url: The relay's address, for the line to send to the invited.
        renew: End the token that this name has, and make another.
        json: Print one JSON document on standard output and nothing else there.
    """
    from repshare.relay.access import Access, Grant
    from repshare.relay.tasks import Tasks

    with opened(place) as database:
        if task is not None:
            Tasks(database).get(task)
        token = Access(database).invite(Grant(role, name, task), renew=renew)
    if json:
        print_json({"role": role, "name": name, "task": task, "token": token})
        return
    print(token)
    if role == "client":
        print(
            f"Send {name} this token in a file, over a way you trust, and this line:\n"
            f"  repshare join {url} --task my.py:task --token-file {shlex.quote(name)}.token",
            file=sys.stderr,
        )


def revoke(name: Name, place: Place, task: str | None = None) -> None:
    """End a token. Running relays notice within a second or two; what was published stays.

    repshare relay revoke alice --task mnist

    repshare relay revoke me    (a token for all tasks)

    Args:
        name: Whose.
        place: Where the relay keeps what it knows.
        task: In which task.
    """
    from repshare.relay.access import Access

    with opened(place) as database:
        grant = Access(database).revoke(name, task)
    print(f"the {grant.role} token of {name} has ended", file=sys.stderr)
