"""`repshare demo`: a collaboration to look at, on this machine."""

import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rich.console import Console
from rich.live import Live

from repshare.cli.interrupts import Interrupted
from repshare.errors import ConfigError
from repshare.results.terminal import print_json, say

if TYPE_CHECKING:
    from repshare.cli.demo.scene import Cast, Rounds, Scene

FOR_REAL = """\
The same among machines of your own (docs/relay.md, docs/joining.md):

  repshare relay serve --task TASK --classes C --dimension D …
  repshare relay invite alice --task TASK > alice.token
  repshare join URL --task party.py:alice --token-file alice.token
"""


def demo(
    clients: int = 4,
    dataset: Literal["digits", "mnist", "fashion_mnist"] = "digits",
    samples: int = 50,
    rounds: int = 60,
    seed: int = 0,
    pace: float = 0.2,
    keep: Path | None = None,
    stay: bool = False,
    json: bool = False,
) -> None:
    """Watch clients with different networks learn together: a real relay, real processes, real data, a live page.

    At the end it shows what each client would have learnt alone. No files are left behind.

    repshare demo

    repshare demo --dataset mnist --clients 6 --stay

    repshare demo --keep kept && repshare report kept/run

    Args:
        clients: Number of clients. Each is a process.
        dataset: Dataset to learn from. digits needs no download.
        samples: Number of images that each client has.
        rounds: Number of rounds that each client takes part in.
        seed: Seed of the order of the data, the starting weights and all random choices.
        pace: Minimum duration of a round, so that there is something to watch.
        keep: New folder in which to keep all files: the relay's, the clients', and a run for `repshare report`.
        stay: On a terminal, keep the relay and its page up until Enter or Ctrl-C.
        json: Print one JSON document on standard output, and nothing else there.
    """
    from repshare.cli.demo.processes import DemoProcesses
    from repshare.cli.demo.scene import Cast, Scene

    cast = Cast(dataset, clients, samples, rounds, seed, pace)
    console = Console(stderr=json, highlight=False)
    try:
        with _folder(keep) as folder, DemoProcesses(folder, remove=keep is None) as processes:
            console.print("starting a relay …", style="dim")
            scene = Scene(cast, folder, processes)
            say(console, f"live page    {scene.page}\n")
            scene.begin()
            done = _watch(scene, console)
            _show(done, cast, console, as_json=json)
            if keep is not None:
                scene.keep()
                say(console, f"all files in {keep}: repshare report {keep / 'run'}")
            if stay and sys.stdout.isatty():
                say(console, f"the page stays at {scene.page} until Enter or Ctrl-C")
                sys.stdin.readline()
    except KeyboardInterrupt:
        raise Interrupted("stopped: every process of the demo has ended") from None


def _watch(scene: "Scene", console: Console) -> "list[Rounds]":
    """Show how far everyone is until all are done."""
    from repshare.cli.demo.view import live_table

    if not console.is_terminal:
        *_, rounds = scene.watch()
        return rounds
    rounds = scene.look()
    with Live(live_table(rounds, scene.cast), console=console, transient=True) as live:
        for rounds in scene.watch():
            live.update(live_table(rounds, scene.cast))
    return rounds


def _show(rounds: "list[Rounds]", cast: "Cast", console: Console, *, as_json: bool) -> None:
    from repshare.cli.demo.view import final_table

    if as_json:
        print_json(_document(rounds, cast))
        return
    console.print(final_table(rounds, cast))
    console.print("[bold]alone[/]      the same network, weights and images, without other clients to learn from")
    console.print("[bold]together[/]   with class averages of other clients' representations, from the relay")
    console.print("[bold]up, down[/]   what it sent and received in all rounds\n")
    console.print(FOR_REAL, markup=False)


def _document(rounds: "list[Rounds]", cast: "Cast") -> dict[str, Any]:
    from dataclasses import asdict

    from repshare.cli.demo.view import last

    clients = [
        {
            "name": each.name,
            "model": each.model,
            "alone": last(each.alone),
            "together": last(each.together),
            "bytes_up": sum(line["bytes_up"] for line in each.together),
            "bytes_down": sum(line["bytes_down"] for line in each.together),
        }
        for each in rounds
    ]
    means = {way: statistics.fmean(float(str(client[way])) for client in clients) for way in ("alone", "together")}
    return {**means, "clients": clients, "config": asdict(cast)}


@contextmanager
def _folder(keep: Path | None) -> Iterator[Path]:
    """Yield a folder for the length of a block, or one that stays."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="repshare-demo-", ignore_cleanup_errors=True) as path:
            yield Path(path)
        return
    try:
        keep.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            f"{keep} cannot be made: {error.strerror}. --keep takes a folder that does not exist yet"
        ) from error
    yield keep.absolute()
