"""Writes relay.db, tokens.json and teacher.bin into the current folder, with the repshare that is on PYTHONPATH.

How the folders here were made, by the versions before and after values had checksums, and while releases queued:

git archive 21e2b1e | tar x -C /tmp/old          (format-0: 3245ae4^, format-2: c528c6c)
cd tests/relay/databases/format-1 && PYTHONPATH=/tmp/old/src python ../make.py          (format-2: --max-age 1e9)
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import httpx2
import numpy as np

from repshare.sharing.representations import Release, Representations
from repshare.sharing.wire import encode_release

COMMAND = [sys.executable, "-m", "repshare", "relay"]
SECONDS = 2.5  # until a relay has stored what the page shows


def run(*arguments):
    return subprocess.run([*COMMAND, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def release(round, value):
    rows = Representations(np.full((2, 4), value, np.float32), np.array([0, 2]), np.array([10, 20]))
    return encode_release(Release(round, rows, rows))


def main():
    run("tasks", "create", "digits", "--classes", "3", "--dimension", "4", *sys.argv[1:])
    tokens = {name: run("invite", name, "--task", "digits") for name in ("alice", "bob", "mallory")}
    tokens["root"] = run("invite", "root", "--role", "admin")
    run("revoke", "mallory", "--task", "digits")
    relay = subprocess.Popen([*COMMAND, "serve", "--port", "8765"], stdout=subprocess.PIPE, text=True)
    relay.stdout.readline()
    headers = {name: {"Authorization": f"Bearer {token}"} for name, token in tokens.items()}
    with httpx2.Client(base_url="http://127.0.0.1:8765/v1/tasks/digits") as http:
        for round in (1, 2):
            for name, value in (("alice", 0.25), ("bob", -0.5)):
                body = release(round, value * round)
                http.put(f"clients/{name}/release", content=body, headers=headers[name]).raise_for_status()
        time.sleep(SECONDS)
        answer = http.get("teacher", params={"observations": 1, "seed": 0}, headers=headers["alice"]).raise_for_status()
    relay.terminate()
    relay.wait()
    Path("teacher.bin").write_bytes(answer.content)
    Path("tokens.json").write_text(json.dumps(tokens, indent=1))


if __name__ == "__main__":
    main()
