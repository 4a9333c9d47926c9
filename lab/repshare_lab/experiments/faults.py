"""Faulty clients of a common classifier, with and without votes on their parts: who is hurt, who is named.

Real clients at a real board, in order (each once in a round) or in turns (one at random).
"""

import statistics
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from repshare.board import Board, Wants
from repshare.client import Client
from repshare.errors import Refused
from repshare.exchange import Exchange, LocalExchange
from repshare.randomness import numpy_stream
from repshare.records import Line
from repshare.samples import Samples
from repshare.sharing import wire
from repshare.sharing.representations import Release
from repshare_lab.config import ResolvedSetting, Setting
from repshare_lab.data import Splits
from repshare_lab.data.arrays import take
from repshare_lab.experiments.experiment import Cell, Experiment, Row, make_cell
from repshare_lab.results.plots import panels, save, tidy
from repshare_lab.results.records import find, group
from repshare_lab.results.terminal import markdown
from repshare_lab.simulation.plan import Plan, as_tensors, make_agreement, make_plan
from repshare_lab.simulation.shared_space import SharedAgreement
from repshare_lab.threads import one_thread

CLIENTS, ROUNDS = 10, 20
FAULTY = (1, 2, 3, 4)
PACES = ("in order", "in turns")
DEALT: dict[str, dict[str, Any]] = {"uniform": {}, "Dirichlet 0.3": {"partition": "dirichlet", "alpha": 0.3}}
DEFENCES = ("votes", "no votes")
NOBODY, ALONE = "none", "alone"
LONGEST, TURNED = 4.0, 0.05  # times √d: of random rows, and of the classifier turned round

Change = Callable[[Release, "Faulty"], Release]


class Kind(NamedTuple):
    """What is wrong with a client: with its samples, or with what it releases."""

    spoil: Callable[[Any, NDArray[np.int64], np.random.Generator], tuple[Any, NDArray[np.int64]]] | None = None
    change: Change | None = None
    returns: bool = False
    """Whether it withdraws what it has shared, and comes again."""


class Faulty(Exchange):
    """A faulty client's connection to a board in this process."""

    def __init__(self, board: Board, name: str, kind: Kind, dimension: int, rng: np.random.Generator) -> None:
        self.board, self.kind, self.dimension, self.rng = board, kind, dimension, rng
        self.name, self.total = name, np.zeros((0, dimension))

    def publish(self, body: bytes) -> None:
        """Change the release, and hand it over."""
        release = wire.decode_release(body)
        if self.kind.returns and release.round > 1:
            self.board.withdraw(self.name)
        if self.kind.change is not None:
            body = wire.encode_release(self.kind.change(release, self))
        self.board.accept(self.name, body)

    def collect(self, wants: Wants) -> bytes:
        """Ask for a teacher, and remember it."""
        body = self.board.teach(self.name, wants)
        rows = wire.decode_teacher(body).means.vectors
        if len(rows):
            weights, centre = rows[:-1, self.dimension, None], rows[-1, : self.dimension]
            self.total = rows[:-1, : self.dimension] - weights * centre
        return body

    def behind(self, own: int) -> float:
        """Return infinity: what is published stays in this process."""
        return np.inf


def _permute(inputs: Any, labels: NDArray[np.int64], rng: np.random.Generator) -> tuple[Any, NDArray[np.int64]]:
    order = rng.permutation(int(labels.max()) + 1)
    renamed = np.empty_like(order)
    renamed[order] = np.roll(order, 1)
    return inputs, renamed[labels]


def _exchange(inputs: Any, labels: NDArray[np.int64], rng: np.random.Generator) -> tuple[Any, NDArray[np.int64]]:
    one, other = (4, 9) if labels.max() >= 9 else (0, 1)
    return inputs, np.where(labels == one, other, np.where(labels == other, one, labels))


def _noise(inputs: Any, labels: NDArray[np.int64], rng: np.random.Generator) -> tuple[Any, NDArray[np.int64]]:
    return rng.standard_normal(inputs.shape, dtype=np.float32), labels


def _count(times: int) -> Change:
    def change(release: Release, _: Faulty) -> Release:
        return release._replace(means=release.means._replace(counts=release.means.counts * times))

    return change


def _rows(make: Callable[[NDArray[np.float32], Faulty], Any]) -> Change:
    """Change the rows of the classes."""

    def change(release: Release, by: Faulty) -> Release:
        vectors = release.means.vectors.copy()
        vectors[:-1, : by.dimension + 1] = make(vectors[:-1, : by.dimension + 1], by)
        return release._replace(means=release.means._replace(vectors=vectors))

    return change


def _longest(rows: NDArray[np.float32], by: Faulty) -> Any:
    drawn = by.rng.standard_normal(rows.shape)
    drawn[:, -1] = 0.0
    return LONGEST * np.sqrt(by.dimension) * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def _turn(rows: NDArray[np.float32], by: Faulty) -> Any:
    if not by.total.any():
        return rows
    longest = np.linalg.norm(by.total, axis=1).max()
    return np.pad(-by.total * TURNED * np.sqrt(by.dimension) / longest, ((0, 0), (0, 1)))


