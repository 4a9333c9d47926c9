"""A real relay for tests: the command as a process, on a free port of this machine."""

import io
import json
import signal
import time
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout

import httpx2
import numpy as np

from repshare.cli.main import main
from repshare.sharing.representations import Release, Representations
from repshare.sharing.wire import encode_release
from support.processes import RelayProcess
from support.warm import run_warm

DIGITS = ("--classes", 10, "--dimension", 8)


def repshare(*arguments, cwd, expect=0):
    """Run a command to its end: what it printed, or what it complained of if it should fail."""
    done = run_warm(*arguments, cwd=cwd)
    assert done.returncode == expect, done.stderr
    return done.stdout if expect == 0 else done.stderr


def release(round=1, value=0.5, classes=(0, 1), count=10, dimension=8):
    """A release as bytes: a mean and an observation of each class."""
    labels = np.array(classes, dtype=np.int64)
    vectors = np.full((len(labels), dimension), value, np.float32)
    rows = Representations(vectors, labels, np.full(len(labels), count, dtype=np.int64))
    return encode_release(Release(round, rows, rows))


class Relay(RelayProcess):
    """`repshare relay serve`, and how a test talks to it."""

    def __init__(self, folder, *options, port=0, popen=None, cold=False, **http):
        super().__init__(folder, *options, port=port, popen=popen, cold=cold)
        self.folder = folder
        self.http = httpx2.Client(base_url=self.url, timeout=30, **http)

    def ask(self, method, path, token=None, **request):
        headers = request.pop("headers", {}) | ({"Authorization": f"Bearer {token}"} if token else {})
        return self.http.request(method, path, headers=headers, **request)

    def publish(self, client, body, token=None, task="digits"):
        return self.ask("PUT", f"/v1/tasks/{task}/clients/{client}/release", token, content=body)

    def teacher(self, token=None, task="digits", headers=None, **query):
        return self.ask("GET", f"/v1/tasks/{task}/teacher", token, params=query, headers=headers or {})

    def log(self):
        """The lines logged so far."""
        return [json.loads(line) for line in self.err.read_text().splitlines() if line.startswith("{")]

    def logged(self, **wanted):
        """The first line with these values, which may be on its way."""
        deadline = time.monotonic() + 10
        while time.monotonic() < deadline:
            for line in self.log():
                if wanted.items() <= line.items():
                    return line
            time.sleep(0.02)
        raise AssertionError(f"{wanted} was not logged: {self.err.read_text()}")


@contextmanager
def start_relay(folder, *options, **http):
    """A relay over the folder's relay.db (or what the options say) for the length of a block."""
    relay = Relay(folder, *options, **http)
    try:
        yield relay
    finally:
        relay.http.close()
        relay.stop(signal.SIGTERM)


@contextmanager
def start_open_relay(folder, *options, **how):
    """One without tokens, in memory, with the task `digits`."""
    with start_relay(folder, "--db", "memory", "--insecure", "--task", "digits", *DIGITS, *options, **how) as relay:
        yield relay


def prepare(*arguments, cwd):
    """Run a command for what a test needs, not for its own sake: in this process, which takes a tenth of the time."""
    with chdir(cwd), redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        try:
            main(list(map(str, arguments)))
        except SystemExit as end:
            raise AssertionError(err.getvalue()) from end
    return out.getvalue()


def create_task(folder, name="digits", *values):
    prepare("relay", "tasks", "create", name, *(values or DIGITS), cwd=folder)


def invite(folder, name, *options):
    """A new token in the folder's relay.db."""
    return prepare("relay", "invite", name, *options, cwd=folder).strip()
