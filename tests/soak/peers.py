"""`python -m soak.peers`: five processes without a server; one is killed, one cut off. Writes lab/notebook/five-peers.md."""

import json
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from repshare.cli.party.client import WorkOptions, make_client
from repshare.config import Policy
from soak.five import DOOR, NETWORKS, SEED
from support.network_namespaces import make_island
from support.peer_processes import Crew
from support.processes import eventually
from support.redis_servers import find_port

PAGE = Path(__file__).parents[2] / "lab/notebook/five-peers.md"
FIVE = Path(__file__).with_name("five.py")
PATIENCE = 1800
CALM, END, EVERY = 100, 130, 10  # rounds: until the first fault, until the comparison ends, between tests
OPTIONS = ("--m-down", "4", "--pace", "0.7", "--eval-every", str(EVERY))

HEAD = f"""# Five peers, five kinds of network, no server

`cd tests && python -m soak.peers SEED…`: MNIST, 120 samples each, d' = 84, all on one machine, M↓ = 4, timeout 2 s.
*Alone* is the same network with the same starting weights, samples and batches, and nobody to learn from. Accuracy
in % on 2,000 test images. Nothing disturbs the first {CALM} rounds. Then, at once, dan is killed (SIGKILL) and eva's
cable is pulled (a network namespace of its own, whose link is set down). When the other three have had 15 more rounds,
the cable is mended and dan started again. At round {END} of the slowest, cid, dan and eva are killed; ada and bea go
on, the two of them. The run checks itself and writes this page only if all of that came out.

The five begin together and take a round in 0.7 seconds, so that nobody is far ahead of the others. The machine was busy
with other work: the times are upper bounds.
"""


def collaborate(folder, seed):
    """One run: accuracies by party and round, and what the faults did."""
    os.environ.pop(DOOR, None)
    os.environ[SEED] = str(seed)
    alone = {name: learn_alone(name, seed) for name in NETWORKS}
    os.environ[DOOR] = str(folder / "door")
    (folder / "door").mkdir()
    crew = Crew(folder, {name: f"{FIVE}:{name}" for name in NETWORKS})
    with make_island() as island:
        assert island.prefix, "this run needs a network namespace: be root, with iproute2"
        try:
            faults = disturb(crew, island, seed)
        finally:
            crew.stop()
    together = {name: accuracies(crew, name) for name in NETWORKS}
    for mark in (CALM, END):
        won = average(together, mark) - average(alone, mark)
        assert won > 0, f"together is not better at round {mark}: {won}"
    return alone, together, faults


def disturb(crew, island, seed):
    """The faults, in turn; what was measured."""
    options = (*OPTIONS, "--seed", str(seed))
    places = {name: f"tcp/127.0.0.1:{find_port()}" for name in NETWORKS}
    places["ada"] = f"tcp/{island.here}:{find_port()}"
    crew.launch("ada", *options, listen=places["ada"], places=[])
    for name, other in (("bea", "ada"), ("cid", "ada"), ("dan", "bea")):
        crew.launch(name, *options, listen=places[name], places=[places[other]])
    eva = crew.launch("eva", *options, listen=island.inside, places=[places["ada"]], prefix=island.prefix)
    others = ("ada", "bea", "cid")
    reach(crew, NETWORKS, CALM)
    marks = {name: len(crew.rounds(name)) for name in NETWORKS}
    crew.processes["dan"].stop(signal.SIGKILL)
    island.cut(eva)
    crew.go_on(*others, rounds=15)
    cut = {name: len(crew.rounds(name)) for name in NETWORKS}
    assert cut["eva"] > marks["eva"] + 1  # she goes on training
    assert not crew.taught("eva", marks["eva"] + 1)  # by herself
    island.mend(eva)
    mended = time.monotonic()
    eventually(lambda: crew.taught("eva", cut["eva"]), "eva is back", PATIENCE)
    back = time.monotonic() - mended
    crew.start("dan", *options, connect=["cid"])
    crew.go_on("dan", "eva", *others)
    reach(crew, NETWORKS, END)
    for name in ("cid", "dan", "eva"):
        crew.processes[name].stop(signal.SIGKILL)
    crew.go_on("ada", "bea", rounds=10)
    seconds = {name: [line["seconds"] for line in journal(crew, name)] for name in others}
    calm = [each for name in others for each in seconds[name][10 : marks[name]]]
    during = [each for name in others for each in seconds[name][marks[name] : cut[name]]]
    return {
        "rounds of the other three meanwhile": sum(cut[name] - marks[name] for name in others),
        "of them with nobody to learn from": sum(
            not line["bytes_down"] for name in others for line in crew.rounds(name)[marks[name] : cut[name]]
        ),
        "their longest round before [s]": round(max(calm), 1),
        "their longest round meanwhile [s]": round(max(during), 1),
        "rounds that eva trained by herself": cut["eva"] - marks["eva"],
        "until eva learnt from others again [s]": round(back, 1),
        "rounds of dan's that were kept, of those he had": f"{kept(crew)} of {marks['dan']}",
        "rounds of ada's and bea's, the two of them": "10 each",
    }


