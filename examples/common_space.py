"""Two parties of which each has five of ten classes recognise all ten, after a few rounds in a common space."""

from repshare import Agreement, Board, Client, LocalExchange
from repshare.space import Patches
from repshare_lab import load

train, test, classes = load("digits").normalised()
space = Agreement(Patches(shape=(1, 8, 8), sizes=(3, 4)))  # what both agree on
board = Board(space.task(classes))


def party(name: str, own: range) -> Client:
    """One that holds the samples of these classes, and shows none of them to anyone."""
    mine = [row for row, label in enumerate(train.labels) if label in own]
    data, exchange = (train.images[mine], train.labels[mine]), LocalExchange(board, name)
    return Client(data=data, exchange=exchange, space=space, classes=classes, name=name, test=test)


for a, b in zip(party("a", range(5)).rounds(10), party("b", range(5, 10)).rounds(10), strict=True):
    print(f"round {a.round}: {a.test_accuracy:.1%} and {b.test_accuracy:.1%}, {a.bytes_up:,} bytes up")
