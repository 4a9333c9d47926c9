"""Processes of `python -m repshare` that need not import everything anew, which takes seconds where PyTorch is needed.

One process has imported it all and waits, and another what a relay needs. For each command it makes a copy of itself
(a fork), which is a process like any other: with arguments, a folder, an environment and files of its own, to be waited
for, and to be killed. The copy goes on as `python -m repshare` does after its imports. It ends as Python does, but for
the clearing away of all that was imported, which takes longer than most commands; with `thorough`, that is done, too.
The server that workers of a simulation are copied from (multiprocessing's forkserver) is a copy as well, one for each
command, and ends with it. Commands under a wrong clock are copied from a process whose clock was wrong from the start.
"""

import atexit
import gc
import importlib
import json
import multiprocessing.forkserver
import os
import resource
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from contextlib import suppress
from pathlib import Path

RELAY = ("repshare.cli.main", "repshare.relay.server", "repshare.stores", "uvloop")  # no more: its memory is looked at
ALL = (
    "dp_accounting.pld", "dp_accounting.rdp", "matplotlib.backends.backend_agg", "matplotlib.figure", "redis",
    "repshare_lab.audit", "repshare.cli.main", "repshare.client", "repshare_lab.data", "repshare.exchange.peer",
    "repshare.exchange.relay", "repshare.secure.group", "repshare_lab.experiments.catalogue",
    "repshare.party.party",
    "repshare_lab.results.plots", "repshare.privacy.guard",
    "repshare.relay.server",
    "repshare_lab.experiments.report", "repshare_lab.simulation.rounds", "repshare.stores", "rich.progress",
    "rich.table", "sklearn.datasets", "torch._dynamo", "uvloop", "zenoh",
)  # fmt: skip


class Spare:
    """The process that waits, and the way to it. It ends with whoever started it."""

    def __init__(self, imports, environment):
        self.socket, there = socket.socketpair()
        with there:
            code = f"import warm; warm.wait({there.fileno()}, {imports!r})"  # found, since -c looks in its folder
            how = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "env": environment}
            command, here = [sys.executable, "-c", code], Path(__file__).parent
            self.process = subprocess.Popen(command, cwd=here, pass_fds=[there.fileno()], **how)

    def start(self, order, files):
        """Have a copy made. Its number, and a socket that will say how it ended."""
        here, there = socket.socketpair()
        with there:
            socket.send_fds(self.socket, [b"!"], [there.fileno(), *files])
        here.sendall(json.dumps(order).encode() + b"\n")
        return int(read_line(here)), here

    def stop(self):
        self.socket.close()
        self.process.wait()


spares = {}


class Warm:
    """`python -m repshare …`, or `python script …`, as `subprocess.Popen` would give it, as far as tests use that."""

    def __init__(self, arguments, *, cwd, stdout=None, stderr=None, env=None, thorough=False, script=None):
        imports = RELAY if script is None and arguments[0] == "relay" else ALL
        environment = dict(os.environ if env is None else env)
        kind = imports, "WRONG_CLOCK" in environment
        if kind not in spares:
            spares[kind] = Spare(imports, environment)
            atexit.register(spares[kind].stop)
        order = {"arguments": arguments, "cwd": str(cwd), "env": environment, "thorough": thorough, "script": script}
        order["open_files"] = resource.getrlimit(resource.RLIMIT_NOFILE)  # tests change it
        with Path(os.devnull).open("r+b") as nothing:
            numbers = [n if file is None else file.fileno() for n, file in enumerate((nothing, stdout, stderr))]
            self.pid, self._end = spares[kind].start(order, numbers)
        self.returncode = None

    def poll(self):
        with suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout=None):
        if self.returncode is None:
            self._end.settimeout(timeout)
            try:
                status = int(read_line(self._end))
            except (TimeoutError, BlockingIOError) as error:
                raise subprocess.TimeoutExpired("repshare", timeout) from error
            self.returncode = os.waitstatus_to_exitcode(status)
            self._end.close()
        return self.returncode

    def send_signal(self, which):
        if self.poll() is None:
            os.kill(self.pid, which)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def start_warm(arguments, *, script=None, thorough=False, **where):
    """Such a process; beyond Linux, where what is imported may not bear to be copied, one started from nothing."""
    if sys.platform == "linux":
        return Warm(arguments, script=script, thorough=thorough, **where)
    program = ["-m", "repshare"] if script is None else [script]
    return subprocess.Popen([sys.executable, *program, *arguments], stdin=subprocess.DEVNULL, **where)


