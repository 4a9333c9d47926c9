"""Ten parties at a real relay, of which two are killed, one is cut off and one lies: the others end as simulated."""

import signal
import socket
import threading
from contextlib import closing, suppress
from itertools import pairwise

import numpy as np

from repshare import Board, load_classifier
from repshare.board.state import release_key
from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from repshare_lab import load
from support.processes import PATIENCE_SECONDS, eventually
from support.space_parties import COMMON, NAMES, PARTIES, Simulation, collaborate

KILLED, CUT, LIAR = ("p1", "p5"), "p7", "p9"
SHRINKAGE = 0.01  # fixed, so that 20 rounds come to an end that does not depend on who came when
REST = tuple(name for name in PARTIES if name not in (*KILLED, CUT))


class Line:
    """A line to a relay that can be cut."""

    def __init__(self, port):
        self.there, self.sockets = ("127.0.0.1", port), []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self):
        for each in (self.listener, *self.sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self):
        with suppress(OSError):
            while True:
                here, _ = self.listener.accept()
                there = socket.create_connection(self.there)
                self.sockets += [here, there]
                for one, other in ((here, there), (there, here)):
                    threading.Thread(target=self._carry, args=[one, other], daemon=True).start()

    @staticmethod
    def _carry(one, other):
        with suppress(OSError):
            while body := one.recv(1 << 16):
                other.sendall(body)
            other.shutdown(socket.SHUT_WR)


def simulate(folder, last, state):
    """The same at a board of this process: each takes part up to its last round."""
    simulation = Simulation(folder, PARTIES, COMMON._replace(shrinkage=SHRINKAGE), state)
    for number in range(1, max(last.values()) + 1):
        simulation.play([name for name in PARTIES if number <= last[name]])
    return simulation


def is_same(one, other):
    return all(map(np.array_equal, one, other))


def score(classifier):
    """The share of all test images that it gets right."""
    _, test, _ = load("digits")
    named = classifier(test.images.astype("float32"))
    return sum(name == NAMES[label] for name, label in zip(named, test.labels, strict=True)) / len(named)


def test_two_are_killed_one_is_cut_off_one_lies_and_the_others_end_as_simulated(tmp_path):
    stack, there = collaborate(tmp_path, "--shrinkage", SHRINKAGE, "--no-compared")
    with stack:
        line = Line(there.relay.port)
        stack.callback(line.cut)
        for name in PARTIES:
            there.join(name, "--patience", 1, "--no-prefer-own", url=line.url if name == CUT else None)
        eventually(lambda: all(len(there.rounds(name)) >= 8 for name in PARTIES), "all have learned with all others")
        for name in KILLED:
            there.processes[name].stop(signal.SIGKILL)
        line.cut()

        def in_hand(name):
            return load_classifier(there.state(name) / "classifier.safetensors")

        def are_quiet():
            """Return whether those who are left have done their rounds, and have the same total."""
            done = all(len(there.rounds(name)) >= 20 for name in REST)
            return done and all(is_same(in_hand(one).linear, in_hand(other).linear) for one, other in pairwise(REST))

        eventually(are_quiet, "those who are left have one classifier")
        eventually(lambda: there.rounds(CUT)[-1]["trouble"], "one was cut off")
        for name in (*REST, CUT):
            there.processes[name].process.send_signal(signal.SIGINT)
        for name in (*REST, CUT):
            assert there.processes[name].process.wait(PATIENCE_SECONDS) == 130
        rounds = {name: there.rounds(name) for name in PARTIES}
    with closing(open_database(str(tmp_path / "relay.db"))) as database:
        board = Tasks(database).get("digits").board
        parts = board.store.read(lambda state: state.get(list(map(release_key, PARTIES))))

    last = {name: sum(line["trouble"] is None for line in rounds[name]) for name in PARTIES}
    simulation, found = simulate(tmp_path, last, there.state), in_hand("p0")
    expected = simulation.finish("p0").evaluate()
    assert abs(score(found) - expected) <= 0.02, (score(found), expected, last)
    assert expected > 0.8
    assert all(parts), "what the killed ones shared stays"
    simulation.board = Board(simulation.task)
    for name, body in zip(PARTIES, parts, strict=True):
        simulation.board.accept(name, body)
    assert is_same(found.linear, simulation.finish("p0").learner.classifier()), "the total of what is at the relay"

    assert all((rounds[name][-1]["others"], rounds[name][-1]["trouble"]) == (9, None) for name in REST)
    assert "other clients make it worse" in rounds[LIAR][-1]["doubt"]
    assert abs(score(in_hand(CUT)) - expected) <= 0.1, (
        "who has four digits, and is cut off, has a classifier of all ten"
    )
    told = there.told(CUT)
    assert f"; trouble in {len(rounds[CUT]) - last[CUT]} of them" in told
    assert "the classifier is in repshare-digits-p7/classifier.safetensors" in told
