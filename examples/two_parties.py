"""Two parties, each with its own data and model, learn together: only averages pass between them."""

from torch import nn

from repshare import Board, Client, LocalExchange, Task
from repshare_lab import load

train, test, classes = load("digits").normalised()
board = Board(Task(classes, dimension=64))


def party(name: str, start: int) -> Client:
    """A client with 200 samples, none of which it shows to anyone."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(8 * 8, 64), nn.Tanh(), nn.Linear(64, classes))
    data = train.images[start : start + 200], train.labels[start : start + 200]
    return Client(model, data, LocalExchange(board, name), name=name, test=test)


for a, b in zip(party("a", 0).rounds(20), party("b", 200).rounds(20), strict=True):
    print(f"round {a.round}: {a.test_accuracy:.1%} and {b.test_accuracy:.1%}, {a.bytes_up:,} bytes up")
