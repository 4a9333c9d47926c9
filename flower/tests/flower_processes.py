"""Flower's own processes on loopback: a SuperLink, SuperNodes, and `flwr run`, from the environment of build/flower."""

import os
import signal
import socket
import subprocess
import threading
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx2

from support.processes import eventually
from support.redis_servers import find_port

ROOT = Path(__file__).parents[2]
BIN = ROOT / "build" / "flower" / "bin"
APP = ROOT / "examples" / "flower"
PATIENCE_SECONDS = 540  # a process for every message, on a busy machine
QUIET = {  # as flower/README.md says
    "FLWR_TELEMETRY_ENABLED": "0",
    "FLWR_DISABLE_UPDATE_CHECK": "1",
    "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
    "RAY_USAGE_STATS_ENABLED": "0",
}

METADATA = ("169.254.169.254", "metadata.google.internal")


class Outside:
    """A proxy that connects to nobody, and counts who wanted to leave this machine."""

    def __init__(self):
        self.calls, self._server = [], socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        with suppress(OSError):
            while True:
                connection, _ = self._server.accept()
                with connection:
                    self.calls.append(connection.recv(200).decode(errors="replace").partition("\r\n")[0])

    def hosts(self):
        """Whom they wanted to call. Ray asks the machine's own cloud which one it is, and tells nobody."""
        return [call for call in self.calls if not any(own in call for own in METADATA)]

    def close(self):
        self._server.close()


class Flower:
    """One SuperLink with a folder of its own."""

    def __init__(self, folder, outside, *options, quiet=True):
        assert (BIN / "flwr").exists(), "Flower has an environment of its own: make flower sets it up"
        self.folder, self.port, self.processes = folder, find_port(), []
        proxies = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), outside.url)
        own = {"FLWR_HOME": str(folder / "home"), "NO_PROXY": "127.0.0.1,localhost", "no_proxy": "127.0.0.1,localhost"}
        own["RAY_ADDRESS"] = "local"  # its simulation would join a Ray cluster that another test has started here
        plain = {name: value for name, value in os.environ.items() if name not in QUIET}
        self.environment = plain | proxies | own | (QUIET if quiet else {}) | {"PATH": f"{BIN}:{os.environ['PATH']}"}
        (folder / "home").mkdir()
        address = f'address = "127.0.0.1:{self.port}"\ninsecure = true\n'
        (folder / "home" / "config.toml").write_text(f'[superlink]\ndefault = "here"\n\n[superlink.here]\n{address}')
        link = self.start("flower-superlink", "--host", "127.0.0.1", "--port", str(self.port), *options)
        eventually(lambda: link.poll() is not None or self._is_up(), "the SuperLink answers", PATIENCE_SECONDS)

    def start(self, command, *arguments):
        with (self.folder / f"{command}-{len(self.processes)}.log").open("w") as log:
            process = subprocess.Popen(
                [BIN / command, "--insecure", *arguments],
                env=self.environment, cwd=self.folder, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip
        self.processes.append(process)
        return process

    def add_node(self, config):
        port = str(find_port())
        self.start("flower-supernode", "--superlink", f"127.0.0.1:{self.port}", "--port", port, "--node-config", config)

    def run(self, config, *options, app=APP):
        """`flwr run`, until it is over: what it shows."""
        words = " ".join(
            f"{name}={f'{value!r}' if isinstance(value, str) else value}" for name, value in config.items()
        )
        command = [BIN / "flwr", "run", app, "here", "--stream", "--run-config", words, *options]
        done = subprocess.run(
            command, env=self.environment, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_SECONDS
        )
        return done.stdout + done.stderr

    def logs(self):
        return {path.name: path.read_text() for path in sorted(self.folder.glob("*.log"))}

    def stop(self):
        for process in reversed(self.processes):
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def _is_up(self):
        with suppress(httpx2.HTTPError):
            return httpx2.get(f"http://127.0.0.1:{self.port}/health", trust_env=False).is_success


@contextmanager
def flower(folder, *options, **how):
    """A SuperLink, and the outside that nobody may call."""
    outside = Outside()
    try:
        link = Flower(folder, outside, *options, **how)
        try:
            yield link, outside
        finally:
            link.stop()
    finally:
        outside.close()
