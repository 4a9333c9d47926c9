"""`repshare part`, `total` and `receive`: a collaboration by files that people carry, without a network."""

import hashlib
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from repshare.cli.party.client import WorkOptions, choose_folder, make_client
from repshare.cli.party.lines import gain
from repshare.cli.party.preview import ask, list_data, list_warnings, show_preview
from repshare.cli.terminal import say
from repshare.config import Policy
from repshare.errors import ConfigError, Malformed
from repshare.files import explain_errors, write_atomically

if TYPE_CHECKING:
    from repshare.party.state import State
    from repshare.sharing.task import Task
    from repshare.space.agreement import Agreement

RECEIVED, MADE = "received", "made.safetensors"  # in a state folder: the last total, and the part made against it


@dataclass(frozen=True)
class NameOptions:
    """The name of a party without a relay."""

    name: str | None = None
    """This client's name, which the manifest has. Default: the name of the party's function."""


def part(party: str, output: Path, named: NameOptions, work: WorkOptions, policy: Policy) -> None:
    """Write this party's part of a common classifier to a file, with a readable manifest beside it (.json).

    The bytes, the rule, the budget and the checks are those of `repshare join`. The same part is written again until
    a total has been received; then the next one is another round.

    repshare part --party party.py:north --agreement cells.json --output north.safetensors

    Args:
        party: The party's function, as for join.
        output: The file to write: .safetensors.
    """
    from repshare.party.audit import describe_release

    if output.suffix != ".safetensors":
        raise ConfigError(f"--output {output}: the name must end in .safetensors")
    console = Console()
    if work.approve:
        show_preview(_open(party, named, work, policy).client, console, also=["the manifest beside it"])
        ask(console)
    state = _open(party, named, work, policy)
    client, made = state.client, state.folder.path / MADE
    for line in list_data(client.samples, client.test):
        say(console, line)
    for warning in list_warnings(client):
        say(console, warning, "yellow")
    with state.folder:
        if work.approve:
            state.audit.approve()
        state.restore()
        if not made.exists():
            record = state.play()
            if not made.exists():
                raise ConfigError(f"nothing leaves: {record.trouble or 'no class has enough samples'}")
        body = made.read_bytes()
    manifest = {"what": "a part of a common classifier", **describe_release(client, body)}
    with explain_errors(f"{output} cannot be written"):
        write_atomically(output, body)
        write_atomically(output.with_suffix(".json"), json.dumps(manifest, indent=2) + "\n")
    say(console, f"{output}: round {manifest['round']}, {len(body):,} bytes, SHA-256 {manifest['sha256'][:16]} …")


def total(parts: tuple[Path, ...], /, agreement: Path, output: Path) -> None:
    """Add up the parts of several parties, with a relay's checks. Each file is named after its party.

    repshare total parts/*.safetensors --agreement cells.json --output total.safetensors

    Args:
        parts: The files that `repshare part` wrote.
        agreement: File with the agreement, as `repshare relay tasks describe` prints it.
        output: The file to write: .safetensors. Beside it a manifest (.json) has the SHA-256 of each part.
    """
    from repshare.exchange.files import add_up
    from repshare.space.agreement import read_agreement

    bodies = {path.stem: _read(path) for path in parts}
    if len(bodies) < max(2, len(parts)):
        raise ConfigError("give the parts of at least two parties, in files of different names")
    agreed = read_agreement(agreement.read_text(encoding="utf-8"))
    body = add_up(_task(agreed, bodies), bodies, agreed.adapt(Policy()).precision or "fp16")
    hashes = {name: hashlib.sha256(each).hexdigest() for name, each in bodies.items()}
    manifest = {"what": "the total of these parts", "space": agreed.name, "parts": hashes}
    with explain_errors(f"{output} cannot be written"):
        write_atomically(output, body)
        write_atomically(output.with_suffix(".json"), json.dumps(manifest, indent=2) + "\n")
    say(Console(), f"{output}: the total of {', '.join(bodies)} ({len(body):,} bytes)")


def receive(total: Path, /, party: str, named: NameOptions, work: WorkOptions) -> None:
    """Use the total of all parties from now on; say what it gains, and keep the classifier in the state folder.

    repshare receive total.safetensors --party party.py:north --agreement cells.json

    Args:
        total: The file that `repshare total` wrote.
        party: The party's function, as for `repshare part`.
    """
    state, console = _open(party, named, work, None), Console()
    with state.folder:
        state.restore()
        body = _read(total)
        state.client.learner.absorb(body)
        write_atomically(state.folder.path / RECEIVED, body, private=True)
        (state.folder.path / MADE).unlink(missing_ok=True)
        state.refresh()
    say(console, f"{state.client.name} after round {state.client.round_number}: {gain(state.client.learner)}", "bold")
    for path in state.learned:
        say(console, f"the {path.stem} is in {path}: repshare predict and export use it", "bold")


def _open(party: str, named: NameOptions, work: WorkOptions, policy: Policy | None) -> "State":
    """The party's state, with an exchange of files in its folder. Default: the policy of its last part."""
    from repshare.exchange.files import FileExchange
    from repshare.exchange.relay import Membership
    from repshare.party.state import State, read_policy

    name = named.name or party.rpartition(":")[2]
    folder = choose_folder(work, "files", name)
    if policy is None:
        policy = read_policy(folder)
    client = make_client(party, name, work, policy, folder=folder)
    task = client.learner.task()
    if task.space is None:
        raise ConfigError("files are for a common space: give --agreement")
    client.exchange = FileExchange(task, folder / MADE, folder / RECEIVED)
    client.check_exposure()
    return State(folder, client, Membership("files", name, task))


def _task(agreed: "Agreement", bodies: dict[str, bytes]) -> "Task":
    """The task of these parties, as a relay would have it. First parts are compared, as they look like each other."""
    from repshare.sharing import wire
    from repshare.sharing.formats import FORMATS

    releases = []
    for name, body in bodies.items():
        try:
            releases.append(wire.decode_release(body))
        except Malformed as error:
            raise ConfigError(f"{name}: {error}") from error
    rows = len(releases[0].means.labels) - FORMATS[agreed.format].rows_beside
    task = agreed.task(len(agreed.class_names) or max(2, rows))
    are_first = all(release.round == 1 for release in releases)
    return replace(task, minimum_count=2, compared=are_first and task.format == "parts")


def _read(path: Path) -> bytes:
    with explain_errors(f"{path} cannot be read"):
        return path.read_bytes()
