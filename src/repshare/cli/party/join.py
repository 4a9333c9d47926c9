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
    from repshare.exchange.relay import Membership, RelayExchange
    from repshare.party.state import State
    from repshare.secure import SecureExchange, Together


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


@dataclass(frozen=True)
class SecureSumOptions:
    """Secure sums: a fixed group whose class sums are masked, so that the relay learns their total only."""

    group: Path | None = None
    """Trust file (see `repshare keys trust`) with the names and keys of all members, including this client.
    Default, in a task for masked groups: who is there, whose keys are trusted when they are first seen.
    This needs --m-up 0, because a sum cannot hide the observations of one client."""
    signing_key: Path | None = None
    """This client's key, made by `repshare keys new`, by which the group knows it."""
    threshold: int = 0
    """Number of members that must take part in a sum, the same for all members.
    With fewer than all, the totals with and without a member reveal something about it.
    Default: more than two thirds."""
    step_patience: float = 60.0
    """Time to wait for slower members before a sum, and in each of its five steps. Then it continues without them."""

    def __post_init__(self) -> None:
        if (self.group is None) != (self.signing_key is None):
            raise ConfigError("--group and --signing-key belong together: give both")
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
    secure: SecureSumOptions,
) -> None:
    """Train with others through a relay, round after round; only averages leave this machine.

    Started again, it continues where it stopped, whatever the reason. While the relay is down, it keeps training.
    Options that differ from their default override the policy in the party's file.

    repshare join https://relay.example.org --party party.py:alice --token-file alice.token

    repshare join --party party.py:alice --agreement patients.json --dry-run

    repshare join https://relay.example.org --party party.py:alice --token-file alice.token --m-up 0 --group peers.jsonl
    --signing-key alice.key

    repshare join http://127.0.0.1:8000 --party party.py:alice --name alice --task digits --rounds 50

    Args:
        party: A function without parameters in a file, which returns repshare.Party(model=…, data=…, test=…).
        url: Address of the relay.
    """
    from repshare.exchange.http import LOG
    from repshare.party.party import check_fit, check_reference
    from repshare.party.state import State

    check_reference(party)
    console = Console()
    if connection.token_file is not None and connection.token_file.exists() and others_may_read(connection.token_file):
        token = f"the token file {connection.token_file} can be read by other users of this machine"
        say(console, f"warning: {token}: chmod 600 {connection.token_file}", "yellow")
    if work.dry_run:
        _preview(make_client(party, connection.name or "client", work, policy), work, secure, console)
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
        group = _secure(exchange, membership, secure, client.policy) if secure.group else None
        if not task.group_members:
            client.exchange = group or exchange
        if group is not None and client.policy.noise_shares > 1:
            from repshare.privacy.guard import check_shares

            say(console, check_shares(client.policy, len(group.members), group.required))
        show_log(console, "repshare.secure")
        check_fit(client, membership)
        if group is not None or not task.group_members:  # else nobody is there yet
            client.check_exposure()
        if work.approve:
            _preview(make(), work, secure, console)
            ask(console)
        state = State(folder, client, membership)
        with state.folder:
            if work.approve:
                state.audit.approve()
            if task.group_members and group is None:
                group = _gather(exchange, state, secure, console)
            if group is not None:
                group.keep_in(state.total)
                client.exchange = group
            run_rounds(state, exchange, work, console, reconnected="the relay is back", group=group)


def _preview(client: "Client", work: WorkOptions, secure: SecureSumOptions, console: Console) -> None:
    from repshare.party.state import reported

    also = ["the token and the request for a teacher"]
    if secure.group is not None:
        _check_shares_sums_only(client.policy)
        also = ["the token, the members' names, and a key with a signature in the sum's first step"]
    if work.report:
        also.append(f"what --report sends: {', '.join(reported(client))}")
    show_preview(client, console, also=also, group=_describe_group(secure))


def _describe_group(secure: SecureSumOptions) -> "Together | None":
    from repshare.exchange.keys import Trust
    from repshare.secure import Together, usual_threshold

    if secure.group is None:
        return None
    members = len(dict(Trust(secure.group))) if secure.group.exists() else 1
    return Together(members, secure.threshold or usual_threshold(members))


def _check_shares_sums_only(policy: Policy) -> None:
    if policy.m_up:
        raise ConfigError("observations are one client's own, and no sum hides them: --m-up 0")


def _secure(
    relay: "RelayExchange", membership: "Membership", secure: SecureSumOptions, policy: Policy
) -> "SecureExchange":
    from repshare.exchange.keys import Key, Trust
    from repshare.secure import RelayMeetings, SecureExchange

    _check_shares_sums_only(policy)
    if secure.group is None or secure.signing_key is None or not secure.group.exists():
        raise ConfigError(f"there is no trust file {secure.group}: see repshare keys trust")
    members = dict(Trust(secure.group))
    return SecureExchange(
        membership.agreed,
        membership.client,
        RelayMeetings(relay),
        task_name=membership.task,
        key=Key.read(secure.signing_key),
        members=members,
        threshold=secure.threshold,
        patience=secure.step_patience,
    )


def _gather(relay: "RelayExchange", state: "State", secure: SecureSumOptions, console: Console) -> "SecureExchange":
    """The connection to a group whose members the relay proposes."""
    from repshare.party.grouping import count_company
    from repshare.privacy.guard import check_shares
    from repshare.secure import GatheredExchange

    task, policy = state.membership.agreed, state.client.policy
    if secure.threshold:
        raise ConfigError("in the task's group all who meet take part in a sum: leave --threshold out")
    if policy.noise_shares > 1:
        say(console, check_shares(policy, task.group_members, task.group_members))
    return GatheredExchange(
        task,
        state.membership.client,
        relay,
        task_name=state.membership.task,
        folder=state.folder.path,
        own=state.client.learner.shared_counts(),
        company=count_company(state.client),
        patience=secure.step_patience,
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
