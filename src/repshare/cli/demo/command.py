"""`repshare demo`: a collaboration to watch, on this machine."""

import os
import sys
import tempfile
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from rich.console import Console
from rich.live import Live

from repshare.cli.demo.options import DemoOptions
from repshare.cli.interrupts import Interrupted
from repshare.cli.parsing import Json
from repshare.errors import ConfigError
from repshare.results.terminal import print_json, say

EXPLANATION = """\
[bold]alone[/]  its network and images, and nobody to learn from
[bold]short[/]  the same with a penalty on the length of features: the control of RS
[bold]RS[/]     with class averages of the others' representations
[bold]CS[/]     with class averages in a common space: one classifier of all images
[bold]bytes[/]  of one party, in all rounds

The same among machines of your own (docs/relay.md, docs/joining.md):

  repshare relay tasks create TASK --input-shape 1 28 28 --class-names …
  repshare relay invite alice --task TASK --out alice.token
  repshare relay serve
  repshare join URL --party party.py:alice --token-file alice.token
"""


def demo(options: DemoOptions, keep: Path | None = None, stay: bool = False, json: Json = False) -> None:
    """Watch parties with different networks and half of the classes each learn together, and one that sends noise.

    A relay and its clients as real processes, real data, a live page; about a minute. Each party learns alone, by RS
    and by CS. Then mallory comes with noise, is noticed, and is removed. No files are left behind.

    repshare demo

    repshare demo --dataset mnist --clients 6 --stay

    repshare demo --keep kept && repshare report kept/run

    Args:
        keep: New folder in which to keep all files: the relay's, the clients', and a run for `repshare report`.
        stay: On a terminal, keep the relay and its page up until Enter or Ctrl-C.
    """
    from repshare.cli.demo.collaboration import Collaboration
    from repshare.cli.demo.processes import DemoProcesses
    from repshare.cli.demo.view import final_table, live_table, summarise, tell_story

    if os.name != "posix":
        raise ConfigError(
            "the demo needs Linux or macOS, where its processes end with it: use WSL, or start "
            "`repshare relay serve` and `repshare join` yourself (docs/getting-started.md)"
        )
    console = Console(stderr=json, highlight=False)
    try:
        with _folder(keep) as folder, DemoProcesses(Path(folder), remove=keep is None) as processes:
            console.print("starting a relay …", style="dim")
            collaboration = Collaboration(options, processes)
            say(console, f"live page   {collaboration.page('CS')}")
            say(console, f"            (choose {collaboration.tasks['RS']} there for RS)\n")
            with Live(console=console, transient=True) as live:
                for progress in collaboration.watch():
                    live.update(live_table(progress))
            if json:
                print_json(summarise(progress, options))
            else:
                console.print(final_table(progress, options), tell_story(progress, options, collaboration.removal))
                console.print(f"\n{EXPLANATION}")
            if keep is not None:
                collaboration.save_run()
                say(console, f"all files in {keep}: repshare report {keep / 'run'}")
            if stay and sys.stdout.isatty():
                say(console, f"the page stays at {collaboration.page('CS')} until Enter or Ctrl-C")
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
