"""Real peers for tests: processes of `repshare peer` in one folder that trust each other's keys."""

import re
from contextlib import ExitStack

import zenoh

from repshare.exchange.keys import Key, Trust
from support.processes import Process, eventually, records

PATIENT = ("--threads", "1", "--timeout", "2")


def open_session(place):
    """A node of Zenoh's own, that anyone can have who may connect to this place."""
    config = zenoh.Config()
    config.insert_json5("mode", '"router"')
    config.insert_json5("scouting/multicast/enabled", "false")
    config.insert_json5("listen/endpoints", "[]")
    config.insert_json5("connect/endpoints", f'["{place}"]')
    return zenoh.open(config)


def impersonate(stack, place, name, answer):
    """Say that this name is there, and answer for it with whatever `answer` says, until the stack is closed."""
    session = stack.enter_context(open_session(place))
    key = f"repshare/task/{name}/release/1"
    kept = [
        session.declare_queryable(key, lambda query: answer(query, key), complete=True),
        session.liveliness().declare_token(f"repshare/task/{name}/live/1"),
    ]
    stack.callback(kept.clear)


def record_answer(place, name, challenge=bytes(32)):
    """What a peer answers to anyone who asks: what an eavesdropper has."""
    with ExitStack() as stack:
        session = stack.enter_context(open_session(place))

        def ask():
            replies = session.get(f"repshare/task/{name}/release/*", payload=challenge, timeout=2.0)
            return [reply.ok.payload.to_bytes() for reply in replies if reply.ok is not None]

        return eventually(ask, f"{name} answers")[0]


class Crew:
    """Peers by name, each with a key that all of them trust."""

    def __init__(self, folder, tasks):
        """`tasks` says by name which file.py:function each one has."""
        self.folder, self.tasks, self.processes = folder, tasks, {}
        trust = Trust(folder / "peers.jsonl")
        for name in tasks:
            key = Key.new()
            key.write(folder / f"{name}.key")
            trust.add(name, key.public)

    def start(self, name, *options, connect=(), **where):
        """Start this one, and wait until it listens. `connect` names those it is told of."""
        before = len(self.listening(name))
        process = self.launch(name, *options, places=[self.listening(other)[-1] for other in connect], **where)

        def listens():
            assert process.process.poll() is None, process.err.read_text()
            return len(self.listening(name)) > before

        eventually(listens, f"{name} listens")
        return process

    def launch(self, name, *options, places, listen="tcp/127.0.0.1:0", prefix=()):
        """Start this one."""
        process = self.processes[name] = Process(
            "peer", "--party", self.tasks[name], "--name", name, "--key", f"{name}.key", "--trust", "peers.jsonl",
            "--listen", listen, *(["--connect", *places] if places else []), *PATIENT, *options,
            cwd=self.folder, name=name, prefix=prefix, thorough=True,
        )  # fmt: skip
        return process

    def stop(self):
        """Kill those that are left. Zenoh may have panicked neither in those who left nor in those who stayed."""
        for process in self.processes.values():
            process.stop()
        for name in self.processes:
            assert "panicked" not in (self.folder / f"{name}.err").read_text()

    def listening(self, name):
        """Where it listened each time that it was started."""
        output = self.folder / f"{name}.out"
        return re.findall(r"listening at (\S+)\n", output.read_text()) if output.exists() else []

    def rounds(self, name):
        """The records it has kept so far."""
        return records(self.folder / f"repshare-task-{name}")

    def taught(self, name, since=0):
        """Rounds after that one for which something came from others."""
        return [line for line in self.rounds(name) if line["round"] > since and line["bytes_down"]]

    def go_on(self, *names, rounds=3):
        """Wait until each of these has had so many more rounds with others."""
        marks = {name: len(self.rounds(name)) for name in names}
        for name, mark in marks.items():
            eventually(lambda name=name, mark=mark: len(self.taught(name, mark)) >= rounds, f"{name} goes on learning")
        for name in names:  # and no round is missing or there twice
            numbers = [line["round"] for line in self.rounds(name)]
            assert numbers == [*range(1, len(numbers) + 1)]
