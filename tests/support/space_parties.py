"""Ten parties of one common classifier: each has samples of four of the ten digits, and the last one lies."""

from contextlib import ExitStack
from dataclasses import replace

from repshare import Board, LocalExchange, Policy
from repshare.cli.party.client import WorkOptions, make_client
from repshare.client import make_wants
from repshare.exchange import Exchange
from repshare.exchange.relay import Membership
from repshare.party.rounds import take_part
from repshare.party.state import State
from repshare.space import Patches
from repshare.space.agreement import Agreement
from support.processes import Process, records
from support.relays import create_task, invite, start_relay

NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
COMMON = Agreement(Patches((1, 8, 8), sizes=(3, 4), filters=8), class_names=NAMES, inputs=(0.0, 16.0))
VALUES = ("--input-shape", 1, 8, 8, "--input-range", 0, 16, "--space", "patches", "filters=8", "--class-names", *NAMES)
PARTIES = tuple(f"p{number}" for number in range(10))
PARTY_FILE = """
from repshare import LeNet5, Party, Policy
from repshare_lab import load

def make(number):
    def party():
        train, test, _ = load("digits")
        own = [(number + step) % 10 for step in range(4)]
        rows = [row for row, label in enumerate(train.labels) if label in own][number % 3 : 240 : 3]
        labels = (train.labels[rows] + (number == 9)) % 10
        data, tested = (train.images[rows].astype("float32"), labels), (test.images.astype("float32"), test.labels)
        return Party(LeNet5(), data, test=tested, policy=Policy(held_out=0.2, accept_exposure=True), accept_space=True)
    return party

for number in range(10):
    globals()[f"p{number}"] = make(number)
"""


class Collaboration:
    """A real relay with a task, and parties that join it as processes."""

    def __init__(self, folder, stack, *values):
        (folder / "party.py").write_text(PARTY_FILE)
        create_task(folder, "digits", *VALUES, *values)
        self.folder, self.stack, self.processes = folder, stack, {}
        self.relay = stack.enter_context(start_relay(folder, "--rate", 0))

    def join(self, name, *options, url=None):
        token = self.folder / f"{name}.token"
        if not token.exists():
            token.write_text(invite(self.folder, name, "--task", "digits"))
            token.chmod(0o600)
        arguments = ["--party", f"party.py:{name}", "--token-file", token.name, "--threads", 1, *options]
        process = Process("join", url or self.relay.url, *arguments, cwd=self.folder, name=name)
        self.stack.callback(process.stop)
        self.processes[name] = process
        return process

    def state(self, name):
        return self.folder / f"repshare-digits-{name}"

    def rounds(self, name):
        return records(self.state(name))

    def told(self, name):
        return self.processes[name].out.read_text() + self.processes[name].err.read_text()


def collaborate(folder, *values):
    """A collaboration in this folder, whose task has these options besides, and what ends it."""
    stack = ExitStack()
    return stack, Collaboration(folder, stack, *values)


def learn_here(folder, reference, agreement):
    """A state folder of a party that is alone at a board of this process, after a round."""
    client = make_client(str(reference), "here", WorkOptions(agreement=agreement), Policy(accept_exposure=True))
    task = client.learner.task()
    client.exchange = LocalExchange(Board(task), "here")
    state = State(folder, client, Membership("digits", "here", task))
    state.restore()
    list(take_part(state, 1))


class Tapped(Exchange):
    """Teaches always the same, and keeps what a client shares."""

    def __init__(self, body):
        self.body, self.sent = body, []

    def collect(self, wants):
        return self.body

    def publish(self, body):
        self.sent.append(body)


class Simulation:
    """The same parties at a board of this process: in each round all collect, then all improve, then all publish."""

    def __init__(self, folder, names, space=COMMON, state=lambda name: None):
        (folder / "party.py").write_text(PARTY_FILE)
        self.task = task = replace(space.task(10), minimum_count=2)  # as `repshare relay tasks create` makes it
        self.board, file, usual = Board(task), folder / "party.py", (WorkOptions(), Policy(prefer_own=False))
        self.clients = {name: make_client(f"{file}:{name}", name, *usual, task, folder=state(name)) for name in names}

    def play(self, present):
        clients = [self.clients[name] for name in present]
        for client in clients:
            client.exchange = Tapped(self.teach(client))
        for client in clients:
            assert client.round(test=False).trouble is None
        for client in clients:
            self.board.accept(client.name, client.exchange.sent[0])

    def finish(self, name):
        """The client with the total that is there now."""
        client = self.clients[name]
        client.learner.absorb(self.teach(client))
        return client

    def teach(self, client):
        wants = make_wants(client.method, client.policy, client.seed, client.name, client.round_number + 1)
        return self.board.teach(client.name, wants)
