"""Clients' parts of a common classifier vote on each other: a faulty one stays out of the total, and is named.

A client's first part is made of its own samples alone. Its row for a class points where others' rows for that class
do. So first parts vote on each other, without a message more: where more than two thirds of those that share classes
with a client find its rows clearly more alike by other names of the classes, or hardly alike, it is left out. Votes
count the same, however many samples are behind them; a class that only one client has is not compared.

Later parts hold what the total still lacks, and do not look like each other. They are compared with their client's own
first one: turned away from it, or much longer than others, they are refused, and the last one that was accepted stays.

votes          the first parts that vote; those that are refused or left out, when and why; lengths of later parts
first/CLIENT   columns of a client's first part, as they are compared
"""

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import permutations
from statistics import median
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from repshare.sharing.parts import BESIDE, LEAST_WEIGHT, in_order
from repshare.sharing.representations import Release, Representations
from repshare.sharing.task import Task, scale_weights
from repshare.stores import Transaction, decoded

KEY = "votes"
MOST_VOTERS = 30  # clients whose first parts vote: those that came first
MOST_COLUMNS = 1024  # numbers of a row that are compared, known to the board's keeper only
MOST_CLASSES = 32  # the first classes; no others are compared
MOST_NAMED = 100  # clients that are left out or refused
FEWEST_SAMPLES = 5  # a row over fewer samples neither votes nor is voted on
FEWEST_VOTES = 2  # between two clients alone, nobody can tell the wrong one
ENOUGH_VOTES = 2 / 3
CLEARLY = 0.1  # of the sum of cosines between rows: what other names of classes must gain at least,
CHANCE = 3.0  # and this many standard deviations of such a cosine more
ALIKE, UNLIKE = 0.2, 0.25  # the usual cosine that tells something, and the part of it that is too little
EVIDENCE = 0.45  # a sum of cosines, where one total is all that there is to compare with
OPPOSITE = -0.1  # a mean cosine between rows of the same classes: honest ones stay above 0.1
TURNED = 0.05  # the cosine between a later part and the first one: honest ones stay above 0.1
CHANGED = 1.2  # times: by less, a client's length is not written again
LONGER = 10.0  # times the median of others: honest ones stay below 7.5
LONGEST = 0.2  # of a vector's length: honest rows have 0.005, and 0.13 where shrinkage is fixed and large
FEWEST_LENGTHS = 3  # lengths for a median
FEWEST_OTHERS = 4  # clients, from which on a client's share of all samples is bounded
MOST_RETURNS = 2  # of one client in RETURN_SECONDS, after it has withdrawn a part that was in the total
RETURN_SECONDS = 24 * 3600.0
TIMES = 10  # all others' samples, if they were as many as the smaller two thirds have: what nobody has by right


class Ruling(NamedTuple):
    """The votes' outcome."""

    refused: str | None = None
    """Why the part that came is not taken; None: it is."""
    left_out: dict[str, str] = {}
    """Clients whose last parts are to be taken out of the total, and why."""


ACCEPTED = Ruling()


class NamedClient(NamedTuple):
    """A client whose part was refused or taken out."""

    name: str
    round: int
    time: float  # seconds since 1970
    reason: str


class FirstPart(NamedTuple):
    """What a client's parts are compared by."""

    rows: NDArray[np.float64]  # (C, k)  some columns, less the client's centre
    counts: NDArray[np.int64]  # (C,)  samples of each class
    length: float  # of the longest row

    def encode(self) -> bytes:
        """Encode: the length, the number of classes, the counts, the rows."""
        head = np.array([self.length, len(self.counts), *self.counts])
        return head.tobytes() + self.rows.astype(np.float32).tobytes()

    @classmethod
    def decode(cls, kept: bytes) -> Self:
        """Return a first part from its bytes. Raises ValueError."""
        length, classes = np.frombuffer(kept[:16])
        end = 16 + 8 * int(classes)
        counts, rows = np.frombuffer(kept[16:end]), np.frombuffer(kept[end:], np.float32)
        return cls(rows.reshape(int(classes), -1).astype(np.float64), counts.astype(np.int64), float(length))