def run_warm(*arguments, cwd, timeout=120, **options):
    """Run a command to its end, as `subprocess.run` would."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = start_warm(list(map(str, arguments)), cwd=cwd, stdout=out, stderr=err, **options)
        try:
            process.wait(timeout)
        finally:
            process.kill()
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(arguments, process.returncode, out.read(), err.read())


def read_line(connection):
    line = b""
    while not line.endswith(b"\n"):
        read = connection.recv(1 << 16)
        if not read:
            raise EOFError(f"the spare process has gone after {line!r}")
        line += read
    return line


def wait(number, imports):
    """In the process that waits: make copies until there is nobody who wants any."""
    for name in imports:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is there is shared for good
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for whoever is tested
    order = make_copies(socket.socket(fileno=number))
    if order is not None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        become(**order)


def make_copies(orders):
    """Returns nothing in the process that waits, in the end, and an order in each copy, at once."""
    children = {}
    awake, wake = os.pipe()
    for end in (awake, wake):
        os.set_blocking(end, False)
    signal.set_wakeup_fd(wake)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    while True:
        ready, _, _ = select.select([orders, awake], [], [])
        if awake in ready:
            os.read(awake, 1 << 16)
            for child in [*children]:
                ended, status = os.waitpid(child, os.WNOHANG)
                if ended:
                    with children.pop(child) as who_asked:
                        tell(who_asked, status)
        if orders in ready:
            message, files, _, _ = socket.recv_fds(orders, 1, 4)
            if not message:
                return None
            child = os.fork()
            if child == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(awake), os.close(wake), orders.close()
                for who_asked in children.values():
                    who_asked.close()
                with socket.socket(fileno=files[0]) as who_asks:
                    tell(who_asks, os.getpid())
                    order = json.loads(read_line(who_asks))
                return order | {"files": files[1:]}
            children[child] = socket.socket(fileno=files[0])
            for file in files[1:]:
                os.close(file)


def tell(who_asked, number):
    with suppress(BrokenPipeError):
        who_asked.sendall(f"{number}\n".encode())


def become(arguments, cwd, env, thorough, script, open_files, files):
    """In a copy: be the command."""
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, open_files)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    tempfile.tempdir = None  # TMPDIR may be another
    sys.path[0] = cwd if script is None else str(Path(script).parent)  # in place of this folder
    sys.argv = [script or "repshare", *arguments]
    if "repshare_lab.simulation" in sys.modules and sys.version_info < (3, 14):  # from then on, it is asked with a key
        copy_forkserver()
    if thorough:
        run(script)
        return
    code = 0
    try:
        run(script)
    except SystemExit as end:
        code = end.code or 0
    except BaseException:
        code = 1
        traceback.print_exc()
    threading._shutdown()  # waits for threads, as the end of a process does
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def copy_forkserver():
    """Have the server that this process would start for its workers, without imports."""
    server = multiprocessing.forkserver._forkserver
    address = f"\0repshare-test-{os.getpid()}"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    alive, keep_alive = os.pipe()  # closed with this process, however it ends
    child = os.fork()
    if child == 0:
        try:
            os.close(keep_alive)
            multiprocessing.forkserver.main(listener.detach(), alive, None)
        finally:
            os._exit(0)
    listener.close()
    os.close(alive)
    server._forkserver_address, server._forkserver_alive_fd, server._forkserver_pid = address, keep_alive, child


def run(script):
    if script is None:
        runpy.run_module("repshare", run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(script, run_name="__main__")
