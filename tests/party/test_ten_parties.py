"""Ten parties at a real relay, of which two are killed, one is cut off and one lies: the others end as simulated."""

import signal
import socket
import threading
from contextlib import closing, suppress

import numpy as np
import torch

from repshare import Board, load_classifier
from repshare.board.state import read_members
from repshare.relay.tasks import Tasks
from repshare.stores import open_database
from support.common_parties import PARTIES, TASK, Simulation, collaborate
from support.processes import PATIENCE_SECONDS, eventually

KILLED, CUT, LIAR = ("p1", "p5"), "p7", "p9"
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


def simulate(folder, last):
    """The same at a board of this process: each takes part up to its last round, and 20 rounds are enough."""
    simulation = Simulation(folder, PARTIES)
    for number in range(1, 25):
        simulation.play([name for name in PARTIES if number <= last.get(name, number)])
    return simulation


def test_the_others_end_where_a_simulation_says(tmp_path):
    stack, there = collaborate(tmp_path)
    with stack:
        line = Line(there.relay.port)
        stack.callback(line.cut)
        for name in PARTIES:
            there.join(name, "--patience", 1, "--eval-every", 1000, url=line.url if name == CUT else None)
        eventually(lambda: all(len(there.rounds(name)) > 3 for name in PARTIES), "all have begun")
        for name in KILLED:
            there.processes[name].stop(signal.SIGKILL)
        line.cut()
        last = {name: len(there.rounds(name)) for name in KILLED}

        def in_hand(name):
            return load_classifier(there.state(name) / "classifier.safetensors")

        def is_quiet():
            """All watch, and have the total of what is at the relay now."""
            with closing(open_database(str(tmp_path / "relay.db"))) as database:
                board = Tasks(database).get("digits").board
                rounds = {member.name: member.round for member in board.status().shown}
                done = all(rounds[name] == len(there.rounds(name)) >= 20 for name in REST)
            found = [in_hand(name).linear for name in REST]
            same = all(torch.equal(*pair) for other in found[1:] for pair in zip(found[0], other, strict=True))
            return done and same

        eventually(is_quiet, "those who are left have one classifier")
        troubled = [record for record in there.rounds(CUT) if record["trouble"]]
        assert troubled, "one was cut off"
        for name in (*REST, CUT):
            there.processes[name].process.send_signal(signal.SIGINT)
        for name in (*REST, CUT):
            assert there.processes[name].process.wait(PATIENCE_SECONDS) == 130
        assert f"; trouble in {len(troubled)} of them" in there.told(CUT)
        last[CUT] = len(there.rounds(CUT)) - len(troubled)
        print(last, {n: len(there.rounds(n)) for n in PARTIES})
        print(
            {
                n: [there.rounds(n)[-1][k] for k in ("test_accuracy", "held_out", "held_out_alone", "others", "doubt")]
                for n in PARTIES
            }
        )
        s = simulate(tmp_path, last)
        print({n: s.finish(n).evaluate() for n in PARTIES})
        assert 0
