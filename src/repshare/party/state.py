"""A party's rounds, and the folder from which they are resumed after any end."""

import hashlib
import json
import math
import os
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from repshare.client import Client, Record, make_wants
from repshare.errors import CheckpointError, ConfigError, ExchangeError, Outdated, RepshareError
from repshare.exchange import Exchange, Traffic
from repshare.exchange.relay import Membership
from repshare.files import write_atomically
from repshare.imports import in_one_line
from repshare.measures import Measures
from repshare.network import learner as network_learner
from repshare.privacy.ledger import read_ledger
from repshare.records import Folder
from repshare.sharing.representations import Wants
from repshare.space import learner as space_learner

LEDGER = "privacy.jsonl"
SHARED = "shared.marks"  # keyed hashes of the samples behind what was shared last
SECRET, SECRET_BYTES = "held-out.secret", 32
CLIENT = "client.state"
LEARNED = (network_learner.FILE, space_learner.FILE)  # a party has one of them
CONTROLS, CONTROL = "controls.jsonl", ".control"
WITH_NETWORK = "055caf8"  # the last commit whose clients of a space have a network, too


@dataclass(frozen=True)
class OwnRecord(Record):
    """A party's account of one round, for itself: also what a test measured beside accuracy."""

    metrics: Measures | None = None
    """Balanced accuracy, AUROC, calibration error, and each class's recall; None in a round without a test."""


def play_round(client: Client, *, test: bool) -> OwnRecord:
    """Carry out a round, with all measures of a test."""
    record = client.round(test=False)
    metrics = client.measure() if test and client.test is not None else None
    accuracy = None if metrics is None else metrics.accuracy
    return OwnRecord(**{**vars(record), "test_accuracy": accuracy, "metrics": metrics})


class CachingExchange(Exchange):
    """An exchange that keeps the last teacher, so that a round that was interrupted is repeated with the same one."""

    def __init__(self, exchange: Exchange, path: Path) -> None:
        self.exchange, self.path = exchange, path
        self.hides_single_releases = exchange.hides_single_releases
        self._again = self._taught = self._shared = 0  # bytes of teachers given again, and fetched; and of releases
        self._last: bytes | None = None  # that was published since the start

    def others(self) -> int | None:
        """The number of other clients, as the exchange behind knows it."""
        return self.exchange.others()

    def may_have_left(self) -> bool:
        """Whether others may have seen the last release."""
        return self.exchange.may_have_left()

    def traffic(self) -> Traffic:
        """Bytes sent and received, as the exchange behind counts them."""
        sent, received = self.exchange.traffic() or (self._shared, self._taught)
        return Traffic(sent, self._again + received)

    def publish(self, body: bytes) -> None:
        """Share this release. A round done again makes the same one, and publishing twice changes nothing."""
        self.exchange.publish(body)
        self._shared += len(body)
        self._last = body

    def behind(self, own: int) -> float:
        """The samples behind what is seen of a release, as the exchange behind counts them."""
        return self.exchange.behind(own)

    @property
    def last(self) -> bytes | None:
        """The last release since the start; None: there was none."""
        return self._last

    def renew(self) -> None:
        """Share the last release once more, so that it does not expire: nothing new leaves."""
        if self._last is not None:
            self.publish(self._last)

    def collect(self, wants: Wants) -> bytes:
        """A teacher, as bytes."""
        question = hashlib.sha256(repr(wants).encode()).digest()
        if self.path.exists():
            kept = self.path.read_bytes()
            if kept.startswith(question):
                self._again += len(kept) - len(question)
                return kept[len(question) :]
        body = self.exchange.collect(wants)
        self._taught += len(body)
        write_atomically(self.path, question + body, private=True)
        return body


