"""What do many clients of CS in one process cost, together and one after the other? Writes benchmarks/crowd.md.

MNIST, six samples a client, one process and one thread, processor time. Together: the simulator, in which all clients
of a round read one total, and the board teaches and accepts in batches. One after the other: the same clients, each
with the board by itself, so that each reads a total of its own. Both take turns, round by round.

    python benchmarks/crowd.py                           # 1,000 clients, 20 rounds: some minutes
    python benchmarks/crowd.py --clients 100 --rounds 3  # a look
"""

import argparse
import resource
import statistics
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch

from repshare import Board, Client, LocalExchange
from repshare.methods import CS
from repshare.samples import Samples
from repshare_lab.config import ResolvedSetting, Run, Setting
from repshare_lab.data import Splits, load
from repshare_lab.data.arrays import take
from repshare_lab.simulation import Inline, resolve, simulate
from repshare_lab.simulation.plan import as_tensors, build_network, make_agreement, make_plan

EACH = 6  # samples of a client
ALONE = 200  # clients that go one after the other, at most: the cost of a round is that of a client, times clients
TEXT = """# Many clients of CS in one process

`python benchmarks/crowd.py`: MNIST, {clients:,} clients of {each} samples, {rounds} rounds of CS, all tested after the
last one; one process and one thread, processor seconds. *Together* is the simulator. *One after the other* are the same
clients ({alone} of them), each with the same kind of board by itself, and not tested. Both take turns; the figures are
medians over rounds, and least to most. Other work ran on the machine, so read the ratio first.

| a client's round, ms | median | least to most |
|---|---:|---:|
| together | {fast:.2f} | {fast_range} |
| one after the other | {slow:.2f} | {slow_range} |
| ratio | × {ratio:.1f} | {ratio_range} |

Together, all {rounds} rounds of {clients:,} clients: **{total:.1f} core-seconds**, with the test. Start-up
apart: {start:.1f} s, for clients, their features ({clients:,} batches of {each} images) and their votes on ρ; the test
images' features are not counted. Accuracy after the last round: {accuracy:.1%}. Peak memory of both: {memory:.2f} GB.
"""


class Turn(NamedTuple):
    """Processor seconds of a round for each client."""

    seconds: float
    accuracy: float | None = None


def play_together(setting: ResolvedSetting, splits: Splits) -> Iterator[Turn]:
    """Yield after each round of the simulator."""
    with Inline(setting.clients) as workers:
        few = replace(setting, clients=1, rounds=1, eval_every=1)
        list(simulate(Run("CS", 0, replace(few, samples=EACH)), splits, workers))  # the test images' features, first
        steps = simulate(Run("CS", 0, setting), splits, workers)
        while True:
            started = time.process_time()
            records = next(steps, None)
            if records is None:
                return
            yield Turn((time.process_time() - started) / setting.clients, records[-1].test_accuracy)


def play_in_turn(setting: ResolvedSetting, splits: Splits) -> Iterator[Turn]:
    """Yield after each round of the same clients, each of which collects, learns and publishes by itself."""
    plan = make_plan(Run("CS", 0, setting), splits)
    common = make_agreement(plan.run, take(plan.train_inputs, slice(1)))
    board = Board(common.task(plan.classes))
    train = as_tensors(plan.train_inputs), torch.from_numpy(plan.train_labels)
    network, clients = build_network(plan, plan.model(0), seed=0), list[Client]()
    for index in range(min(setting.clients, ALONE)):
        samples, name = Samples(train, rows=torch.from_numpy(plan.part(index))), plan.name(index)
        given = {"name": name, "policy": setting.policy, "method": CS, "common": common}
        clients.append(Client(network, samples, LocalExchange(board, name), **given))  # type: ignore[arg-type]
    while True:
        started = time.process_time()
        for client in clients:
            client.round(test=False)
        yield Turn((time.process_time() - started) / len(clients))


def spread(values: list[float], digits: int = 2) -> str:
    """Return the least and the largest."""
    return f"{min(values):.{digits}f}–{max(values):.{digits}f}"


def main() -> None:
    """Measure, print, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    splits = load("mnist")
    setting = resolve(Setting(clients=options.clients, samples=EACH * options.clients, rounds=options.rounds), splits)
    setting = replace(setting, eval_every=options.rounds)
    turns = zip(play_together(setting, splits), play_in_turn(setting, splits), strict=False)
    both = list(islice(turns, options.rounds))
    fast, slow = ([1000 * turn.seconds for turn in turns] for turns in zip(*both, strict=True))
    usual = statistics.median(fast[1:])
    ratios = [b / a for a, b in zip(fast[1:], slow[1:], strict=True)]
    text = TEXT.format(
        clients=options.clients, rounds=options.rounds, each=EACH, alone=min(ALONE, options.clients),
        fast=usual, fast_range=spread(fast[1:]), slow=statistics.median(slow[1:]), slow_range=spread(slow[1:]),
        ratio=statistics.median(ratios), ratio_range=spread(ratios, 1),
        total=(sum(fast[1:]) + usual) / 1000 * options.clients,
        start=(fast[0] - usual) / 1000 * options.clients,
        accuracy=both[-1][0].accuracy, memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6,
    )  # fmt: skip
    print(text)
    if options.clients == parser.get_default("clients") and options.rounds == parser.get_default("rounds"):
        (Path(__file__).parent / "crowd.md").write_text(text)


if __name__ == "__main__":
    main()
