"""Other systems: locks that end with their process, and commands where nothing of POSIX is there.

Windows is simulated: a process of this system in which modules and calls that Windows lacks do not exist. That shows
which calls are made, not what Windows does.
"""

import ast
import json
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import httpx2
import pytest

from repshare.errors import ConfigError
from repshare.files import lock
from repshare.records import Folder
from support.processes import PATIENCE_SECONDS, eventually
from support.warm import run_warm, start_warm

ROOT = Path(__file__).parent.parent
POSIX_MODULES = {"fcntl", "grp", "posix", "pty", "pwd", "resource", "syslog", "termios", "tty", "uvloop"}
LOCKER = "import sys; from repshare import files; f = open(sys.argv[1], 'a'); files.lock(f); print(flush=True); input()"


def test_a_lock_keeps_others_out_until_its_process_is_killed(tmp_path):
    folder = Folder(tmp_path / "run", {"a": 1}, resume=False)
    command = [sys.executable, "-c", LOCKER, str(tmp_path / "run" / ".lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"\n"
        with pytest.raises(ConfigError, match="run is being written by another process: wait for it, or"), folder:
            pass
        other.send_signal(signal.SIGKILL)
        other.wait()
        with folder, (tmp_path / "run" / ".lock").open("ab") as again:
            assert not lock(again, wait=False), "it is held now"


def imported_at_the_top(path):
    """The modules that a file imports when it is imported itself."""
    found, left = set(), [*ast.parse(path.read_text("utf-8")).body]
    while left:
        node = left.pop()
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add((node.module or "").partition(".")[0])
        elif not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            left += ast.iter_child_nodes(node)
    return found


def test_nothing_imports_a_module_at_its_top_that_windows_lacks():
    found = {path: imported_at_the_top(path) & POSIX_MODULES for path in (ROOT / "src").rglob("*.py")}
    assert len(found) > 100
    assert {path: names for path, names in found.items() if names} == {}


ON_WINDOWS = str(ROOT / "tests/support/on_windows.py")
SMALL = ["--dataset", "digits", "--clients", "2", "--rounds", "1", "--samples", "40"]
TINY = [*SMALL, "--methods", "IL", "RS", "--workers", "0", "--name", "x"]
JOIN = ["join", "http://127.0.0.1:1", "--party", f"{ROOT / 'examples/party.py'}:alice", "--dry-run"]
COMMANDS = {  # and what they say
    "compare": (["compare", *TINY], "runs/x/records.jsonl"),
    "compare again": (["compare", *TINY], "already holds this run: continue it with --resume"),
    "resume": (["compare", *TINY, "--resume"], "runs/x/records.jsonl"),
    "report": (["report", "runs/x"], "MB, opens offline)"),
    "join": (JOIN, "Nothing else leaves but the token"),
    "tasks create": (["relay", "tasks", "create", "digits", "--classes", "10", "--dimension", "84"], "digits created"),
    "invite": (["relay", "invite", "alice", "--task", "digits", "--out", "t"], "Send alice"),
    "tasks list": (["relay", "tasks", "list"], "invited: alice"),
    "check": (["relay", "check"], "everything that is stored can be read"),
    "keys": (["keys", "alice.key"], ""),
    "demo": (["demo"], "the demo needs Linux or macOS"),
}  # fmt: skip
REFUSED = ("compare again", "demo")


def test_commands_work_or_are_refused_in_a_line_where_nothing_of_posix_is_there(tmp_path):
    commands = [command for command, _ in COMMANDS.values()]
    done = run_warm(json.dumps(commands), cwd=tmp_path, script=ON_WINDOWS)
    assert done.returncode == 0, done.stderr
    for (name, (_, expected)), (code, out, err) in zip(COMMANDS.items(), json.loads(done.stdout), strict=True):
        assert code == (2 if name in REFUSED else 0), f"{name}: {code} {err}"
        assert expected in out + err, name
        assert name not in REFUSED or (out, len(err.splitlines())) == ("", 1), f"{name}: {out} {err}"


def test_a_relay_serves_there_until_it_is_interrupted(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    commands = json.dumps([["relay", "serve", "--port", str(port)]])
    with (tmp_path / "out").open("w") as out:
        relay = start_warm([commands], cwd=tmp_path, stdout=out, stderr=out, script=ON_WINDOWS)
    try:
        with httpx2.Client() as client:

            def healthy():
                with suppress(httpx2.TransportError):
                    return client.get(f"http://127.0.0.1:{port}/healthz").status_code == 200

            eventually(healthy, "the relay answers")
        relay.send_signal(signal.SIGINT)
        assert relay.wait(PATIENCE_SECONDS) == 0
    finally:
        relay.kill()
    ((code, said, log),) = json.loads((tmp_path / "out").read_text())
    assert (code, said.count("repshare relay at")) == (0, 1)
    assert [json.loads(line)["event"] for line in log.splitlines()][-1] == "stopped"
