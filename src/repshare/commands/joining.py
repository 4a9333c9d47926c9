"""`repshare join`: train with others through a relay."""

import json
import re
from collections.abc import Mapping
from contextlib import closing
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro
from rich.console import Console

from repshare import screen
from repshare.config import Policy
from repshare.errors import ConfigError, ExchangeError
from repshare.interrupts import interruptible, pause

if TYPE_CHECKING:
    from repshare.client import Client, Record
    from repshare.exchange.relay import Membership, RelayExchange
    from repshare.joining import Party, State


@dataclass(frozen=True)
class Access:
    """How to get into the relay."""

    token_file: Path | None = None
    """A file with the token that `repshare relay invite` printed. The relay knows client and task by it."""
    name: str | None = None
    """For an open relay, one without tokens: this client's name."""
    task_name: str | None = None
    """For an open relay: the task to take part in."""
    ca: Path | None = None
    """Certificates of the authority that vouches for the relay, if it is not a public one (PEM)."""
    cert: Path | None = None
    """This client's certificate, where the relay asks for one (PEM)."""
    key: Path | None = None
    """The certificate's private key."""
    plain_http: bool = False
    """Send the token over http without TLS, also to other machines. Only where the way there is secure in itself."""
    timeout: float = 10.0
    """Seconds to wait for one answer."""
    patience: float = 30.0
    """Seconds to keep trying when the relay does not answer. Training then goes on without it until it is back."""


@dataclass(frozen=True)
class Work:
    """How to go about it."""

    rounds: int | None = None
    """Stop after this round. Default: go on until Ctrl-C."""
    state: Path | None = None
    """The folder from which the same command goes on. Default: repshare-TASK-CLIENT."""
    restart: bool = False
    """Forget the rounds in the state folder, withdraw what was shared, and begin at round 1."""
    dry_run: bool = False
    """Only show what would leave this machine in a round. Contacts nobody and writes nothing."""
    seed: int = 0
    """Of the starting weights and all that is drawn."""
    eval_every: int = 1
    """Test after every so many rounds, if the party has test data."""
    pace: float = 0.0
    """Seconds that a round takes at least, so that slower parties can keep up."""
    device: str = "cpu"
    """Where to train, as PyTorch names it."""
    threads: int | None = None
    """Threads to compute with. Default: PyTorch's choice."""
    report: bool = False
    """Tell the relay's page after each round how it went: accuracies, losses, bytes, and the model's size and type.
    Nothing of it is needed to take part."""
    json: bool = False
    """Print one JSON object a round on standard output, and a last one about all, and nothing else there."""

    def __post_init__(self) -> None:
        for name in ("rounds", "eval_every", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name} must be at least 1, not {value}")
        if not 0 <= self.pace < 1e6:
            raise ConfigError(f"pace must be from 0 to a million seconds, not {self.pace}")


def join(
    url: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="URL")],
    task: Annotated[str, tyro.conf.arg(metavar="FILE.PY:FUNCTION")],
    access: Access,
    work: Work,
    policy: Policy,
) -> None:
    """Train with others through a relay, round after round; only averages leave this machine.

    Started again it goes on where it was, whatever ended it. While the relay is away it goes on training.

    repshare join https://relay.example.org --task party.py:alice --token-file alice.token

    repshare join https://relay.example.org --task party.py:alice --dry-run

    repshare join http://127.0.0.1:8000 --task party.py:alice --name alice --task-name digits --rounds 50

    Args:
        url: The relay's address.
        task: file.py:function. The function takes nothing and returns repshare.Party(model=…, data=…, test=…).
        access: How to get into the relay.
        work: How to go about it.
        policy: How to learn, and what to share. What is set here to other than its default comes before the policy in
            the party's file.
    """
    import torch

    if work.threads is not None:
        torch.set_num_threads(work.threads)
    console = Console(stderr=work.json)
    if work.dry_run:
        _show_preview(_make_client(task, access.name or "client", work, policy), console, as_json=work.json)
        return
    with closing(_connect(url, access)) as exchange:
        membership = exchange.describe()
        client = _make_client(task, membership.client, work, policy)
        client.exchange = exchange
        _run(client, membership, exchange, work, console)


def _run(client: "Client", membership: "Membership", exchange: "RelayExchange", work: Work, console: Console) -> None:
    from repshare.joining import State, check_fit, take_part
    from repshare.results import to_json

    check_fit(client, membership)
    folder = work.state or Path(re.sub(r"[^\w.-]", "-", f"repshare-{membership.task}-{membership.client}"))
    state = State(folder, client, membership)
    with state.folder, interruptible("the same command goes on from here") as until_asked:
        if work.restart:
            exchange.withdraw()
            state.clear()
        state.restore()
        _say(console, _opening(client, membership, folder))
        before = None
        for record in until_asked(take_part(state, work.rounds, eval_every=work.eval_every)):
            if work.json:
                print(to_json(asdict(record)), end="", flush=True)
            else:
                _say(console, _line(record), "yellow" if record.trouble else "")
            if before is not None and before.trouble and not record.trouble:
                _say(console, "the relay is back")
            before = record
            if work.report and not record.trouble:
                _report(exchange, client, record, console)
            if record.round != work.rounds:
                pause(work.pace - record.seconds)
        _close(state, console, as_json=work.json)


