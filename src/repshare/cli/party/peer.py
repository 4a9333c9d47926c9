"""`repshare peer`: train with others without a server; and `repshare keys`: who you are."""

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from repshare.cli.party.client import WorkOptions, choose_folder, make_client
from repshare.cli.party.preview import ask, show_preview
from repshare.cli.party.rounds import run_rounds, show_log
from repshare.cli.terminal import say
from repshare.config import Policy
from repshare.errors import ConfigError

if TYPE_CHECKING:
    from repshare.client import Client
    from repshare.sharing.task import Task


@dataclass(frozen=True)
class PeerOptions:
    """A client's place among the peers: its name and key, and how they find each other."""

    name: str
    """This client's name. Other peers know it by its key."""
    key: Path
    """Key that signs this client's releases, made by `repshare keys`."""
    task: str = "task"
    """Name of the collaboration, the same for all peers."""
    trust: Path | None = None
    """Trust file: which key belongs to which peer, a line {"name": "bob", "key": "…"} each."""
    first_use: bool = False
    """Trust the first key seen for a name that is not in the trust file, and save it there."""
    listen: tuple[str, ...] = ()
    """Where other peers can connect, such as tcp/0.0.0.0:7447 or tls/0.0.0.0:7447. Port 0 takes a free one."""
    connect: tuple[str, ...] = ()
    """Where to find other peers, such as tcp/bob.example.org:7447. One is enough; the others are found through it."""
    multicast: bool = False
    """Look for peers in the local network."""
    ca: Path | None = None
    """Certificates of the peers' authority (PEM)."""
    cert: Path | None = None
    """This peer's certificate (PEM)."""
    cert_key: Path | None = None
    """The private key of --cert (PEM)."""
    mutual: bool = False
    """Require a certificate from peers that connect, and present ours."""
    timeout: float = 5.0
    """Time to wait for peers in a round, in seconds."""

    def __post_init__(self) -> None:
        if not (self.listen or self.connect or self.multicast):
            raise ConfigError("this client would meet no other: give --listen, --connect or --multicast")
        if self.trust is None and not self.first_use:
            raise ConfigError(
                "no peer would be trusted: give --trust, or --first-use to trust the first client under each name"
            )
        if (self.cert is None) != (self.cert_key is None):
            raise ConfigError("--cert and --cert-key belong together: give both")


def peer(
    party: str,
    options: PeerOptions,
    work: WorkOptions,
    policy: Policy,
) -> None:
    """Train with others without a server, round after round; only sums and averages over samples leave, signed.

    Started again, it continues where it stopped, whatever the reason. While no peer is reachable, it keeps training.
    --m-down is the number of peers asked in a round. Options that differ from their default override the policy in
    the party's file.

    repshare keys alice.key

    repshare peer --party party.py:alice --name alice --key alice.key --trust peers.jsonl --listen tcp/0.0.0.0:7447

    repshare peer --party party.py:bob --name bob --key bob.key --trust peers.jsonl --connect tcp/alice.example.org:7447

    Args:
        party: A function without parameters in a file, which returns repshare.Party(data=…), of RS with model=….
    """
    from repshare.exchange.keys import Key, Trust
    from repshare.exchange.network import Tls
    from repshare.exchange.peer import PeerExchange
    from repshare.exchange.relay import Membership
    from repshare.party.state import State
    from repshare.stores import open_database

    if work.report:
        raise ConfigError("--report is for a relay's page; without a server there is none")
    console = Console()
    folder = choose_folder(work, options.task, options.name)
    client = make_client(party, options.name, work, policy, folder=None if work.dry_run else folder)
    if work.dry_run or work.approve:
        also, shown = ["the signature, the public key and the names"], client
        if not work.dry_run:  # to the client, a preview is a release: show another one
            shown = make_client(party, options.name, work, policy, folder=folder)
        show_preview(shown, console, also=also)
        if work.dry_run:
            return
        ask(console)
    agreed = _agree(client, options)
    client.learner.norm_bound = agreed.norm_bound
    membership = Membership(options.task, options.name, agreed)
    key = Key.read(options.key)
    state = State(folder, client, membership)
    show_log(console, "repshare.peer")
    with state.folder, closing(open_database(str(state.folder.path / "peers.db"))) as database:
        exchange = PeerExchange(
            agreed,
            options.name,
            options.task,
            key=key,
            trust=Trust(options.trust, first_use=options.first_use),
            listen=options.listen,
            connect=options.connect,
            multicast=options.multicast,
            tls=Tls(options.ca, options.cert, options.cert_key, options.mutual),
            store=database.store("board"),
            timeout=options.timeout,
        )
        if work.approve:
            state.audit.approve()
        try:
            client.check_exposure()
            client.exchange = exchange
            if exchange.listening:
                say(console, f"listening at {', '.join(exchange.listening)}")
            run_rounds(state, exchange, work, console, reconnected="peers are back")
        finally:
            exchange.leave()


def _agree(client: "Client", options: PeerOptions) -> "Task":
    """The task of this client's peers."""
    from repshare.sharing.task import usual_norm_bound

    bound = usual_norm_bound(client.learner.dimension)
    return client.learner.task(norm_bound=bound)


def keys(path: Path, /) -> None:
    """Print the public half of a key, for the other peers. Where there is no file, a new key is made and kept there.

    Others add it to their trust file, a line for each peer: {"name": "alice", "key": "3b6a…"}. Send it to them over a
    channel that you trust.

    repshare keys alice.key

    Args:
        path: The file, which only you can read.
    """
    from repshare.exchange.keys import Key

    if not path.exists():
        Key.new().write(path)
    print(Key.read(path).public.hex())
