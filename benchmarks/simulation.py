"""How fast are simulators? Plain PyTorch, Flower, pfl and repshare on the same FedAvg, in one run.

    .venv/bin/python benchmarks/simulation.py            about half an hour; writes simulation.json and simulation.md
    .venv/bin/python benchmarks/simulation.py --quick    ten clients, a few rounds, nothing written

MNIST/LeNet5, batches of 32, one local epoch a round, Adam, everyone takes part, no evaluation. Contenders take turns
(A B C A B C …), so that a machine that drifts drifts for all of them. The first round warms up; after the last one
comes a test, which in repshare belongs to that round: neither counts, for anyone. Memory is read in a turn of its own.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from environments import NotInstalled, prepare
from peers.workload import Workload
from repshare_lab.data import Splits, load
from simulation_report import describe_machine, report
from simulation_results import Case, Contender, Results, Timing, Usage, without_paths
from watching import Failed, run

HERE = Path(__file__).parent
TIMEOUT_SECONDS = 900
CORES = os.cpu_count() or 1
UNTIMED_ROUNDS = 2  # the first and the last
MEMORY_ROUNDS = 3

COMPARED = [Case(10, 120, rounds=10), Case(100, 120, rounds=5)]
GROWTH = [Case(10, 60, rounds=10), Case(100, 60, rounds=5), Case(1000, 60, rounds=5)]  # MNIST has 60,000 samples


class Scale(NamedTuple):
    """How much of the benchmark to run."""

    turns: int
    compared: list[Case]
    growth: list[Case]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a smoke test: N = 10, one turn, nothing written")
    parser.add_argument("--turns", type=int, default=3, help="how many times everyone is measured")
    parser.add_argument("--folder", type=Path, default=HERE, help="where the results go")
    options = parser.parse_args()
    scale = Scale(options.turns, COMPARED, GROWTH)
    if options.quick:
        scale = Scale(1, [Case(10, 120, rounds=5)], [])
    results = Results(describe_machine(), CORES)
    contenders = find_contenders(results)
    with tempfile.TemporaryDirectory(prefix="bench") as scratch:  # a short name: Ray's sockets lie in it
        measure(results, contenders, scale, load("mnist"), Path(scratch))
    text = report(results)
    print(text)
    if not options.quick:
        options.folder.mkdir(parents=True, exist_ok=True)
        options.folder.joinpath("simulation.md").write_text(text)
        options.folder.joinpath("simulation.json").write_text(json.dumps(results.as_json(), indent=1) + "\n")
    return 1 if results.failures else 0


def find_contenders(results: Results) -> list[Contender]:
    """Everyone that can be had here; who cannot is in the results with the reason."""
    here = Path(sys.executable)
    found = [Contender("plain PyTorch loop", "plain", here, "plain.py", CORES)]
    for peer, script, workers in (("flower", "flower.py", [CORES]), ("pfl", "pfl_fedavg.py", sorted({1, CORES}))):
        try:
            python = prepare(peer)
        except NotInstalled as error:
            print(error, flush=True)
            results.skipped[peer] = without_paths(str(error))
            continue
        for count in workers:
            name = "Flower, Ray" if peer == "flower" else f"pfl, {count} process" + "es" * (count > 1)
            found.append(Contender(name, peer, python, script, count))
    found.append(Contender("repshare Inline", "inline", here, "repshare_fedavg.py", 0))
    found.append(Contender(f"repshare Processes({CORES})", "repshare", here, "repshare_fedavg.py", CORES))
    found.append(Contender("PyTorch's convolutions alone", "convolutions", here, "convolutions.py", CORES))
    return found


def measure(results: Results, contenders: list[Contender], scale: Scale, splits: Splits, scratch: Path) -> None:
    """All turns of all contenders; what fails is noted and left out from then on."""
    growing = [contender for contender in contenders if contender.peer == "repshare"]
    plan = [(case, contenders) for case in scale.compared] + [(case, growing) for case in scale.growth]
    for case, _ in plan:
        write_samples(splits, case, sample_file(scratch, case))
    for turn in range(scale.turns):
        results.gemm.append((measure_gemm(CORES, 1), measure_gemm(1, CORES)))
        print(f"turn {turn + 1}: GEMM peak {max(results.gemm[-1]):.0f} GFLOP/s", flush=True)
        for case, taking_part in plan:
            for contender in taking_part:
                attempt(results, contender, case, turn, scratch)
    for case, taking_part in plan:
        for contender in taking_part:
            attempt(results, contender, case, None, scratch)


def attempt(results: Results, contender: Contender, case: Case, turn: int | None, scratch: Path) -> None:
    """One turn, or with `turn` None a look at the memory."""
    if results.has_failed(contender, case):
        return
    rounds = (MEMORY_ROUNDS if turn is None else case.rounds) + UNTIMED_ROUNDS
    answer_file = scratch / "answer.json"
    answer_file.unlink(missing_ok=True)
    workload = Workload(
        str(sample_file(scratch, case)), str(answer_file), case.clients, case.samples, rounds, contender.workers
    )
    command = [str(contender.python), str(HERE / "peers" / contender.script), *workload.write_to_arguments()]
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0"}
    folders = {"RAY_TMPDIR": str(scratch), "FLWR_HOME": str(scratch)}
    try:
        began, samples = run(command, timeout=TIMEOUT_SECONDS, environment=quiet | folders, watched=turn is None)
        answer = json.loads(answer_file.read_text())
    except (Failed, FileNotFoundError) as error:
        results.fail(contender, case, str(error))
        print(f"{contender.name}, N = {case.clients}: FAILED, {error}", flush=True)
        return
    if turn is None:
        usage = Usage.read(contender, case, samples, answer["ends"][0])
        results.usages.append(usage)
        print(f"{contender.name}, N = {case.clients}: {usage.peak / 1e6:.0f} MB", flush=True)
    else:
        timing = Timing.read(contender, case, turn, began, answer)
        results.timings.append(timing)
        print(f"{contender.name}, N = {case.clients}: {timing.median:.3f} s a round", flush=True)


def measure_gemm(threads: int, processes: int) -> float:
    command = [sys.executable, str(HERE / "peers" / "gemm.py"), str(threads), str(processes)]
    outcome = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=True)
    return float(outcome.stdout)


def sample_file(scratch: Path, case: Case) -> Path:
    return scratch / f"{case.clients}x{case.samples}.npz"


def write_samples(splits: Splits, case: Case, path: Path) -> None:
    """What the peers read: the first samples, normalised as repshare does it; a client's lie together."""
    first = splits.first(case.clients * case.samples).normalised()
    np.savez(
        path,
        images=first.train.images,
        labels=first.train.labels,
        test_images=first.test.images,
        test_labels=first.test.labels,
    )


if __name__ == "__main__":
    sys.exit(main())
