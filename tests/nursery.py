"""Python processes that begin where their imports end: forked from one that has what they need in memory.

    python nursery.py MODULE…      imports these, then answers a JSON line for each JSON line it is given

Each is a process of its own, with its own files, and dies alone. Only the seconds until it begins are saved: what is
killed a thousand times would otherwise spend nearly all of its life importing.
"""

import json
import os
import runpy
import signal
import subprocess
import sys
import time
import traceback
from importlib import import_module
from pathlib import Path

TICK_SECONDS = 0.005
RELAY = ("repshare.__main__", "repshare.cli", "repshare.relay.server", "repshare.stores.redis", "uvicorn")
CLIENT = ("interrupted", "torch._dynamo", "repshare.privacy.guard")  # the last two are imported when first needed


class Nursery:
    """Where processes are forked, for the length of a block."""

    def __init__(self, *modules):
        self._modules = modules

    def __enter__(self):
        command = [sys.executable, __file__, *self._modules]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_):
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait()

    def popen(self, command, *, cwd, stdout, stderr):
        """As subprocess.Popen, for `python -m MODULE …` and `python SCRIPT …`."""
        words = list(map(str, command[1:]))
        return Forked(self, self.ask(begin=words, cwd=str(cwd), out=stdout.name, err=stderr.name))

    def ask(self, **what):
        print(json.dumps(what), file=self._process.stdin, flush=True)
        return json.loads(self._process.stdout.readline())


class Forked:
    """One of its processes, to be used as a Popen is."""

    def __init__(self, nursery, pid):
        self._nursery, self.pid, self.returncode = nursery, pid, None

    def poll(self):
        if self.returncode is None:
            self.returncode = self._nursery.ask(poll=self.pid)
        return self.returncode

    def send_signal(self, how):
        if self.poll() is None:
            os.kill(self.pid, how)

    def wait(self, timeout):
        deadline = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > deadline:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(TICK_SECONDS)
        return self.returncode


def main():
    for module in sys.argv[1:]:
        import_module(module)
    for line in sys.stdin:
        asked = json.loads(line)
        answer = poll(asked["poll"]) if "poll" in asked else begin(**asked)
        print(json.dumps(answer), flush=True)


def poll(pid):
    """How the process ended, or None."""
    ended, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if ended else None


def begin(begin, cwd, out, err):
    """Fork one that does this."""
    paths = [Path(cwd, path).absolute() for path in (os.devnull, out, err)]
    if pid := os.fork():
        return pid
    code = 1
    try:
        for number, path in enumerate(paths):
            os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644), number)
        os.chdir(cwd)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        code = run(begin)
    except BaseException:  # as Python does at the end of a process
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run(words):
    """What Python does with these words; the exit code."""
    module = words[0] == "-m"
    sys.argv = words[module:]
    try:
        if module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


if __name__ == "__main__":
    main()
