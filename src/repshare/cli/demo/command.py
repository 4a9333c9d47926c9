"""`repshare demo`: a collaboration to watch, on this machine."""

import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.live import Live

from repshare.cli.demo.options import DemoOptions
from repshare.cli.interrupts import Interrupted
from repshare.cli.parsing.options import Json
from repshare.errors import ConfigError
from repshare.results.terminal import print_json, say

EXPLANATION = """\
[bold]alone[/]      the same network, weights and images, without other clients to learn from
[bold]together[/]   with class averages of other clients' representations, from the relay
[bold]up, down[/]   what it sent and received in all rounds

The same among machines of your own (docs/relay.md, docs/joining.md):

  repshare relay serve --task TASK --classes C --dimension D …
  repshare relay invite alice --task TASK > alice.token
  repshare join URL --task party.py:alice --token-file alice.token
"""


def demo(options: DemoOptions, keep: Path | None = None, stay: bool = False, json: Json = False) -> None:
    """Watch clients with different networks learn together: a real relay, real processes, real data, a live page.

    At the end it shows what each client would have learnt alone. No files are left behind.

    repshare demo

    repshare demo --dataset mnist --clients 6 --stay

    repshare demo --keep kept && repshare report kept/run

    Args:
        keep: New folder in which to keep all files: the relay's, the clients', and a run for `repshare report`.
        stay: On a terminal, keep the relay and its page up until Enter or Ctrl-C.
    """
    from repshare.cli.demo.collaboration import Collaboration
    from repshare.cli.demo.processes import DemoProcesses
    from repshare.cli.demo.view import final_table, live_table, summarise

    console = Console(stderr=json, highlight=False)
    try:
        with _folder(keep) as folder, DemoProcesses(Path(folder), remove=keep is None) as processes:
            console.print("starting a relay …", style="dim")
            collaboration = Collaboration(options, processes)
            say(console, f"live page    {collaboration.page}\n")
            collaboration.start_clients()
            with Live(console=console, transient=True) as live:
                for progress in collaboration.watch():
                    live.update(live_table(progress, options))
            if json:
                print_json(summarise(progress, options))
            else:
                console.print(final_table(progress, options), EXPLANATION)
            if keep is not None:
                collaboration.save_run()
                say(console, f"all files in {keep}: repshare report {keep / 'run'}")
            if stay and sys.stdout.isatty():
                say(console, f"the page stays at {collaboration.page} until Enter or Ctrl-C")
                sys.stdin.readline()
    except KeyboardInterrupt:
        raise Interrupted("stopped: every process of the demo has ended") from None


def _folder(keep: Path | None) -> AbstractContextManager[str]:
    """Return a folder for the length of a block, or one that stays."""
    if keep is None:
        return tempfile.TemporaryDirectory(prefix="repshare-demo-", ignore_cleanup_errors=True)
    try:
        keep.mkdir(parents=True)
    except OSError as error:
        raise ConfigError(
            f"{keep} cannot be made: {error.strerror}. --keep takes a folder that does not exist yet"
        ) from error
    return nullcontext(str(keep.absolute()))
