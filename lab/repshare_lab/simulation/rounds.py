"""Algorithm 1 over many clients: those present download, train and upload; then the server aggregates."""

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np

from repshare.board import Wants
from repshare.client import Record, make_wants
from repshare.errors import Refused
from repshare.files import write_atomically
from repshare.measures import Score
from repshare.sharing import wire
from repshare_lab.config import ResolvedSetting, Run, Setting
from repshare_lab.data import Splits
from repshare_lab.methods import find_method
from repshare_lab.simulation.checkpoint import Checkpoint
from repshare_lab.simulation.plan import choose_noisy, make_plan, open_server, resolve
from repshare_lab.simulation.pools import Workers
from repshare_lab.simulation.schedule import attend, test_is_due
from repshare_lab.threads import one_thread

CHECKPOINT_SECONDS = 60.0
KEPT_AT_ONCE = 100  # models in memory while they are written
PLAYED_AT_ONCE = 5000  # clients whose releases are in memory until a server has them
Step = TypeVar("Step")


@contextmanager
def following(steps: Generator[Step]) -> Iterator[Generator[Step]]:
    """Close the steps when the block ends. An error in it is thrown into them: what follows the last is not whole."""
    try:
        yield steps
    except GeneratorExit:  # the caller has stopped
        steps.close()
        raise
    except BaseException as error:
        steps.throw(error)
        raise
    steps.close()


def simulate(
    run: Run[Setting],
    splits: Splits,
    workers: Workers,
    checkpoint: Checkpoint | None = None,
    *,
    checkpoint_every: int | None = None,
    models: Path | None = None,
) -> Generator[list[Record]]:
    """Carry the run out; yield after each round a record for each client that took part.

    Values that its setting leaves open are filled in, as `resolve` does.

    With a checkpoint, the run resumes after the round in which it was taken, and takes one when the caller stops
    early. A checkpoint is taken when the next round is asked for: what the caller does with a round's records is over
    by then. A caller that can fail before should be `following`: then none is taken.

    Args:
        run: The method, the seed and the setting.
        splits: The data.
        workers: What carries the clients' rounds out: `Inline()` or `Processes()`.
        checkpoint: Where to keep the state, so that the run can be interrupted. Default: nowhere.
        checkpoint_every: Number of rounds between checkpoints. Default: as many as take about a minute.
        models: Folder for the final models, as they were tested last.
    """
    simulation = Simulation(run, splits, workers, checkpoint)
    last, saved = simulation.run.setting.rounds, time.monotonic()
    rounds = attend(simulation.attended, run.seed, simulation.plan.clients)
    for present in islice(rounds, simulation.done, last):
        try:
            yield simulation.play(present)
        except GeneratorExit:
            simulation.save()
            raise
        due = time.monotonic() > saved + CHECKPOINT_SECONDS
        if checkpoint_every is not None:
            due = simulation.done % checkpoint_every == 0
        if due and simulation.done < last:
            simulation.save()
            saved = time.monotonic()
    if models is not None:
        simulation.keep_models(models)


