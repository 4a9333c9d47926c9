"""`repshare relay serve`: run a relay, through which clients anywhere learn together."""

import logging
from typing import Literal

from repshare.cli.relay.database import DatabaseOptions
from repshare.cli.relay.tasks import TaskValues, create_task
from repshare.relay.options import Address, RelayOptions


def serve(
    storage: DatabaseOptions,
    address: Address,
    options: RelayOptions,
    values: TaskValues,
    task: str | None = None,
    audit_log: str | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
) -> None:
    """Start a relay. Ctrl-C or SIGTERM stops it without losing data.

    To try it out on this machine, without tokens:

    repshare relay serve --db memory --insecure --task digits --classes 10 --dimension 84

    For others, with tokens (see `repshare relay invite`) and TLS:

    repshare relay serve --host 0.0.0.0 --port 443 --certificate relay.pem --key relay.key

    repshare relay serve --db redis://10.0.0.5:6379/0 --host 0.0.0.0 --behind-proxy

    Args:
        task: Create this task first, if it does not exist.
        audit_log: Write accepted actions (created, invited, published …) to this file as JSON lines; `-` for standard
            output. Default: the environment variable REPSHARE_AUDIT_LOG, which all `repshare relay` commands read, else
            no log.
        log_level: Least important lines in the log on standard error.
    """
    from repshare.relay import server
    from repshare.relay.monitoring import logs

    address.check(insecure=options.insecure)
    logs.set_up(log_level)
    with storage.open(create=True, audit_log=audit_log) as relay:
        for warning in relay.database.inspect():
            logs.log_event(warning, logging.WARNING)
        if task is not None:
            create_task(relay, task, values)
        server.serve(relay.database, options, address, relay.audit)
