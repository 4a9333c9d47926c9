"""Three parties that learn one classifier of all ten digits at a relay. Each has samples of four or five of them.

repshare join http://127.0.0.1:8000 --party examples/space_party.py:alice --token-file alice.token
repshare join http://127.0.0.1:8000 --party examples/space_party.py:bob --token-file bob.token
repshare join http://127.0.0.1:8000 --party examples/space_party.py:carol --token-file carol.token
"""

from repshare import Party, Policy
from repshare_lab import load

train, test, _ = load("digits")  # 8 × 8 pixels from 0 to 16
PUBLIC = Policy(accept_exposure=True)  # anybody may see who is among these samples
NAMES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def hold(*digits: int) -> Party:
    """A party with the samples of these digits."""
    rows = [row for row, label in enumerate(train.labels) if label in digits]
    data = train.images[rows].astype("float32"), train.labels[rows]
    tested = test.images.astype("float32"), test.labels
    return Party(data=data, test=tested, class_names=NAMES, policy=PUBLIC)


def alice() -> Party:
    """Who has never seen a digit above three."""
    return hold(0, 1, 2, 3)


def bob() -> Party:
    """Who shares the three with alice, and the six with carol."""
    return hold(3, 4, 5, 6)


def carol() -> Party:
    """Who joins them."""
    return hold(6, 7, 8, 9, 0)
