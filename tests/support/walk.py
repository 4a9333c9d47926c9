"""Traces one PUT of a release and one GET of a teacher through `repshare relay serve` on SQLite, in this process.

python -m support.walk FOLDER [--list] prints, for each, how many files and functions of the package it enters and how
often it changes from one file to another; with --list also which.
"""

import http.client
import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np

import repshare
from repshare.cli.main import main as command
from repshare.sharing.representations import Release, Representations
from repshare.sharing.wire import encode_release
from support.redis_servers import find_port

PACKAGE = str(Path(repshare.__file__).parent) + os.sep
CLASSES, DIMENSION = 10, 84
PATH = "/v1/tasks/t"
TIMES = 3  # of which the shortest counts: threads take turns as they like
QUIET_SECONDS = 1.5  # until what the relay does in the background has been done once


class Walk:
    """The files and functions of the package that threads enter while it records."""

    def __init__(self):
        self.on = False
        self.functions = {}  # file -> names
        self.changes, self._last = 0, None

    def trace(self, frame, event, _):
        file = frame.f_code.co_filename
        if event == "call" and self.on and file.startswith(PACKAGE) and not file.startswith(PACKAGE + "cli"):
            self.functions.setdefault(file.removeprefix(PACKAGE), set()).add(frame.f_code.co_qualname)
            self.changes += file != self._last
            self._last = file

    def counts(self):
        return {
            "files": len(self.functions),
            "functions": sum(map(len, self.functions.values())),
            "changes": self.changes,
        }


def make_body(round):
    rng = np.random.default_rng(round)
    vectors, labels = rng.uniform(-1, 1, (CLASSES, DIMENSION)).astype(np.float32), np.arange(CLASSES)
    rows = Representations(vectors, labels, np.full(CLASSES, 20))
    return encode_release(Release(round, rows, rows))


OPEN = []  # connections: what a relay does when one ends is no part of a request


def ask(port, method, path, body=None):
    OPEN.append(http.client.HTTPConnection("127.0.0.1", port, timeout=20))
    OPEN[-1].request(method, path, body)
    answer = OPEN[-1].getresponse()
    answer.read()
    return answer.status


def walk_through(port, walks):
    """Publish and collect once before, so that what is done once only is done."""
    for name, round in (("a", 1), ("b", 1), ("a", 2)):
        ask(port, "PUT", f"{PATH}/clients/{name}/release", make_body(round))
    ask(port, "GET", f"{PATH}/teacher?client=a")
    time.sleep(QUIET_SECONDS)
    for round in range(3, 3 + len(walks["PUT"])):
        for method, path, body in (
            ("PUT", f"{PATH}/clients/a/release", make_body(round)),
            ("GET", f"{PATH}/teacher?client=a", None),
        ):
            walk = walks[method][round - 3]
            walk.on = True
            status = ask(port, method, path, body)
            time.sleep(QUIET_SECONDS / 10)  # an answer is sent before all is done
            walk.on = False
            assert status == 200, (method, status)


def main(folder, *options):
    os.chdir(folder)
    port, walks = find_port(), {method: [Walk() for _ in range(TIMES)] for method in ("PUT", "GET")}

    def trace(*event):
        for walk in (*walks["PUT"], *walks["GET"]):
            walk.trace(*event)

    def talk():
        try:
            while True:
                try:
                    ask(port, "GET", "/healthz")
                    break
                except OSError:
                    time.sleep(0.05)
            walk_through(port, walks)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    threading.setprofile(trace)
    sys.setprofile(trace)
    threading.Thread(target=talk, daemon=True).start()
    task = ("--task", "t", "--classes", str(CLASSES), "--dimension", str(DIMENSION))
    sys.argv = ["repshare", "relay", "serve", "--port", str(port), "--insecure", "--log-level", "error", *task]
    command()
    for method, repeated in walks.items():
        walk = min(repeated, key=lambda walk: walk.changes)
        for file, names in sorted(walk.functions.items() if "--list" in options else ()):
            print(f"{method} {file}: {', '.join(sorted(names))}", file=sys.stderr)
        print(method, json.dumps(walk.counts()))


if __name__ == "__main__":
    main(*sys.argv[1:])
