"""`repshare demo`: a collaboration to watch, on this machine."""

import os
import sys
from contextlib import closing
from typing import Literal

from rich.console import Console
from rich.live import Live

from repshare.cli.interrupts import Interrupted
from repshare.cli.terminal import say
from repshare.errors import ConfigError

EXPLANATION = """
[bold]alone[/]  its network and images, and nobody to learn from
[bold]short[/]  the same with a penalty on the length of features: the control of RS
[bold]RS[/]     with class averages of the others' representations
[bold]CS[/]     with class averages in a common space: one classifier of all images
"""


def demo(
    clients: int = 4,
    dataset: Literal["digits", "mnist", "fashion_mnist"] = "digits",
    rounds: int = 50,
    stay: bool = False,
) -> None:
    """Watch parties with different networks and half of the classes each learn together, and one that sends noise.

    A relay and its clients as real processes, real data, a live page; about a minute. Each party learns alone, by RS
    and by CS. Then mallory comes with noise, is noticed, and is removed. No files are left behind.

    repshare demo

    repshare demo --dataset mnist --clients 6 --stay

    Args:
        clients: Number of parties, besides mallory: from 2 to 12.
        dataset: Dataset to learn from. digits needs no download.
        rounds: Number of rounds that networks train, alone and in RS.
        stay: On a terminal, keep the relay and its page up until Enter or Ctrl-C.
    """
    if os.name != "posix":
        raise ConfigError("the demo needs Linux or macOS, where its processes end with it: use WSL")
    if not 2 <= clients <= 12 or rounds < 1:
        raise ConfigError(f"the demo has 2 to 12 clients and at least one round, not {clients} and {rounds}")
    from repshare_lab.cli.demo.collaboration import SAMPLES, Collaboration
    from repshare_lab.cli.demo.processes import DemoProcesses
    from repshare_lab.cli.demo.view import progress_table, tell_story

    console = Console(highlight=False)
    try:
        with closing(DemoProcesses()) as processes:
            collaboration = Collaboration(clients, dataset, rounds, processes)
            say(console, f"live page   {collaboration.page}\n")
            with Live(console=console, transient=True) as live:
                for act in collaboration.watch():
                    live.update(progress_table(collaboration, f"{act}: accuracy now [%]"))
            title = f"{dataset}, {SAMPLES} images each: test accuracy on all classes at the end [%]"
            console.print(progress_table(collaboration, title, ended=True), tell_story(collaboration), EXPLANATION)
            if stay and sys.stdout.isatty():
                say(console, f"the page stays at {collaboration.page} until Enter or Ctrl-C")
                sys.stdin.readline()
    except KeyboardInterrupt:
        raise Interrupted("stopped: every process of the demo has ended") from None
