"""Two parties of which each has five of ten classes recognise all ten, after a few rounds in a common space."""

from repshare import Board, Client, Common, LeNet5, LocalExchange
from repshare.methods import CS
from repshare.spaces import Patches
from repshare_lab import load

train, test, classes = load("digits").normalised()
common = Common(Patches(shape=(1, 8, 8), sizes=(3, 4)))  # what both agree on
board = Board(common.task(classes))


def party(name: str, own: range) -> Client:
    """One that holds the samples of these classes, and shows none of them to anyone."""
    mine = [row for row, label in enumerate(train.labels) if label in own]
    data = train.images[mine], train.labels[mine]
    return Client(LeNet5(), data, LocalExchange(board, name), name=name, method=CS, common=common, test=test)


for a, b in zip(party("a", range(5)).rounds(10), party("b", range(5, 10)).rounds(10), strict=True):
    print(f"round {a.round}: {a.test_accuracy:.1%} and {b.test_accuracy:.1%}, {a.bytes_up:,} bytes up")