class Simulation:
    """A run under way: the server here, the clients in workers."""

    def __init__(self, wanted: Run[Setting], splits: Splits, workers: Workers, checkpoint: Checkpoint | None) -> None:
        run = Run(wanted.method, wanted.seed, resolve(wanted.setting, splits))
        self.run, self.workers, self.checkpoint = run, workers, checkpoint
        self.method, self.plan = find_method(run.method, run.setting), make_plan(run, splits)
        self.server, self.policy = open_server(self.plan), self.method.adapt(run.setting.policy)
        # One client with everyone's data is always there: it is what the others are measured against.
        always = ResolvedSetting(samples=run.setting.samples, rounds=run.setting.rounds)
        self.attended = always if self.method.models == "pooled" else run.setting
        self.done = 0
        if checkpoint is None:
            workers.begin(self.plan, None, {})
        else:
            self.done, server, clients = checkpoint.manifest
            if server is not None:
                self._load(checkpoint.states.read("server", server))
            workers.begin(self.plan, checkpoint.folder, clients)

    @one_thread()
    def play(self, present: tuple[int, ...]) -> list[Record]:
        """Carry out the next round of these clients."""
        number = self.done + 1
        teachers = self._teach({client: self._wants(client, number) for client in present})
        records = list[Record]()
        for start in range(0, len(present), PLAYED_AT_ONCE):
            records += self._play(number, {each: teachers[each] for each in present[start:][:PLAYED_AT_ONCE]})
        self.done = number
        if test_is_due(self.run.setting, number):
            records = self._test(present, records)
        return records

    def _play(self, number: int, teachers: Mapping[int, bytes | None]) -> list[Record]:
        """Carry out this round of these clients, and hand over what they share."""
        report = self.workers.round(number, teachers)
        if self.server is not None:
            for part in report.sums:
                self.server.accept_sum(part)
        self._accept(report.releases)
        return [report.records[client] for client in teachers]

    def save(self) -> None:
        """Take a checkpoint, if there is a place for one."""
        if self.checkpoint is not None:
            server = b"" if self.server is None else self.server.save()
            self.checkpoint.commit(self.done, wire.encode_items({"": server}), self.workers.save())

    @one_thread()
    def keep_models(self, folder: Path) -> None:
        """Write each client's model into the folder; where all have the same, one."""
        folder.mkdir(parents=True, exist_ok=True)
        several = self.method.models not in ("one", "pooled")
        clients = range(self.plan.clients if several else 1)
        for start in range(0, len(clients), KEPT_AT_ONCE):
            bodies = self._servers_part(clients[start : start + KEPT_AT_ONCE])
            for client, files in self.workers.models(bodies).items():
                name = self.plan.name(client).replace(" ", "-") if several else "model"
                for suffix, content in files.items():
                    write_atomically(folder / f"{name}{suffix}", content)

    def _servers_part(self, clients: Sequence[int]) -> dict[int, bytes | None]:
        """Return the server's part of what each of these clients is tested with, if it has any."""
        if self.server is None or self.method.models not in ("one", "part"):
            return dict.fromkeys(clients)
        one = self.method.models == "one"
        return self._teach({client: Wants(0, 0) if one else self._wants(client, 0) for client in clients})

    def _load(self, saved: bytes) -> None:
        if self.server is not None:
            self.server.load(wire.decode_items(saved)[""])

    def _teach(self, wanted: Mapping[int, Wants]) -> dict[int, bytes | None]:
        """The server's bytes for each client."""
        server = self.server
        if server is None:
            return dict.fromkeys(wanted)
        return {client: server.teach(self.plan.name(client), wants) for client, wants in wanted.items()}

    def _wants(self, client: int, number: int) -> Wants:
        return make_wants(self.method, self.policy, self.run.seed, self.plan.name(client), number)

    def _accept(self, releases: Mapping[int, bytes]) -> None:
        """Hand these over, in their order."""
        for client, release in releases.items():
            name = self.plan.name(client)
            try:
                if self.server is not None:
                    self.server.accept(name, release)
            except Refused as error:
                raise Refused(f"round {self.done + 1}, {name}: {error}") from error

    def _test(self, present: tuple[int, ...], records: list[Record]) -> list[Record]:
        if self.method.models == "one" and self.server is not None and present:
            # All clients will continue from the average: test that, once.
            client = present[0]
            score = self.workers.evaluate(self._servers_part([client]))[client]
            scores = dict.fromkeys(present, score)
        else:
            scores = self.workers.evaluate(self._servers_part(present))
        noisy = choose_noisy(self.run.setting, self.run.seed, self.plan.clients)
        return [
            record if client in noisy else self._note(client, scores[client], record)
            for client, record in zip(present, records, strict=True)
        ]

    def _note(self, client: int, score: Score, record: Record) -> Record:
        labels = self.plan.train_labels[self.plan.part(client)]
        counts = np.bincount(labels, minlength=self.plan.classes)
        return replace(
            record,
            test_accuracy=score.accuracy,
            test_own=score.weighted(counts),
            test_unseen=score.weighted(score.totals * (counts == 0)),
        )
