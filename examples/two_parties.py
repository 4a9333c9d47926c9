"""Two parties with data of their own learn together: only averages pass between them."""

from repshare import Board, Client, LeNet5, LocalExchange, Task, load

train, test, classes = load("digits").normalised()
board = Board(Task(classes, dimension=84))


def party(name: str, start: int) -> Client:
    """One that holds 200 samples, and shows nobody any of them."""
    mine = train.images[start : start + 200], train.labels[start : start + 200]
    return Client(LeNet5(), mine, LocalExchange(board, name), name=name, test=test)


for a, b in zip(party("a", 0).rounds(20), party("b", 200).rounds(20), strict=True):
    print(f"round {a.round}: {a.test_accuracy:.1%} and {b.test_accuracy:.1%}, {a.bytes_up:,} bytes up")
