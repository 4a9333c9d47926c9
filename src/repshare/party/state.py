"""A party's rounds, and the folder from which they are resumed after any end."""

import json
import math
import os
import zlib
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from repshare.client import Client, Record, make_wants
from repshare.config import Policy
from repshare.errors import CheckpointError, ConfigError, ExchangeError, Outdated, RepshareError
from repshare.exchange.relay import Membership
from repshare.files import write_atomically
from repshare.imports import in_one_line
from repshare.learner import Learner
from repshare.measures import Measures
from repshare.network import learner as network_learner
from repshare.party.audit import Audit, read_limits
from repshare.privacy.ledger import read_ledger
from repshare.records import Folder
from repshare.space import learner as space_learner

LEDGER, POLICY = "privacy.jsonl", "policy.json"
SHARED = "shared.marks"  # keyed hashes of the samples behind what was shared last
SECRET, SECRET_BYTES = "held-out.secret", 32
CLIENT = "client.state"
LEARNED = (network_learner.FILE, space_learner.FILE)  # a party has one of them
CONTROLS = "controls.jsonl"


@dataclass(frozen=True)
class OwnRecord(Record):
    """A party's account of one round, for itself: also what a test measured beside accuracy."""

    metrics: Measures | None = None
    """Balanced accuracy, AUROC, calibration error, and each class's recall; None without test data."""

    gains: dict[str, Any] | None = None
    """CS: accuracy, balanced accuracy and worst recall on the own samples, each left out in turn, `alone` and
    `together` with the others, when the round began; None where there are no others or more than a thousand samples."""


def play_round(client: Client) -> OwnRecord:
    """Carry out a round, with all measures of a test if there are test data."""
    record = client.round(test=False)
    metrics = None if client.test is None else client.measure()
    accuracy = None if metrics is None else metrics.accuracy
    return OwnRecord(
        **{**vars(record), "test_accuracy": accuracy, "metrics": metrics, "gains": describe_gains(client.learner)}
    )


def describe_gains(learner: Learner) -> dict[str, Any] | None:
    """What a client gains by the others: see `OwnRecord`."""
    if learner.gains is None:
        return None
    names, told = learner.class_names or list(map(str, range(learner.classes))), {}
    for title, score in zip(("together", "alone"), learner.gains, strict=True):
        recalls = score.recalls
        worst = min(recalls, key=lambda label: recalls[label])
        named = names[worst] if len(recalls) > 1 else None  # a single class is its accuracy
        balanced = sum(recalls.values()) / len(recalls)
        told[title] = {"accuracy": score.accuracy, "balanced": balanced, "worst": recalls[worst], "class": named}
    return told


class State:
    """A client's folder: run.json describes the client, records.jsonl its rounds, client.state the last one.

    model.safetensors has the model's weights, by their names in its state_dict; in a space, classifier.safetensors is
    the classifier in hand, and held-out.secret decides which samples are held out.
    With controls (see `controls`), controls.jsonl has their rounds.
    audit.jsonl has a line for each release, written before it leaves; it is never reset.
    privacy.jsonl is the ledger of what its releases have cost; it is never reset. privacy.release is the
    last one that was charged, until it is acknowledged. Only the owner may read any of this.
    """

    def __init__(self, path: Path, client: Client, membership: Membership) -> None:
        self.client, self.membership = client, membership
        self._path, client.teacher = path / CLIENT, path / "teacher"
        self._ledger, self._restarted = path / LEDGER, False
        self.audit = Audit(path, membership.task, read_limits())
        client.before_publish = lambda body: self.audit.note(client, body)
        self.others: int | None = None  # behind what was learned, as far as known
        self.folder = Folder(path, _describe(client, membership), resume=True, option="--state", private=True)
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
        write_atomically(self.folder.path / POLICY, policy, private=True)
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

    def play(self) -> OwnRecord:
        """Carry out a round, and keep it."""
        client = self.client
        record = play_round(client)
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
        if client.exchange is not None:
            wants = make_wants(client.method, client.policy, client.seed, client.name, client.round_number)
            client.learner.absorb(client.exchange.collect(wants))
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
        if self.client.exchange is not None and self.client.published is not None:
            self.client.exchange.publish(self.client.published)

    def send_again(self) -> None:
        """Share the last release again where the other end has lost it: after an older backup, nobody else would."""
        client = self.client
        body = client.published if client.guard is None else client.guard.pending.last
        if client.exchange is not None and body and client.released and not client.exchange.holds():
            client.exchange.publish(body)

    def clear(self) -> None:
        """Forget all rounds, and what was not acknowledged. The ledger stays."""
        self._restarted = True
        for path in (self._path, self.folder.path / "teacher", *self.learned, self.folder.path / CONTROLS):
            path.unlink(missing_ok=True)
        self.records.keep_only([])


def read_secret(folder: Path) -> bytes:
    """The secret of a state folder; without one, a new one, which a `State` of the client made with it keeps."""
    path = folder / SECRET
    return path.read_bytes() if path.exists() else os.urandom(SECRET_BYTES)


def read_policy(folder: Path) -> Policy:
    """The policy of the last start of a state folder."""
    path = folder / POLICY
    if not path.exists():
        raise ConfigError(f"{folder} has made no part: repshare part comes first")
    kept: dict[str, Any] = json.loads(path.read_text())
    kept |= {name: tuple(value) for name, value in kept.items() if isinstance(value, list)}
    return Policy(**kept)


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


def _name(client: Client) -> str:
    described = client.learner.describe()
    return f"{described.name}, {described.parameters:,} parameters"