def kept(crew):
    """Rounds that dan did not do again after he was killed."""
    said = [line for line in (crew.folder / "dan.out").read_text().splitlines() if "resuming after round" in line]
    return int(said[-1].partition("resuming after round ")[2].partition(";")[0])


def reach(crew, names, count):
    """Wait until each has had so many rounds."""
    for name in names:
        eventually(lambda name=name: len(crew.rounds(name)) >= count, f"{name} reaches round {count}", PATIENCE)


def journal(crew, name):
    path = crew.folder / f"repshare-task-{name}/records.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines(keepends=True) if line.endswith("\n")]


def accuracies(crew, name):
    """Test accuracy by round, where there was a test [%]."""
    return {
        line["round"]: 100 * line["test_accuracy"] for line in crew.rounds(name) if line["test_accuracy"] is not None
    }


def learn_alone(name, seed):
    client = make_client(f"{FIVE}:{name}", name, WorkOptions(seed=seed), Policy(lambda_kd=0.0, lambda_disc=0.0))
    tested = (record for record in client.rounds(END, eval_every=EVERY) if record.test_accuracy is not None)
    return {record.round: 100 * record.test_accuracy for record in tested}


def average(accuracies, mark):
    return statistics.fmean(each[mark] for each in accuracies.values())


def summarise(runs):
    """All seeds in a table: means over the five, and over seeds."""
    rows = [[average(each, mark) for mark in (CALM, END) for each in run] for run in runs.values()]
    columns = list(zip(*rows, strict=True))
    marks = " | ".join(f"round {mark}, alone | together" for mark in (CALM, END))
    lines = [f"| seed | {marks} |", "|---|" + "---:|" * len(columns)]
    lines += [
        f"| {seed} | " + " | ".join(f"{each:.1f}" for each in row) + " |" for seed, row in zip(runs, rows, strict=True)
    ]
    if len(rows) > 1:
        cells = (f"**{statistics.fmean(column):.1f} ± {statistics.stdev(column):.1f}**" for column in columns)
        lines.append("| **mean ± std** | " + " | ".join(cells) + " |")
    return "\n".join([*lines, ""])


def show(seed, alone, together, faults):
    """A run as a section."""
    marks = (CALM, END)
    rows = [
        f"| {name} | {kind} | "
        + " | ".join(f"{alone[name][mark]:.1f} | {together[name][mark]:.1f}" for mark in marks)
        + " |"
        for name, kind in zip(NETWORKS, ("LeNet5", "ConvNet", "MLP", "ResNet", "recurrent"), strict=True)
    ]
    means = [average(each, mark) for mark in marks for each in (alone, together)]
    return "\n".join(
        [
            f"## Seed {seed}\n",
            "| | network | " + " | ".join(f"round {mark}, alone | together" for mark in marks) + " |",
            "|---|---|" + "---:|" * (2 * len(marks)),
            *rows,
            "| **mean** | | " + " | ".join(f"**{mean:.1f}**" for mean in means) + " |",
            "\n| dan is killed, eva is cut off | |\n|---|---:|",
            *(f"| {name} | {value} |" for name, value in faults.items()),
            "",
        ]
    )


def main():
    torch.set_num_threads(1)
    runs, parts = {}, []
    for seed in map(int, sys.argv[1:] or ["0"]):
        with tempfile.TemporaryDirectory() as folder:
            *runs[seed], faults = collaborate(Path(folder), seed)
        parts.append(show(seed, *runs[seed], faults))
        print(parts[-1], flush=True)
    PAGE.write_text("\n".join([HEAD, summarise(runs), *parts]))


if __name__ == "__main__":
    main()
