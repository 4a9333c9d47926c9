"""Take the picture of the relay's page in the documents (`make pictures`): four parties in a common space, and
somebody who publishes vectors of another one."""

import sys
import tempfile
import time
from pathlib import Path

from support.browsers import Visit, start_browser
from support.processes import Process
from support.relays import create_task, invite, release, start_relay

NAMES = ("T-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
CITIES = ("aachen", "bergen", "cadiz", "delft")
PARTY_FILE = """
from torch import nn
from repshare import LeNet5, Party, Policy
from repshare_lab import load

class Perceptron(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Flatten(), nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))

class Convolution(nn.Sequential):
    def __init__(self):
        pooled = nn.Conv2d(1, 12, 5, stride=2), nn.ReLU(), nn.MaxPool2d(3)
        super().__init__(*pooled, nn.Flatten(), nn.Linear(192, 10))

def party(model, start, often, seldom):
    train, _, _ = load("fashion_mnist")
    rows = range(start, start + 2000)
    counts = [often if label in frequent[start] else seldom for label in range(10)]
    kept = [row for label in range(10) for row in [at for at in rows if train.labels[at] == label][: counts[label]]]
    return Party(model(), (train.images[kept].astype("float32"), train.labels[kept]), policy=Policy(held_out=0.2))

frequent = {0: (0, 1, 2, 3), 2000: (4, 5, 6), 4000: (7, 8, 9), 6000: range(0, 10, 2)}
aachen = lambda: party(LeNet5, 0, 55, 20)
bergen = lambda: party(Perceptron, 2000, 50, 14)
cadiz = lambda: party(Convolution, 4000, 45, 10)
delft = lambda: party(LeNet5, 6000, 45, 25)
"""


def join(folder, relay, name):
    token = folder / f"{name}.token"
    token.write_text(invite(folder, name, "--task", "wardrobes"))
    token.chmod(0o600)
    options = [
        "--party",
        f"party.py:{name}",
        "--token-file",
        token.name,
        "--threads",
        1,
        "--report",
        "--accept-exposure",
    ]
    return Process("join", relay.url, *options, cwd=folder, name=name)


def take(folder, relay, pictures):
    """Let all parties learn until they have settled, then take a picture."""
    (folder / "party.py").write_text(PARTY_FILE)
    parties = {name: join(folder, relay, name) for name in CITIES}
    try:
        while not all("settled" in process.out.read_text() for process in parties.values()):
            for process in parties.values():
                assert process.process.poll() is None, process.err.read_text()
            time.sleep(0.5)
        mallory = invite(folder, "mallory", "--task", "wardrobes")
        assert relay.publish("mallory", release(), mallory, "wardrobes").is_client_error
        with start_browser() as browser:
            visit = Visit(browser)
            visit.page.goto(relay.url)
            visit.wait_text("body", "mallory")
            visit.page.screenshot(path=pictures / "page.png", full_page=True)
            assert not visit.errors, visit.errors
            visit.close()
    finally:
        for process in parties.values():
            process.stop()


def main():
    with tempfile.TemporaryDirectory() as path:
        folder = Path(path)
        values = ("--input-shape", 1, 28, 28, "--input-range", 0, 255, "--class-names", *NAMES)
        create_task(folder, "wardrobes", *values)
        with start_relay(folder, "--public-page") as relay:
            take(folder, relay, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
