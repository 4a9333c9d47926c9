"""Other systems: locks that end with their process, and no module at a top that Windows lacks."""

import ast
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from repshare.errors import ConfigError
from repshare.files import lock
from repshare.records import Folder

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