KINDS: dict[str, Kind] = {
    "labels permuted": Kind(_permute),
    "two classes exchanged": Kind(_exchange),
    "fed noise": Kind(_noise),
    "constant inputs": Kind(lambda inputs, labels, _: (np.repeat(inputs[:1], len(inputs), axis=0), labels)),
    "inputs x 10": Kind(lambda inputs, labels, _: (inputs * 10, labels)),
    "count x 10": Kind(change=_count(10)),
    "count x 1,000": Kind(change=_count(1000)),
    "permuted, count x 10": Kind(_permute, _count(10)),
    "longest rows": Kind(change=_rows(_longest)),
    "turned round": Kind(change=_rows(_turn)),
    "sign changed": Kind(change=_rows(lambda rows, _: -rows)),
    "withdraws and returns": Kind(returns=True),
}


def plan(setting: ResolvedSetting, seeds: int) -> list[Cell]:
    """Plan everything with everything; seed by seed, so that an interrupted study is even."""
    cells = []
    for seed in range(seeds):
        for dealt, values in DEALT.items():
            usual = replace(setting, clients=CLIENTS, **values)
            key = {"dealt": dealt, "seed": seed}
            cells.append(make_cell({"kind": ALONE, "faulty": 0, **key}, Row("CA", "CA"), usual))
            for pace in PACES:
                for kind in (NOBODY, *KINDS):
                    for faulty in FAULTY if kind != NOBODY else (0,):
                        for defence in DEFENCES:
                            told = {"kind": kind, "faulty": faulty, **key, "pace": pace, "defence": defence}
                            cells.append(make_cell(told, Row("CS", "CS"), usual))
    return cells


class Scene(NamedTuple):
    """What runs of one seed and split have in common: honest clients before their first round, made once."""

    agreement: SharedAgreement
    plan: Plan
    clients: list[Client]
    begun: list[bytes]  # each client's state
    test: Samples


_scenes: dict[str, Scene] = {}  # the last one


def set_up(cell: Cell, splits: Splits) -> Scene:
    """Make the clients of a cell's seed and split, or put those of the last cell back to their beginning."""
    setting = cell.run.setting
    key = repr((setting.dataset, setting.samples, setting.partition, setting.alpha, setting.space, cell.run.seed))
    if key not in _scenes:
        made = make_plan(cell.run, splits)
        agreement = SharedAgreement(*make_agreement(cell.run, take(made.train_inputs, slice(1))))
        agreement.test = test = Samples((made.test_inputs, made.test_labels))
        scene = Scene(agreement, made, [], [], test)
        for index in range(made.clients):
            rows = made.part(index)
            inputs, labels = take(made.train_inputs, rows), made.train_labels[rows]
            scene.clients.append(make_client(cell, scene, index, inputs, labels))
        scene.begun.extend(client.save() for client in scene.clients)
        _scenes.clear()
        _scenes[key] = scene
    scene = _scenes[key]
    for client, begun in zip(scene.clients, scene.begun, strict=True):
        client.load(begun)
        client.trouble = None
    return scene


def make_client(cell: Cell, scene: Scene, index: int, inputs: Any, labels: NDArray[np.int64]) -> Client:
    """Make one client of these samples, without an exchange."""
    return Client(
        data=Samples((as_tensors(inputs, copied=True), labels)), name=scene.plan.name(index), seed=cell.run.seed,
        policy=cell.run.setting.policy, space=scene.agreement, classes=scene.plan.classes, test=scene.test,
    )  # fmt: skip


