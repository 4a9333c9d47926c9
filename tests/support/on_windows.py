"""Commands in a process that lacks what Windows lacks: `python on_windows.py '[["compare", …], …]'`, one after another.

It prints the exit code and the output of each, as JSON. This shows which calls are made, not what Windows does: files,
sockets and locks are still this system's.
"""

import asyncio
import io
import json
import os
import pathlib
import signal
import sys
import traceback
import types
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module

import scipy.linalg  # noqa: F401 it has linear algebra of its own
import threadpoolctl
from warm import ALL

ENCODINGS = (("ascii", "strict"), ("ascii", "backslashreplace"))  # as Python has them for output and errors
MODULES = {"fcntl", "grp", "pty", "pwd", "resource", "syslog", "termios", "tty", "uvloop"}
CALLS = (
    "fork forkpty fchmod fchown chown lchown geteuid getuid getegid getgid killpg setsid setpgid getpgid O_NONBLOCK "
    "O_DIRECTORY O_NOFOLLOW O_CLOEXEC sched_getaffinity statvfs mkfifo wait3 wait4 WNOHANG openpty uname getloadavg"
)
SIGNALS = "SIGKILL SIGHUP SIGUSR1 SIGUSR2 SIGALRM SIGCHLD SIGPIPE SIGQUIT alarm setitimer pthread_kill pthread_sigmask"


class Lacking:
    """Nothing of these can be imported."""

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MODULES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def become_windows():
    found = threadpoolctl.ThreadpoolController()  # which loads libraries by the system's own calls
    threadpoolctl.ThreadpoolController = lambda: found
    for name in (*ALL, "uvicorn.loops.asyncio"):  # what others wrote knows the system it was imported on
        import_module(name)
    ours = types.ModuleType("os")  # Python's own files have no use for Windows' paths
    ours.__dict__.update(os.__dict__)
    pathlib.os = ours
    for name in [*sys.modules]:
        if name.partition(".")[0] in {"repshare", "repshare_lab", *MODULES}:
            del sys.modules[name]  # what the project imports is imported anew
    sys.meta_path.insert(0, Lacking())
    for module, names in ((os, CALLS), (signal, SIGNALS)):
        for name in names.split():
            if hasattr(module, name):
                delattr(module, name)
    os.open, os.stat, os.fstat, pathlib.Path.stat = map(without_modes, (open_no_folder, os.stat, os.fstat, ours.stat))
    asyncio.ProactorEventLoop = asyncio.SelectorEventLoop
    os.name, sys.platform = "nt", "win32"


real_open = os.open


def open_no_folder(path, *rest, **named):
    if not isinstance(path, int) and os.path.isdir(path):  # noqa: PTH112 pathlib would open it by this
        raise PermissionError(13, "Permission denied", str(path))
    return real_open(path, *rest, **named)


def without_modes(call):
    """On Windows all that a mode says is whether a file may be written."""

    def answer(*given, **named):
        found = call(*given, **named)
        if isinstance(found, os.stat_result):
            fields = list(found)
            fields[0] |= 0o666
            return os.stat_result(fields, {name: getattr(found, name) for name in dir(found) if name.startswith("st_")})
        return found

    return answer


def carry_out(main, arguments):
    """The exit code of a command, and what it said; its output has an encoding as narrow as some of Windows' are."""
    code, said = 0, [io.TextIOWrapper(io.BytesIO(), encoding, errors) for encoding, errors in ENCODINGS]
    with redirect_stdout(said[0]), redirect_stderr(said[1]):
        try:
            main(arguments)
        except SystemExit as end:
            code = end.code or 0
        except Exception:
            code = traceback.format_exc()
    for each in said:
        each.flush()
    return code, *(each.buffer.getvalue().decode("ascii") for each in said)


if __name__ == "__main__":
    become_windows()
    from repshare.cli.main import main

    print(json.dumps([carry_out(main, each) for each in json.loads(sys.argv[1])]))
