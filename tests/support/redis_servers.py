"""A real redis-server for tests: on loopback, durable, to be killed and started again."""

import shutil
import socket
import subprocess
import time

import redis


def find_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Redis:
    """One server with its own folder. It writes every change to its log before it answers (AOF), unless told others."""

    def __init__(self, folder, **options):
        self.folder, self.port, self.options = folder, find_port(), options
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self.start()

    def start(self):
        server = shutil.which("redis-server")
        assert server, "these tests need a redis-server: apt-get install redis-server, or brew install redis"
        options = {"port": self.port, "bind": "127.0.0.1", "dir": self.folder, "save": "", "appendonly": "yes"}
        options |= {"appendfsync": "always", "loglevel": "warning"}
        options |= {name.replace("_", "-"): value for name, value in self.options.items()}
        words = [word for name, value in options.items() for word in (f"--{name}", *str(value).split(" "))]
        self.process = subprocess.Popen([server, *words], stdout=subprocess.DEVNULL)
        with redis.Redis.from_url(self.url) as connection:
            for _ in range(500):
                try:
                    connection.ping()
                    return
                except redis.RedisError:  # not up yet, or still reading its log
                    time.sleep(0.02)
        raise AssertionError("redis-server does not answer")

    def empty(self):
        with redis.Redis.from_url(self.url) as connection:
            connection.flushall()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def stop(self):
        self.process.terminate()
        self.process.wait()