class State:
    """A client's folder: run.json describes the client, records.jsonl its rounds, client.state the last one.

    model.safetensors has the model's weights, by their names in its state_dict; in a space, classifier.safetensors is
    the classifier in hand, and held-out.secret decides which samples are held out.
    With controls (see `controls`), controls.jsonl has their rounds, and a file of each its last one.
    privacy.jsonl is the ledger of what its releases have cost; it is never reset. privacy.release is the
    last one that was charged, until it is acknowledged. Only the owner may read any of this.
    """

    def __init__(self, path: Path, client: Client, membership: Membership) -> None:
        self.client, self.membership = client, membership
        self._path, self._teacher = path / CLIENT, path / "teacher"
        self._ledger, self._restarted = path / LEDGER, False
        self.others: int | None = None  # behind what was learned, as far as known
        described = _describe(client, membership)
        _refuse_network(path, described)
        self.folder = Folder(path, described, resume=True, option="--state", private=True)
        self.records = self.folder.records  # one line a round
        if client.learner.secret is not None:
            self._keep_secret(client.learner.secret)
        if client.method.serve is not None and client.guard is None and (marks := client.learner.marks()):
            self._check_change(marks)
        if client.guard is None and self._ledger.exists() and read_ledger(self._ledger)[1]:
            raise ConfigError(
                f"releases from {path} were private, and without epsilon exact averages would leave, of which no ε "
                "holds: give --epsilon again, or another --state"
            )
        if client.exchange is not None:
            self.attach(client.exchange)

    def attach(self, exchange: Exchange) -> None:
        """Let the client learn with others through this exchange."""
        self.client.exchange = CachingExchange(exchange, self._teacher)

    def _keep_secret(self, secret: bytes) -> None:
        path = self.folder.path / SECRET
        if not path.exists():
            write_atomically(path, secret, private=True)
        elif path.read_bytes() != secret:
            raise ConfigError(f"{path} is not the secret that this client was made with: see read_secret")

    def _check_change(self, marks: frozenset[bytes]) -> None:
        """Refuse samples that are other ones than before, so few that what changes would show them alone."""
        path = self.folder.path / SHARED
        body = b"".join(sorted(marks))
        before = path.read_bytes() if path.exists() else body
        size = len(next(iter(marks)))
        changed = len(marks ^ {before[place : place + size] for place in range(0, len(before), size)})
        shown = self.client.learner.exposure(lambda _: changed)
        if changed and shown is not None and not shown.allowed and not self.client.policy.accept_exposure:
            raise ConfigError(
                f"{changed:,} samples came, went or changed since the last start, and the difference of two releases "
                f"would show these alone. For so few, {shown.most} numbers are allowed, not {shown.numbers:,}: keep "
                "the samples as they were, change more at a time, or say --accept-exposure"
            )
        if not path.exists() or changed:
            write_atomically(path, body, private=True)

    def restore(self) -> None:
        """Restore the client as it was. Nothing remains of a round that was not kept whole."""
        policy = json.dumps(asdict(self.client.policy), indent=2) + "\n"  # most of it may change between starts
        write_atomically(self.folder.path / "policy.json", policy, private=True)
        if self.client.guard is not None:
            self.client.guard.keep_in(self._ledger)
            if self._restarted:
                self.client.guard.pending.drop()
        if self._path.exists():
            load(self.client, self._path)
        if self.client.guard is not None:
            self.client.guard.pending.resume(self.client.round_number)
        try:
            known = [line for line in self.records.read() if line["round"] <= self.client.round_number]
        except (TypeError, KeyError) as error:
            raise CheckpointError(f"{self.records.path} is damaged: one of its lines is not a record") from error
        self.records.keep_only(known)
        self.others = known[-1].get("others") if known else None

    def keep(self, record: Record) -> None:
        """Keep the client as it is after this round. The record goes first: one without a state is dropped later."""
        self.records.add([asdict(record)])
        save(self.client, self._path)
        self._keep_files()

    def play(self, *, test: bool) -> OwnRecord:
        """Carry out a round, and keep it."""
        client = self.client
        record = play_round(client, test=test)
        if isinstance(client.trouble, Outdated):
            spent = "; the ledger was lost with it, and its ε adds to the new one's" if client.guard else ""
            raise Outdated(
                f"{client.trouble}. Is {client.name} running elsewhere? If its state was lost, --restart withdraws "
                f"what it shared and begins at round 1{spent}"
            )
        if client.method.serve is not None:
            self._count_others()
            record = replace(record, others=self.others)
        if not record.bytes_up and not isinstance(client.trouble, ExchangeError):
            with suppress(ExchangeError):
                self.send_again()
        self.keep(record)
        return record

    def refresh(self) -> None:
        """Take in what the others share now, without a round, and keep the classifier that it makes."""
        client = self.client
        if isinstance(client.exchange, CachingExchange):
            wants = make_wants(client.method, client.policy, client.seed, client.name, client.round_number)
            client.learner.absorb(client.exchange.exchange.collect(wants))
            self._keep_files()

    @property
    def learned(self) -> list[Path]:
        """The files of what was learned, for other programs."""
        return [path for name in LEARNED if (path := self.folder.path / name).exists()]

    def _keep_files(self) -> None:
        for name, body in self.client.learner.files(self.client.round_number).items():
            write_atomically(self.folder.path / name, body, private=True)

    def _count_others(self) -> None:
        """Ask how many others are behind what was learned; while nobody can be asked, it is the last number."""
        if self.client.exchange is None or isinstance(self.client.trouble, ExchangeError):
            return
        if self.client.learner.behind is None:
            self.others = 0
            return
        with suppress(ExchangeError):
            counted = self.client.exchange.others()
            self.others = self.others if counted is None else counted

    def renew(self) -> None:
        """Keep what was shared last from expiring, without a round."""
        if isinstance(self.client.exchange, CachingExchange):
            self.client.exchange.renew()

    def send_again(self) -> None:
        """Share the last release again where the other end has lost it: after an older backup, nobody else would."""
        caching, guard = self.client.exchange, self.client.guard
        if not isinstance(caching, CachingExchange):
            return
        body = caching.last if guard is None else guard.pending.last
        if body and self.client.released and not caching.exchange.holds():
            caching.publish(body)

    def clear(self) -> None:
        """Forget all rounds, and what was not acknowledged. The ledger stays."""
        self._restarted = True
        controls = [self.folder.path / CONTROLS, *self.folder.path.glob(f"*{CONTROL}")]
        for path in (self._path, self._teacher, *self.learned, *controls):
            path.unlink(missing_ok=True)
        self.records.keep_only([])


