"""`repshare join`: train with others through a relay."""

import logging
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from repshare.cli.party.client import WorkOptions, choose_folder, make_client
from repshare.cli.party.preview import ask, show_preview
from repshare.cli.party.rounds import run_rounds, show_log
from repshare.cli.terminal import say
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.files import others_may_read

if TYPE_CHECKING:
    from repshare.client import Client
    from repshare.exchange.relay import RelayExchange
    from repshare.party.state import State
    from repshare.secure import GroupExchange


@dataclass(frozen=True)
class ConnectionOptions:
    """The connection to the relay, and the token for it."""

    token_file: Path | None = None
    """File with the token that `repshare relay invite` made. The relay knows client and task by it."""
    name: str | None = None
    """This client's name, if the relay uses no tokens."""
    task: str | None = None
    """The task to take part in, if the relay uses no tokens."""
    ca: Path | None = None
    """Certificates of the relay's authority, if it is not a public one (PEM)."""
    cert: Path | None = None
    """This client's certificate, if the relay asks for one (PEM)."""
    key: Path | None = None
    """The private key of --cert (PEM)."""
    accept_space: bool = False
    """Take part in the task's common space without --agreement, also where this package would choose another one."""
    plain_http: bool = False
    """Send the token over http without TLS, also to other machines. Use this only inside a secure network."""
    patience: float = 30.0
    """Time to keep trying when the relay does not answer. Training then continues without it until it is back."""
    step_patience: float = 60.0
    """In a masked group, the time to wait for slower members before a meeting, and in each of its steps."""

    def __post_init__(self) -> None:
        if not 0 < self.step_patience <= 600:
            raise ConfigError(f"step_patience must be above 0 and at most 600 seconds, not {self.step_patience}")


def join(
    url: str = "",
    /,
    *,
    party: str,
    connection: ConnectionOptions,
    work: WorkOptions,
    policy: Policy,
) -> None:
    """Train with others through a relay, round after round; only sums and averages over samples leave.

    Started again, it continues where it stopped, whatever the reason. While the relay is down, it keeps training.
    Options that differ from their default override the policy in the party's file.

    repshare join https://relay.example.org --party party.py:alice --token-file alice.token

    repshare join --party party.py:alice --agreement patients.json --dry-run

    repshare join http://127.0.0.1:8000 --party party.py:alice --name alice --task digits --rounds 50

    Args:
        party: A function without parameters in a file, which returns repshare.Party(data=…), of RS with model=….
        url: Address of the relay.
    """
    console = Console()
    say(console, f"reading {party} …")  # before all that takes its time

    from repshare.exchange.http import LOG
    from repshare.party.party import check_fit, check_reference
    from repshare.party.state import State

    check_reference(party)
    if connection.token_file is not None and connection.token_file.exists() and others_may_read(connection.token_file):
        token = f"the token file {connection.token_file} can be read by other users of this machine"
        say(console, f"warning: {token}: chmod 600 {connection.token_file}", "yellow")
    if work.dry_run:
        _preview(make_client(party, connection.name or "client", work, policy), work, console)
        return
    if not url:
        raise ConfigError("give the relay's address, as in repshare join https://relay.example.org")
    show_log(console, LOG, level=logging.INFO)
    with closing(_connect(url, connection)) as exchange:
        membership = exchange.describe()
        folder, task = choose_folder(work, membership.task, membership.client), membership.agreed
        make = partial(
            make_client,
            party,
            membership.client,
            work,
            policy,
            task,
            folder=folder,
            accept_space=connection.accept_space,
        )
        client = make()
        if not task.group_members:
            client.exchange = exchange
        show_log(console, "repshare.secure")
        check_fit(client, membership)
        if not task.group_members:  # else nobody is there yet
            client.check_exposure()
        if work.approve:
            _preview(make(), work, console)
            ask(console)
        state = State(folder, client, membership)
        with state.folder:
            if work.approve:
                state.audit.approve()
            group = _gather(exchange, state, connection.step_patience, console) if task.group_members else None
            if group is not None:
                client.exchange = group
            run_rounds(state, exchange, work, console, reconnected="the relay is back", group=group)


def _preview(client: "Client", work: WorkOptions, console: Console) -> None:
    from repshare.party.state import reported

    also = ["the token and the request for a teacher"]
    if work.report:
        also.append(f"what --report sends: {', '.join(reported(client))}")
    show_preview(client, console, also=also)


def _gather(relay: "RelayExchange", state: "State", patience: float, console: Console) -> "GroupExchange":
    """The connection to a group whose members the relay proposes."""
    from repshare.party.grouping import count_company
    from repshare.privacy.guard import check_shares
    from repshare.secure import GroupExchange, RelayMeetings

    task, policy = state.membership.agreed, state.client.policy
    if policy.noise_shares > 1:
        say(console, check_shares(policy, task.group_members))
    return GroupExchange(
        task,
        state.membership.client,
        RelayMeetings(relay),
        task_name=state.membership.task,
        folder=state.folder.path,
        own=state.client.learner.shared_counts(),
        company=count_company(state.client),
        patience=patience,
        tell=lambda told: say(console, told),
    )


def _connect(url: str, connection: ConnectionOptions) -> "RelayExchange":
    from repshare.exchange.relay import RelayExchange

    if (connection.cert is None) != (connection.key is None):
        raise ConfigError("--cert and --key belong together: give both")
    if connection.token_file is None and (connection.name is None or connection.task is None):
        raise ConfigError("give --token-file, or for a relay without tokens --name and --task")
    return RelayExchange(
        url,
        connection.task,
        token=None if connection.token_file is None else _read_token(connection.token_file),
        client=connection.name,
        ca=connection.ca,
        cert=(connection.cert, connection.key) if connection.cert and connection.key else None,
        patience=connection.patience,
        plain_http=connection.plain_http,
    )


def _read_token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token file {path} cannot be read: {getattr(error, 'strerror', 'not text')}") from error