def _report(exchange: "RelayExchange", client: "Client", record: "Record", console: Console) -> None:
    from repshare.joining import make_report

    try:
        exchange.report(make_report(client, record))
    except ExchangeError as error:  # a report is not worth a round
        _say(console, f"round {record.round} was not reported: {error}", "yellow")


def default_folder(membership: "Membership") -> Path:
    """Where a client keeps its state: below the current folder, whatever names a relay gives."""
    return Path(re.sub(r"[^\w.\-]+", "-", f"repshare-{membership.task}-{membership.client}"))


def _connect(url: str, access: Access) -> "RelayExchange":
    from repshare.exchange.relay import RelayExchange

    if (access.cert is None) != (access.key is None):
        raise ConfigError("--cert and --key belong together: give both")
    if access.token_file is None and (access.name is None or access.task_name is None):
        raise ConfigError("give --token-file, or for a relay without tokens --name and --task-name")
    return RelayExchange(
        url,
        access.task_name,
        token=None if access.token_file is None else _read_token(access.token_file),
        client=access.name,
        ca=access.ca,
        cert=(access.cert, access.key) if access.cert and access.key else None,
        timeout=access.timeout,
        patience=access.patience,
        plain_http=access.plain_http,
    )


def _read_token(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the token file {path} cannot be read: {getattr(error, 'strerror', 'not text')}") from error


def _make_client(task: str, name: str, work: Work, policy: Policy) -> "Client":
    from repshare.client import Client
    from repshare.joining import load_party
    from repshare.randomness import derive

    party = load_party(task, derive(work.seed, name, "model"))
    return Client(
        party.model,
        party.data,
        name=name,
        policy=_combine(party, policy),
        test=party.test,
        seed=work.seed,
        device=work.device,
        head=party.head,
    )


def _combine(party: "Party", given: Policy) -> Policy:
    """The party's policy with what the command line sets otherwise than the default."""
    default = Policy()
    names = [field.name for field in fields(Policy)]
    changed = {name: getattr(given, name) for name in names if getattr(given, name) != getattr(default, name)}
    return replace(party.policy or default, **changed)


def _opening(client: "Client", membership: "Membership", folder: Path) -> str:
    learner = client.learner
    goes_on = f", going on after round {client.round_number}" if client.round_number else ""
    return (
        f"{client.name} in {membership.task} ({membership.classes} classes, d' = {membership.dimension}) with "
        f"{type(learner.network.model).__name__} and {len(learner.samples):,} samples{goes_on}; state in {folder}"
    )


def _line(record: "Record") -> str:
    parts = [f"round {record.round:4}", f"loss {record.ce:6.3f}", f"train {record.train_accuracy:6.1%}"]
    if record.test_accuracy is not None:
        parts.append(f"test {record.test_accuracy:6.1%}")
    parts += [f"up {screen.traffic(record.bytes_up)}", f"down {screen.traffic(record.bytes_down)}"]
    return "   ".join([*parts, *([record.trouble] if record.trouble else [])])


def _close(state: "State", console: Console, *, as_json: bool) -> None:
    """Say in a line what came of it, from the records alone."""
    lines = state.records.read()
    tested = [line["test_accuracy"] for line in lines if line["test_accuracy"] is not None]
    up, down = (sum(line[way] for line in lines) for way in ("bytes_up", "bytes_down"))
    troubled = sum(line["trouble"] is not None for line in lines)
    rounds = state.client.round_number
    if as_json:
        summary = {"client": state.client.name, "rounds": rounds, "test_accuracy": tested[-1] if tested else None}
        print(json.dumps({**summary, "bytes_up": up, "bytes_down": down, "troubled_rounds": troubled}), flush=True)
        return
    accuracy = f"test accuracy {tested[-1]:.2%}; " if tested else ""
    trouble = f"; trouble in {troubled} of them" if troubled else ""
    sent = f"sent {screen.traffic(up)} and received {screen.traffic(down)} in all"
    _say(console, f"{state.client.name} after {rounds} rounds: {accuracy}{sent}{trouble}", "bold")
    if lines and not lines[-1]["bytes_up"]:
        _say(console, "the last release was not sent", "yellow")


def _show_preview(client: "Client", console: Console, *, as_json: bool) -> None:
    from repshare.joining import preview

    shown = preview(client)
    if as_json:
        print(json.dumps(shown, indent=2))
        return
    console.print(screen.release_table(_rows(shown["classes"])))
    vectors, numbers = shown["vectors"], f"{shown['dimension']} numbers ({shown['precision']})"
    _say(console, f"{vectors} vectors of {numbers}, their classes and counts: {shown['bytes']:,} bytes a round")
    _say(console, "Nothing else leaves but the token and the question for a teacher. Nothing has been sent now.")


def _rows(classes: Mapping[int, Mapping[str, Any]]) -> dict[str, tuple[str, str, str]]:
    rows = {}
    for label, held in classes.items():
        over = held["observations_over"]
        mean = f"1 over {held['mean_over']} samples" if held["mean_over"] else "–"
        observed = f"{len(over)} over {over[0]} samples" if over else "–"
        rows[str(label)] = (f"{held['samples']}", mean, observed)
    return rows


def _say(console: Console, text: str, style: str = "") -> None:
    console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)