class Votes:
    """The votes in a board's store, open for one transaction."""

    def __init__(self, task: Task, state: Transaction, key: bytes, client: str = "") -> None:
        """`key` is the board's: without it, nobody knows which columns are compared. `client`: whose part has come."""
        self.task, self.state, self.key = task, state, key
        self._kept, self._first = state.get([KEY, first_key(client)])  # at once
        kept = decoded(KEY, lambda kept: json.loads(kept or b"{}"), self._kept)
        self.voters: dict[str, float | None] = kept.get("voters", {})  # the length of each one's last later part
        self.named: dict[str, list[Any]] = kept.get("named", {})
        self.samples: dict[str, int] = kept.get("samples", {})  # of voters in the total
        self.left: dict[str, list[float]] = kept.get("left", {})  # when clients have withdrawn parts

    def judge(
        self, client: str, release: Release, others: int, others_samples: int, date: float,
        total: Representations | None = None,
    ) -> Ruling:  # fmt: skip
        """Decide about a client's new part, given how many other clients are in the total, and their samples.

        `total` is the others' and the last part of the client; None: there is none.
        """
        if not len(release.means.labels):
            return ACCEPTED
        samples = int(release.means.counts[0])
        if excess := self._find_excess(client, samples, others, others_samples):
            verdict = Ruling(excess, {client: excess})
        elif sum(abs(date - each) < RETURN_SECONDS for each in self.left.get(client, ())) > MOST_RETURNS:
            verdict = Ruling(f"it has withdrawn its part more than {MOST_RETURNS} times in a day: come again tomorrow")
        else:
            verdict = self._judge(client, release, total)
        if verdict.refused is None and client in self.voters and self.samples.get(client) != samples:
            self.samples[client] = samples
            verdict = Ruling(None, verdict.left_out | self._find_excesses(client, others, others_samples + samples))
        for name in verdict.left_out:
            self.samples.pop(name, None)
        self.named.pop(client, None)
        told = dict(verdict.left_out) | ({} if verdict.refused is None else {client: verdict.refused})
        self.named |= {name: [release.round, date, why] for name, why in told.items()}
        self.named = dict([*self.named.items()][-MOST_NAMED:])
        self._keep()
        return verdict

    def forget(self, client: str, withdrawn: float | None = None) -> None:
        """Forget the first part of a client, and what was said of it.

        Args:
            client: Its name.
            withdrawn: When it withdrew a part that was in the total, in seconds since 1970, if it did.
        """
        if withdrawn is not None:
            told = [each for each in self.left.pop(client, []) if withdrawn - each < RETURN_SECONDS]
            self.left = dict([*self.left.items(), (client, [*told[-MOST_RETURNS:], withdrawn])][-MOST_NAMED:])
        for kept in (self.voters, self.named, self.samples):
            kept.pop(client, None)
        self.state.delete([first_key(client)])
        self._keep()

    def list_named(self) -> list[NamedClient]:
        """Return the clients whose parts are refused or left out, the last ones last."""
        return [NamedClient(name, *told) for name, told in self.named.items()]

    def _judge(self, client: str, release: Release, total: Representations | None) -> Ruling:
        own, first = sketch(self.task, release, self.key), _decode_first(client, self._first)
        if own.length > (most := LONGEST * math.sqrt(self.task.dimension)):
            return Ruling(f"a row of length {own.length:.3g}; here no honest one is longer than {most:.3g}")
        if first is None or client in self.named or begins(release):
            if not (begins(release) or self._is_fixed) and np.count_nonzero(own.counts) > 1:
                asked = "what it shares first here must be of its own samples alone: its next part will be"
                return Ruling(str(self.named[client][-1]) if client in self.named else asked)
            return self._admit(client, own)
        if self._has_turned(own, first, sketch(self.task, release, self.key, total)):
            return Ruling("its rows have turned away from its own first ones: has it the same samples and labels?")
        others = [length for name, length in self.voters.items() if name != client and length is not None]
        if why := _find_length(own, others):
            return Ruling(why)
        before = self.voters.get(client)
        if client in self.voters and not (before and 1 / CHANGED < own.length / before < CHANGED):
            self.voters[client] = own.length
        return ACCEPTED

    def _has_turned(self, own: FirstPart, first: FirstPart, in_total: FirstPart) -> bool:
        """Whether rows point elsewhere than at first, less the client's own centre and less the total's.

        Where a client has mostly one class, its weights no longer add up to 0 once others' samples are known. Then its
        rows tell classes apart about the total's centre only. A few samples of a class turn legitimately, too.
        """
        if np.count_nonzero(first.counts >= FEWEST_SAMPLES) < 2:
            return False
        pairs = [(each.rows, first.rows) for each in (own, in_total)]
        return all(one.any() and other.any() and _cosine(one, other) < TURNED for one, other in pairs)

    def _admit(self, client: str, own: FirstPart) -> Ruling:
        """Let a client's first part and all others' vote on each other."""
        self.state.set({first_key(client): own.encode()})
        if client in self.voters or len(self.voters) < MOST_VOTERS:
            self.voters[client] = None
        names = list({**self.voters, client: None})
        parts = {name: part for name, part in zip(names, self._read(names), strict=True) if part is not None}
        faults = dict[str, str]()
        for (name, part), pairs in zip(parts.items(), vote(list(parts.values())), strict=True):
            lengths = [other.length for each, other in parts.items() if each != name and other.length]
            if why := _find_length(part, lengths) if pairs is None else explain(self.task, pairs):
                faults[name] = why
        refused = faults.pop(client, None)
        return Ruling(refused, {name: why for name, why in faults.items() if name not in self.named})

    def _find_excess(self, client: str, samples: int, others: int, others_samples: int) -> str | None:
        """The reason for refusing a client with too large a share of all samples, if it has one.

        Others' false counts hide none: only so many times what the smaller two thirds of others have is believed.
        """
        counts = sorted(count for name, count in self.samples.items() if name != client)
        smaller = counts[: math.ceil(len(counts) * ENOUGH_VOTES)]
        if smaller:
            others_samples = min(others_samples, TIMES * others * sum(smaller) // len(smaller))
        share = samples / max(samples + others_samples, 1)
        if others < FEWEST_OTHERS or share <= self.task.most_share:
            return None
        return (
            f"its {samples:,} samples would be {share:.0%} of all, of which the task allows one client "
            f"{self.task.most_share:.0%}: is the count right? If all agree, make the task with --most-share {share:.2g}"
        )

    def _find_excesses(self, client: str, others: int, samples: int) -> dict[str, str]:
        """The clients that have too large a share now that this one has come, and why."""
        found = {
            name: self._find_excess(name, count, others, samples - count)
            for name, count in self.samples.items()
            if name != client
        }
        return {name: why for name, why in found.items() if why}

    def _read(self, clients: Sequence[str]) -> list[FirstPart | None]:
        found = zip(clients, self.state.get([first_key(client) for client in clients]), strict=True)
        return [_decode_first(client, kept) for client, kept in found]

    def _keep(self) -> None:
        kept = {"voters": self.voters, "named": self.named, "samples": self.samples, "left": self.left}
        if (body := json.dumps(kept).encode()) != self._kept:
            self.state.set({KEY: body})

    @property
    def _is_fixed(self) -> bool:
        """Whether shrinkage is not voted on: parts do not say then whether they are first ones."""
        return json.loads(self.task.description or "{}").get("shrinkage") is not None


def sketch(task: Task, release: Release, key: bytes = b"", total: Representations | None = None) -> FirstPart:
    """What is compared of a part, or of a total in its form: rows less its centre, or less this total's."""
    dimension, rows = task.dimension, in_order(release.means).astype(np.float64)
    chosen, centre = choose_columns(dimension, key), _find_centre(task, release.means if total is None else total)
    centred = rows[:-1, chosen] - rows[:-1, dimension, None] * centre[chosen]
    counts = task.layout.count_classes(release.means, task.classes, dimension)
    longest = float(np.linalg.norm(rows[:-1, :dimension], axis=1).max())
    return FirstPart(centred[:MOST_CLASSES], np.array(counts[:MOST_CLASSES], np.int64), longest)


def _find_centre(task: Task, rows: Representations) -> NDArray[np.float64]:
    """The mean of the vectors behind a part or total, weighted as the task says."""
    ordered = in_order(rows).astype(np.float64)
    centre: NDArray[np.float64] = ordered[-1]
    weights = scale_weights(json.loads(task.description or "{}").get("class_weights"), task.classes)
    if weights is not None:
        centre = centre / max(float(weights @ ordered[:-1, task.dimension + 1]), LEAST_WEIGHT)
    return centre


def find_difference(task: Task, own: FirstPart, others: FirstPart) -> str | None:
    """Why a client's first part is unlike the total of the others, if it is: where nobody sees single parts."""
    (mine, there), (theirs, known) = _prepare(own), _prepare(others)
    if (found := _compare((mine, there), (theirs, known))) is None:
        return None
    alike, pairs = found
    gained = sum(float(mine[a] @ (theirs[b] - theirs[a])) for a, b in pairs.items())
    lacking = np.count_nonzero(there & known) * (UNLIKE * ALIKE - alike)
    return explain(task, pairs) if max(gained, lacking) >= EVIDENCE else None


def explain(task: Task, pairs: Mapping[int, int]) -> str:
    """The fault of rows that are more alike by other names of the classes, or hardly alike by any."""
    if not pairs:
        return "its rows are hardly like others' for the same classes: compare its labels and inputs with theirs"
    names = _class_names(task)
    exchanged = [(a, b) for a, b in pairs.items() if a < b and pairs.get(b) == a]
    told = [f"{names(a)} and {names(b)} are exchanged" for a, b in exchanged]
    alone = {a: b for a, b in pairs.items() if pairs.get(b) != a}
    told += [f"{names(a)} are like others' for {names(b)}" for a, b in alone.items()]
    return f"its rows for {'; '.join(told[:5])}{'; …' if told[5:] else ''}: compare its labels with the others'"


def vote(parts: Sequence[FirstPart]) -> list[dict[int, int] | None]:
    """The votes on each client: for each of its classes the one that others find there. None: nothing is wrong.

    Another client votes against it where its rows are clearly more alike by other names of the classes, or hardly
    alike at all, while those of most clients are. A client may be wrong in all classes, and like none.
    """
    count, prepared = len(parts), [_prepare(part) for part in parts]
    alike, renamed = np.full((count, count), np.nan), dict[tuple[int, int], dict[int, int]]()
    for client, voter in permutations(range(count), 2):
        if (found := _compare(prepared[client], prepared[voter])) is not None:
            alike[client, voter], renamed[client, voter] = found
    wrong: list[dict[int, int] | None] = []
    for client in range(count):
        voters = np.flatnonzero(~np.isnan(alike[client])).tolist()
        against = [voter for voter in voters if renamed[client, voter] or _is_unlike(alike, client, voter)]
        is_wrong = len(voters) >= FEWEST_VOTES and len(against) > ENOUGH_VOTES * len(voters)
        wrong.append(_agree([renamed[client, voter] for voter in against]) if is_wrong else None)
    return wrong


def _prepare(part: FirstPart) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """A part's rows, of length 1 (C, k), and which of its classes are compared (C,)."""
    rows = _shorten(part.rows)
    return rows, (part.counts >= FEWEST_SAMPLES) & rows.any(axis=1)


def _compare(
    client: tuple[NDArray[np.float64], NDArray[np.bool_]], voter: tuple[NDArray[np.float64], NDArray[np.bool_]]
) -> tuple[float, dict[int, int]] | None:
    """How alike their rows for the same classes are, and the classes that the voter finds in others' places."""
    (own, there), (theirs, known) = client, voter
    both, classes = np.flatnonzero(there & known), np.flatnonzero(known)
    if not len(both) or len(classes) < 2:
        return None
    cosines, places = own[both] @ theirs[classes].T, np.searchsorted(classes, both)
    alike = float(cosines[np.arange(len(both)), places].mean())
    return alike, _rename(cosines, places, both, classes, own.shape[1])


def _is_unlike(alike: NDArray[np.float64], client: int, voter: int) -> bool:
    """Whether a client's rows are opposite to a voter's (n, n), or hardly like them, though most others' are."""
    if alike[client, voter] < OPPOSITE:
        return True
    others = np.delete(alike[:, voter], [client, voter])
    others = others[~np.isnan(others)]
    usual = float(np.median(others)) if len(others) >= FEWEST_VOTES else 0.0
    return usual >= ALIKE and alike[client, voter] < UNLIKE * usual


def _rename(
    alike: NDArray[np.float64],  # (a client's classes that the voter has, too; the voter's classes)
    own: NDArray[np.int64],  # the places of the former among the latter
    classes: NDArray[np.int64],
    others: NDArray[np.int64],
    columns: int,
) -> dict[int, int]:
    """The exchange of classes by which rows are clearly more alike than by their own names; mostly none."""
    from scipy.optimize import linear_sum_assignment  # a relay needs it here alone

    rows, best = linear_sum_assignment(-alike)
    usual = float(alike[rows, own].sum())
    gained = float(alike[rows, best].sum()) - usual
    if usual < 0 and usual + gained < ALIKE * len(rows):  # turned round, not exchanged
        return {}
    if gained <= CLEARLY * max(usual, 0.0) + CHANCE / math.sqrt(columns):
        return {}
    return {int(a): int(b) for a, b in zip(classes, others[best], strict=True) if a != b}


def _shorten(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return rows of length 1; those of zeros as they are."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)


def _agree(against: Sequence[Mapping[int, int]]) -> dict[int, int]:
    """The exchanged classes that most votes against a client name; at least those named most often."""
    said = Counter(pair for each in against for pair in each.items())
    least = min(len(against) / 2, max(said.values(), default=0))
    return dict(pair for pair, times in said.most_common()[::-1] if times >= least)


@lru_cache(maxsize=64)
def choose_columns(dimension: int, key: bytes) -> NDArray[np.int64]:
    """Choose the columns that are compared."""
    rng = np.random.default_rng(list(key) or 0)
    return np.sort(rng.permutation(dimension)[:MOST_COLUMNS])


def first_key(client: str) -> str:
    """Return the key of a client's first part."""
    return f"first/{client}"


def _decode_first(client: str, kept: bytes | None) -> FirstPart | None:
    return None if kept is None else decoded(first_key(client), FirstPart.decode, kept)


def begins(release: Release) -> bool:
    """Whether a part says that it was made of a client's own samples alone."""
    last = in_order(release.means)[-1]
    return bool(last[len(last) - BESIDE + 1] > 0.5)


def _cosine(one: NDArray[np.float64], other: NDArray[np.float64]) -> float:
    # Sums, not BLAS, whose threads would wait for each other in a relay's.
    return float((one * other).sum() / math.sqrt(np.square(one).sum() * np.square(other).sum()))


def _find_length(own: FirstPart, others: Sequence[float]) -> str | None:
    if len(others) < FEWEST_LENGTHS or own.length <= (most := LONGER * median(others)):
        return None
    return f"a row of length {own.length:.3g}, {own.length / most * LONGER:.0f} times the usual {most / LONGER:.3g}"


def _class_names(task: Task) -> Any:
    """A function from a class to its name."""
    told = json.loads(task.description or "{}").get("class_names") or ()
    return lambda label: f"{told[label]}" if label < len(told) else f"class {label}"
