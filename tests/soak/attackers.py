"""Those who mean a relay ill. They run in a process of their own, and tell what they could do."""

import multiprocessing
import resource
import selectors
import socket
import time
from contextlib import ExitStack, contextmanager

HEAD = b"PUT /v1/tasks/digits/clients/mallory/release HTTP/1.1\r\nHost: 127.0.0.1\r\n"
ORDINARY = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"
SLOW_HEAD, SLOW_BODY = HEAD + b"X-Slow: ", HEAD + b"Content-Length: 1000\r\n\r\n"
CHUNK = b"x" * 2**20
TRIES_SECONDS = 0.2  # between one attack with a large body and the next


@contextmanager
def attacks(port, *, idle, slow, gigabytes):
    """All attacks at once, for the length of a block; the block is given a dictionary that has their deeds after it."""
    context, deeds = multiprocessing.get_context("spawn"), {}
    ours, theirs = context.Pipe()
    attacker = context.Process(target=_attack, args=(port, idle, slow, gigabytes, theirs), daemon=True)
    attacker.start()
    try:
        assert ours.poll(60), "the attackers did not come"
        ours.recv()
        yield deeds
        ours.send("stop")
        assert ours.poll(60), "the attackers did not end"
        deeds.update(ours.recv())
    finally:
        attacker.kill()
        attacker.join()


def _attack(port, idle, slow, gigabytes, told):
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    deeds = dict.fromkeys(("idle", "slow", "bytes", "refused", "large", "heads closed", "bodies closed"), 0)
    with ExitStack() as stack:
        idlers = [_connect(stack, port, ORDINARY) for _ in range(idle)]
        for connection in idlers:  # after an answer, a connection may be silent for a minute
            while not connection.recv(4096).endswith(b"}"):
                pass
        drips = [_connect(stack, port, opening) for opening in (SLOW_HEAD, SLOW_BODY) for _ in range(slow)]
        large = [
            _Large(port, HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"100000\r\n" + CHUNK + b"\r\n", gigabytes),
            _Large(port, HEAD + b"Content-Length: %d\r\n\r\n" % int(gigabytes * 1e9), CHUNK, gigabytes),
        ]
        told.send("ready")
        while not told.poll():
            for number, connection in enumerate(drips):
                if not _drip(connection):  # the relay had enough: begin anew
                    deeds["heads closed" if number < slow else "bodies closed"] += 1
                    drips[number] = _connect(stack, port, SLOW_HEAD if number < slow else SLOW_BODY)
            until = time.monotonic() + 0.2
            while time.monotonic() < until:
                for one in large:
                    one.push(deeds)
        deeds["idle"] = sum(_is_quiet(connection) for connection in idlers)
        deeds["slow"] = len(drips)
        for one in large:
            one.close()
    told.send(deeds)


def _connect(stack, port, opening):
    connection = socket.create_connection(("127.0.0.1", port), timeout=10)
    stack.callback(connection.close)
    connection.sendall(opening)
    return connection


def _drip(connection):
    """Send one more byte; whether the relay still waits for more."""
    try:
        connection.send(b"x")
        waiting = _is_quiet(connection)
    except OSError:
        waiting = False
    if not waiting:
        connection.close()
    return waiting


def _is_quiet(connection):
    """Whether the connection is open and nothing came over it."""
    connection.setblocking(False)
    try:
        connection.recv(1)
    except BlockingIOError:
        return True
    except OSError:
        pass
    finally:
        connection.setblocking(True)
    return False


class _Large:
    """A body without end, again and again."""

    def __init__(self, port, head, chunk, gigabytes):
        self._port, self._head, self._chunk, self._most = port, head, chunk, int(gigabytes * 1e9)
        self._connection, self._rest, self._sent, self._next = None, b"", 0, 0.0

    def push(self, deeds):
        """Send as much as is taken now."""
        if self._connection is None:
            if time.monotonic() < self._next:
                return
            self._connection = socket.create_connection(("127.0.0.1", self._port), timeout=10)
            self._rest, self._sent = self._head, 0
            self._connection.setblocking(False)
            deeds["large"] += 1
        try:
            self._rest = self._rest or self._chunk
            sent = self._connection.send(self._rest)
            self._rest, self._sent, deeds["bytes"] = self._rest[sent:], self._sent + sent, deeds["bytes"] + sent
        except BlockingIOError:
            with selectors.DefaultSelector() as selector:
                selector.register(self._connection, selectors.EVENT_WRITE)
                selector.select(0.01)
        except OSError:
            self._end(deeds)
            return
        if self._sent > self._most:
            self._end(deeds)

    def _end(self, deeds):
        deeds["refused"] += self._sent < self._most
        self._next = time.monotonic() + TRIES_SECONDS
        self.close()

    def close(self):
        if self._connection:
            self._connection.close()
            self._connection = None
