"""A process cut off from the others, and brought back: with a network of its own whose cable is pulled."""

import os
import shutil
import signal
import subprocess
from contextlib import contextmanager


@contextmanager
def make_island():
    """A network of its own for a process; where the machine allows none (that takes root), one that is frozen."""
    name = f"rs{os.getpid()}"
    if not shutil.which("ip") or run("netns", "add", name).returncode:
        yield Frozen()
        return
    try:
        yield Island(name)
    finally:
        run("netns", "delete", name)  # and with it the cable


class Island:
    """A network namespace, tied to the machine by a pair of virtual interfaces."""

    def __init__(self, name):
        number = os.getpid()
        self.here, there = (f"10.{200 + number // 256 % 50}.{number % 256}.{end}" for end in (1, 2))
        self.prefix, self.inside = ("ip", "netns", "exec", name), f"tcp/{there}:0"
        self.end = f"{name}a"
        for command in (
            ("link", "add", self.end, "type", "veth", "peer", "name", f"{name}b", "netns", name),
            ("address", "add", f"{self.here}/30", "dev", self.end),
            ("link", "set", self.end, "up"),
            ("-n", name, "address", "add", f"{there}/30", "dev", f"{name}b"),
            ("-n", name, "link", "set", f"{name}b", "up"),
            ("-n", name, "link", "set", "lo", "up"),
        ):
            run(*command).check_returncode()

    def cut(self, _):
        run("link", "set", self.end, "down").check_returncode()

    def mend(self, _):
        run("link", "set", self.end, "up").check_returncode()


class Frozen:
    """No network: what is cut off is stopped. It neither hears nor says anything, though its links stay open."""

    here, prefix, inside = "127.0.0.1", (), "tcp/127.0.0.1:0"

    def cut(self, process):
        process.process.send_signal(signal.SIGSTOP)

    def mend(self, process):
        process.process.send_signal(signal.SIGCONT)


def run(*arguments):
    return subprocess.run(["ip", *arguments], capture_output=True, text=True)
