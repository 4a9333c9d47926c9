"""Many clients at work at a relay, who remember what was acknowledged to them."""

import http.client
import itertools
import random
import threading
import time
from collections import Counter
from contextlib import suppress
from urllib.parse import urlsplit

import numpy as np

from repshare.sharing import fixed_point
from repshare.sharing.representations import Release, Representations
from repshare.sharing.wire import decode_teacher, encode_release

CLASSES, DIMENSION = 10, 8
TASK = (
    "--insecure",
    "--rate",
    0,
    "--task",
    "digits",
    "--classes",
    CLASSES,
    "--dimension",
    DIMENSION,
    "--minimum-count",
    1,
)
PATIENCE_SECONDS = 60


class Party:
    """One client: what it last asked for, and what it was last told is done. No release is None."""

    def __init__(self, name):
        self.name, self.round = name, 0
        self.acknowledged = self.asked = None
        self.asked_at = self.acknowledged_at = 0.0  # when the request began


class Load:
    """Threads that publish, withdraw and collect for their clients, as fast as they are answered."""

    def __init__(self, urls, *, clients, threads, seed, withdrawals=0.05, collects=0.1, pause_seconds=0.0):
        self.urls, self.counts, self.seconds = list(urls), Counter(), []
        self.withdrawals, self.collects, self.pause_seconds = withdrawals, collects, pause_seconds
        self.parties = [Party(f"client {number}") for number in range(clients)]
        self.silent = set()  # names of those who do nothing for now
        self.wrong = []  # what no client should ever see
        self._going, self._ended, self._alone = threading.Event(), threading.Event(), threading.Lock()
        self._busy = 0
        self._threads = [
            threading.Thread(target=self._work, args=(self.parties[n::threads], random.Random(f"{seed}/{n}")))
            for n in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self):
        self._going.set()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._going.set()
        for thread in self._threads:
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive(), "a request was never answered"

    def pause(self):
        """Wait until nobody is asking for anything."""
        self._going.clear()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while self._busy:
            assert time.monotonic() < deadline, "a request was never answered"
            time.sleep(0.002)

    def resume(self, *urls):
        """Go on, here."""
        self.urls = list(urls) or self.urls
        self._going.set()

    def check(self, kept):
        """What is kept of each client is what was acknowledged, or what was asked for and never answered."""
        assert kept.keys() <= {party.name for party in self.parties}
        for party in self.parties:
            found = kept.get(party.name)
            assert found in (party.acknowledged, party.asked), f"{party.name}: lost, or never sent"

    def _work(self, parties, rng):
        connections = {}
        for party in itertools.cycle(parties):
            self._going.wait()
            if self._ended.is_set():
                break
            with self._alone:
                self._busy += 1
            try:
                if self._going.is_set() and party.name not in self.silent:
                    self._ask_something(party, rng, connections)
            except Exception as error:  # a thread that dies would be missed only at the end
                self.wrong.append(repr(error))
            finally:
                with self._alone:
                    self._busy -= 1
            time.sleep(self.pause_seconds)
        for connection in connections.values():
            connection.close()

    def _ask_something(self, party, rng, connections):
        url = rng.choice(self.urls)
        connection = connections.setdefault(url, connect(url))
        if rng.random() < self.collects:
            path = "/v1/tasks/digits/teacher?client=watcher&observations=1000"
            status, body = self._ask(connection, "GET", path)
            if status == 200 and not is_whole(decode_teacher(body)):
                self.wrong.append("a torn teacher")
            return
        if party.asked == party.acknowledged:  # otherwise the same again: it may or may not have been done
            party.round += 1
            party.asked = None if rng.random() < self.withdrawals else make_release(party.round, rng)
        path = f"/v1/tasks/digits/clients/{party.name.replace(' ', '%20')}/release"
        party.asked_at = time.monotonic()
        status, _ = self._ask(connection, "DELETE" if party.asked is None else "PUT", path, party.asked)
        if status == 200:
            party.acknowledged, party.acknowledged_at = party.asked, party.asked_at

    def _ask(self, connection, method, path, body=None):
        """The answer's status and body; (0, b"") where there was none."""
        begun = time.monotonic()
        outcome, answer = ask(connection, method, path, body)
        with self._alone:
            self.counts[outcome] += 1
            self.seconds.append(time.monotonic() - begun)
        if outcome not in (200, 503, "refused", "broken", "cut"):
            self.wrong.append(f"{method} {path}: {outcome} {answer[:200]!r}")
        if outcome == "refused":
            time.sleep(0.01)
        return (outcome, answer) if isinstance(outcome, int) else (0, b"")


def connect(url):
    return http.client.HTTPConnection(urlsplit(url).netloc, timeout=PATIENCE_SECONDS / 2)


def ask(connection, method, path, body=None, **headers):
    """The status and body of a whole answer; otherwise where it ended: refused, broken (no answer) or cut (a part)."""
    try:
        if connection.sock is None:
            connection.connect()
    except OSError:
        return "refused", b""
    answer = None
    try:
        with suppress(BrokenPipeError):  # the relay may have answered already
            connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException):
        connection.close()
        return ("cut" if answer else "broken"), b""


def make_release(round, rng):
    """One with some classes. Its observations are its means, so that a teacher with all of them can be checked."""
    labels = np.array(sorted(rng.sample(range(CLASSES), rng.randint(1, 4))), np.int64)
    vectors = np.array([[rng.gauss(0, 1) for _ in range(DIMENSION)] for _ in labels], np.float32)
    rows = Representations(vectors, labels, np.array([rng.randint(1, 50) for _ in labels], np.int64))
    return encode_release(Release(round, rows, rows))


def is_whole(teacher):
    """Whether the class means are the means of all the observations: both of one moment, to the last bit."""
    for vector, label, count in zip(*teacher.means, strict=True):
        rows = teacher.observations.of(label)
        total = fixed_point.weigh(rows.vectors, rows.counts[:, None]).sum(axis=0)
        if int(rows.counts.sum()) != count or (fixed_point.mean(total, int(count)).astype(np.float32) != vector).any():
            return False
    return set(teacher.means.labels.tolist()) == set(teacher.observations.labels.tolist())