def read_secret(folder: Path) -> bytes:
    """The secret of a state folder; without one, a new one, which a `State` of the client made with it keeps."""
    path = folder / SECRET
    return path.read_bytes() if path.exists() else os.urandom(SECRET_BYTES)


def save(client: Client, path: Path) -> None:
    """Keep all that the same client, built again, needs to continue."""
    state = client.save()
    write_atomically(path, zlib.crc32(state).to_bytes(4) + state, private=True)


def load(client: Client, path: Path) -> None:
    """Let the client continue from what was kept. Raises CheckpointError if it is damaged, or another's."""
    kept = path.read_bytes()
    if zlib.crc32(kept[4:]).to_bytes(4) != kept[:4]:
        raise CheckpointError(f"{path} is damaged: start again with --restart")
    try:
        client.load(kept[4:])
    except RepshareError:
        raise
    except Exception as error:  # another program may have put anything there
        raise CheckpointError(
            f"{path} is not this client's: {in_one_line(error)}. Put a good copy back, or use --restart"
        ) from error
    if not all(weights.isfinite().all() for weights in client.learner.trained):
        raise CheckpointError(f"{path} has weights that are not finite: put a good copy back, or use --restart")


def make_report(client: Client, record: Record) -> dict[str, Any]:
    """The report of a client on a round, if it makes one: figures about its training, not about its samples."""
    figures = {key: getattr(record, key) for key in _figures(client)}
    finite = {key: value for key, value in figures.items() if isinstance(value, str) or _is_finite(value)}
    if "gap" in finite:
        finite["gap"] = max(finite["gap"], 0.0)  # rounding may take it a little below
    return {**finite, **_other_facts(client)}


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def reported(client: Client) -> list[str]:
    """The names of the figures in this client's report."""
    return [*_figures(client), *_other_facts(client)]


def _figures(client: Client) -> list[str]:
    return ["round", *client.learner.describe().figures]


def _other_facts(client: Client) -> dict[str, Any]:
    """What a report contains beside the figures of a round: the privacy spent, and the model."""
    privacy: dict[str, Any] = {}
    if guard := client.guard:
        mode = f"{guard.mode}, {guard.policy.adjacency}"
        privacy["privacy"] = {"epsilon": guard.spent, "delta": guard.delta, "mode": mode}
    return {**privacy, "model": _name(client)}


def _describe(client: Client, membership: Membership) -> dict[str, Any]:
    """What must be the same for a state to be of use."""
    task = membership.agreed
    return {
        "task": membership.task,
        "client": membership.client,
        "classes": task.classes,
        "dimension": task.dimension,
        "seed": client.seed,
        **client.learner.identity(),
    }


def _refuse_network(path: Path, described: dict[str, Any]) -> None:
    """Refuse the folder of an earlier version, whose clients in a space had a network, too."""
    run = path / "run.json"
    if "model" in described or not run.exists():
        return
    with suppress(ValueError, TypeError):  # a damaged one is refused when it is read as a whole
        if "model" in json.loads(run.read_text()):
            told = f"{WITH_NETWORK} is the last commit that reads it. Choose another --state"
            raise ConfigError(f"{path} is of a version whose clients in a space had a network, too: {told}")


def _name(client: Client) -> str:
    described = client.learner.describe()
    return f"{described.name}, {described.parameters:,} parameters"