@one_thread()
def carry_out(cell: Cell, splits: Splits) -> list[Line]:
    """Let the clients learn; return the accuracy of an honest one, who was named when, and which honest ones were."""
    scene, seed = set_up(cell, splits), cell.run.seed
    agreement, made, clients = scene.agreement, scene.plan, list(scene.clients)
    board = Board(replace(agreement.task(made.classes), compared=cell.key.get("defence") == DEFENCES[0]))
    bad = set(numpy_stream(seed, "faulty").permutation(made.clients)[: cell.key["faulty"]].tolist())
    exchanges = dict[int, Faulty]()
    for index, client in enumerate(clients):
        if index not in bad:
            client.exchange = None if cell.key["kind"] == ALONE else LocalExchange(board, client.name)
            continue
        kind, rows = KINDS[cell.key["kind"]], made.part(index)
        if kind.spoil is not None:
            inputs, labels = take(made.train_inputs, rows), made.train_labels[rows]
            clients[index] = make_client(cell, scene, index, *kind.spoil(inputs, labels, numpy_stream(seed, "spoilt")))
        rng = numpy_stream(seed, "lies", index)
        faulty = exchanges[index] = Faulty(board, client.name, kind, agreement.space.dimension, rng)
        clients[index].exchange = faulty
    honest = [client for index, client in enumerate(clients) if index not in bad]
    if cell.key["kind"] == ALONE:
        for client in honest:
            client.round(test=False)
        accuracies = [client.evaluate() for client in honest]
        return [{"accuracy": 100 * statistics.fmean(accuracies)}]
    order = _order(cell, made.clients, numpy_stream(seed, "turns"))
    seen, named, refused = list[float](), dict[int, int](), set[str]()
    for number, step in enumerate(order, 1):
        for index in step:
            clients[index].round(test=False)
            if index not in bad and isinstance(clients[index].trouble, Refused):
                refused.add(clients[index].name)
        told = {each.name for each in board.named()}
        refused |= told & {client.name for client in honest}
        for index, exchange in exchanges.items():
            if exchange.name in told or isinstance(clients[index].trouble, Refused):
                named.setdefault(index, number)
        if number % (made.clients if len(step) == 1 else 1) == 0:
            honest[0].learner.absorb(board.teach("a test", Wants(0, 0)))
            seen.append(100 * honest[0].evaluate())
    late = seen[len(seen) // 3 :]
    after = max(named.values()) / len(order) * ROUNDS if len(named) == len(bad) and bad else None
    found = {"named": len(named), "named_after": after, "honest_refused": len(refused)}
    return [{"accuracy": statistics.fmean(late), "worst": min(late), "last": seen[-1], **found}]


def _order(cell: Cell, clients: int, rng: np.random.Generator) -> list[list[int]]:
    """The clients that take part in each round or turn."""
    if cell.key["pace"] == PACES[0]:
        return [list(range(clients))] * ROUNDS
    return [[each] for each in rng.integers(clients, size=ROUNDS * clients).tolist()]


def write_table(lines: Sequence[Line], dataset: str) -> str:
    """Write what is known of each kind and number of faulty clients."""
    text = (
        f"{dataset}, {CLIENTS} clients: accuracy of an honest one [%], mean of the last two thirds of {ROUNDS} rounds"
        " / worst round of these,\nover the seeds that are there; ✗: rounds until all faulty ones are named, where they"
        " are in all seeds.\n\n"
    )
    for dealt in DEALT:
        here = [line for line in lines if line["dealt"] == dealt]
        if alone := find(here, "accuracy", kind=ALONE):
            text += f"{dealt}: alone {statistics.fmean(alone):.1f}.\n\n"
        columns = [(pace, defence) for pace in PACES for defence in DEFENCES]
        rows = []
        for kind in (NOBODY, *KINDS):
            for faulty in (0, *FAULTY):
                cells = [_entry(here, kind, faulty, pace, defence) for pace, defence in columns]
                if any(cell != "–" for cell in cells):
                    rows.append([f"{faulty}: {kind}" if faulty else kind, *cells])
        text += markdown(["<faulty", *(f"{pace}, {defence}" for pace, defence in columns)], rows) + "\n"
    voted = [line for line in lines if line.get("defence") == DEFENCES[0]]
    for title, wanted in (("nobody faulty", 0), ("somebody faulty", None)):
        runs = [line for line in voted if (line["faulty"] == 0) == (wanted == 0)]
        hurt = sum(line["honest_refused"] for line in runs)
        if runs:
            text += f"- {title}: {len(runs)} runs with votes, in which honest clients were refused {hurt} times.\n"
    return text


def _entry(lines: Sequence[Line], kind: str, faulty: int, pace: str, defence: str) -> str:
    wanted = {"kind": kind, "faulty": faulty, "pace": pace, "defence": defence}
    if not (found := find(lines, "accuracy", **wanted)):
        return "–"
    told = f"{statistics.fmean(found):.1f} / {min(find(lines, 'worst', **wanted)):.1f}"
    after = find(lines, "named_after", **wanted)
    return f"{told} ✗ {max(after):.0f}" if defence == DEFENCES[0] and len(after) == len(found) else told


def show(lines: Sequence[Line], folder: Path, setting: Setting) -> list[Path]:
    """Draw what is lost with one faulty client, with votes and without; write the table."""
    figure, systems = panels(11, 5, 1, len(DEALT), sharey=True)
    for axes, (dealt, here) in zip(systems, group(lines, "dealt").items(), strict=False):
        for at, defence in enumerate(DEFENCES):
            values = [find(here, "accuracy", kind=kind, faulty=1, defence=defence) for kind in KINDS]
            heights = [min(each) if each else 0.0 for each in values]
            axes.barh(np.arange(len(KINDS)) + 0.4 * at, heights, 0.4, label=defence)
        tidy(axes, f"{setting.dataset}, {dealt}: one faulty client of ten", "", "")
        axes.set_axisbelow(True)
        axes.set_yticks(np.arange(len(KINDS)) + 0.2, KINDS)
        axes.set_xlabel("accuracy of an honest client [%], the least of paces and seeds")
    figure.legend(*systems[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    return save(figure, folder, write_table(lines, setting.dataset))


FAULTS = Experiment("faults", plan, show, seeds=5, tests=2000, carry_out=carry_out)
