"""`repshare peer`: train with others without a server; and `repshare keys`: who they are."""

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console

from repshare.aggregation import Aggregation
from repshare.commands.rounds import Work, carry_on, default_folder, make_client, say, show_preview, tell_warnings
from repshare.config import Policy
from repshare.errors import ConfigError
from repshare.interrupts import pause

KEYS = "Keys, by which peers know each other."


@dataclass(frozen=True)
class Place:
    """Who this is among the peers, and how they find each other."""

    name: str
    """This client's name. The others know it by its key."""
    key: Path
    """The file of `repshare keys new`, with which this client's releases are signed."""
    task_name: str = "task"
    """What the peers call their collaboration."""
    trust: Path | None = None
    """The file that says which key belongs to which peer: see `repshare keys trust`."""
    first_use: bool = False
    """Believe whoever comes first under a name that is not in the trust file, and remember its key there."""
    listen: tuple[str, ...] = ()
    """Where others may connect: tcp/0.0.0.0:7447, tls/0.0.0.0:7447. Port 0: any that is free; it is then said."""
    connect: tuple[str, ...] = ()
    """Where to find others: tcp/bob.example.org:7447. One is enough; those it knows are found through it."""
    multicast: bool = False
    """Look for others in the local network."""
    ca: Path | None = None
    """For tls/: certificates of the authority that vouches for the peers (PEM)."""
    cert: Path | None = None
    """For tls/: this peer's certificate (PEM)."""
    cert_key: Path | None = None
    """For tls/: the certificate's private key."""
    mutual: bool = False
    """For tls/: ask those who connect for a certificate, and show ours."""
    timeout: float = 5.0
    """Seconds to wait for peers in a round. One that does not answer costs no more than that."""
    memory: float = 0.0
    """0 to 1: go on counting the class means of peers met earlier, after k rounds with memory**k of their samples."""
    norm_bound: float | None = None
    """Refuse releases with longer representations. Tanh features are never longer than √d'. Default: 4 √d'."""
    aggregation: Aggregation = "mean"
    """How peers' class means become one: mean, or median, trimmed or geometric, which a few liars cannot spoil."""
    linger: float = 0.0
    """Seconds to go on answering others after the last round."""

    def __post_init__(self) -> None:
        if not (self.listen or self.connect or self.multicast):
            raise ConfigError("nobody would ever be met: give --listen, --connect or --multicast")
        if self.trust is None and not self.first_use:
            raise ConfigError("nobody would be believed: give --trust, or --first-use to believe whoever comes first")
        if (self.cert is None) != (self.cert_key is None):
            raise ConfigError("--cert and --cert-key belong together: give both")
        if not 0 <= self.linger < 1e6:
            raise ConfigError(f"linger must be from 0 to a million seconds, not {self.linger}")


def peer(
    task: Annotated[str, tyro.conf.arg(metavar="FILE.PY:FUNCTION")], place: Place, work: Work, policy: Policy
) -> None:
    """Train with others without a server, round after round; only averages leave this machine, signed.

    Started again it goes on where it was, whatever ended it. While nobody is there it goes on training.

    repshare keys new alice.key

    repshare peer --task party.py:alice --name alice --key alice.key --trust peers.jsonl --listen tcp/0.0.0.0:7447

    repshare peer --task party.py:bob --name bob --key bob.key --trust peers.jsonl --connect tcp/alice.example.org:7447

    Args:
        task: file.py:function. The function takes nothing and returns repshare.Party(model=…, data=…, test=…).
        place: Who this is among the peers, and how they find each other.
        work: How to go about it.
        policy: How to learn, and what to share: M↓ (--m-down) is how many peers are asked in a round. What is set here
            to other than its default comes before the policy in the party's file.
    """
    from repshare.exchange.network import Tls
    from repshare.exchange.peer import PeerExchange
    from repshare.exchange.relay import Membership
    from repshare.joining import State
    from repshare.keys import Key, Trust
    from repshare.stores import open_database
    from repshare.task import Task, usual_norm_bound

    if work.report:
        raise ConfigError("--report is for a relay's page; without a server there is none")
    console = Console(stderr=work.json)
    client = make_client(task, place.name, work, policy)
    if work.dry_run:
        show_preview(client, console, as_json=work.json, also=["the signature, the public key and the names"])
        return
    network = client.learner.network
    membership = Membership(place.task_name, place.name, network.classes, network.dimension)
    bound = client.learner.norm_bound = place.norm_bound or usual_norm_bound(network.dimension)
    agreed = Task(network.classes, network.dimension, norm_bound=bound, aggregation=place.aggregation)
    key, trust = Key.read(place.key), Trust(place.trust, first_use=place.first_use)
    state = State(work.state or default_folder(membership), client, membership)
    tell_warnings(console, "repshare.peer")
    with state.folder, closing(open_database(str(state.folder.path / "peers.db"))) as database:
        exchange = PeerExchange(
            agreed,
            place.name,
            place.task_name,
            key=key,
            trust=trust,
            listen=place.listen,
            connect=place.connect,
            multicast=place.multicast,
            tls=Tls(place.ca, place.cert, place.cert_key, place.mutual),
            store=database.store("peers"),
            timeout=place.timeout,
            memory=place.memory,
        )
        try:
            state.attach(exchange)
            if exchange.listening:
                say(console, f"listening at {', '.join(exchange.listening)}")
            carry_on(state, exchange, membership, work, console, back="peers are back")
            pause(place.linger)
        finally:
            exchange.leave()


def new(path: Annotated[Path, tyro.conf.Positional]) -> None:
    """Make a key, keep it in a file that nobody else may read, and print its public half for the others.

    repshare keys new alice.key

    Args:
        path: A file that does not exist yet.
    """
    from repshare.keys import Key

    key = Key.new()
    key.write(path)
    print(key.public.hex())


def show(
    path: Annotated[Path, tyro.conf.Positional], json_lines: Annotated[bool, tyro.conf.arg(name="json")] = False
) -> None:
    """Print the public half of a key, or whom a trust file trusts.

    repshare keys show alice.key

    repshare keys show peers.jsonl

    Args:
        path: A key, or a trust file.
        json_lines: Print JSON.
    """
    from repshare.keys import Key, Trust

    if not path.is_file():
        raise ConfigError(f"there is no file {path}")
    if path.read_bytes().startswith(b"-----BEGIN"):
        public = Key.read(path).public.hex()
        print(json.dumps({"key": public}) if json_lines else public)
        return
    for name, key in Trust(path):
        print(json.dumps({"name": name, "key": key.hex()}) if json_lines else f"{key.hex()}  {name}")


def trust(
    name: Annotated[str, tyro.conf.Positional],
    key: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="PUBLIC-KEY")],
    file: Path = Path("peers.jsonl"),
) -> None:
    """Believe that what is signed with this key is this peer's. Ask the peer for the key by a way you trust.

    repshare keys trust bob 3b6a27bcceb6a42d62a3a8d02a6f0d73653215771de243a63ac048a18b59da29

    Args:
        name: The peer's name.
        key: Its public key, as `repshare keys new` printed it there.
        file: The trust file; it is made if it does not exist.
    """
    from repshare.exchange.network import check_name
    from repshare.keys import Trust, parse_public

    check_name(name)
    Trust(file).add(name, parse_public(key))
    print(f"{name} is known in {file}")
