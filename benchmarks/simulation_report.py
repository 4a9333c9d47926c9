"""The benchmark of simulators as text: the table, what it says about the targets, and where it was measured."""

import platform
import re
from importlib.metadata import version
from pathlib import Path
from statistics import median

from environments import FLOWER, PFL
from simulation_results import Results, Timing, pooled, rate, ratios

COMPARED_SAMPLES, GROWTH_SAMPLES = 120, 60
HEADINGS = (
    "N",
    "simulator",
    "s/round, median",
    "fastest–slowest",
    "ms/client",
    "repshare is faster ×",
    "GFLOP/s",
    "of GEMM peak",
    "peak MB",
    "start-up s",
    "accuracy",
)
TARGETS = {"plain": 2.5, "flower": 4.0, "pfl": 1.9}
PEAK_SHARE, GROWTH_FACTOR, CLIENT_MEGABYTES = 0.40, 1.3, 1.0

INTRODUCTION = """\
# Simulators compared

FedAvg on MNIST with LeNet5: 120 samples a client, batches of 32, one local epoch a round, Adam, all clients in every
round, no evaluation. Made by `benchmarks/simulation.py`; all numbers come from one run in which contenders took turns.
"""
NOTES = """\
*repshare is faster ×*: their seconds over those of repshare with processes, turn by turn; median (lowest–highest).
*GFLOP/s*: 8.6 MFLOP a training sample. *Peak MB*: of the whole process tree, shared pages counted once, start included.
*Start-up*: from process start to the end of the first round, less one median round. *Accuracy* is only there to
show that everyone has trained. The plain loop and repshare keep each client's Adam state between rounds; Flower and
pfl, as they come, start Adam afresh, which saves them that memory. *PyTorch's convolutions alone*: the three layers'
forward and backward passes in as many processes, and nothing else; it trains nothing. Growth (60 samples a client:
MNIST has 60,000) is in the rows with 60.
"""


def report(results: Results) -> str:
    """Table, reading, machine."""
    lines = [INTRODUCTION, table(results), "", NOTES, "## Reading", ""]
    lines += [f"- {line}" for line in [*read_targets(results), *read_growth(results), read_drift(results)]]
    lines += ["- What limits a round, with a profile, and what was tried: [tries.md](../lab/notebook/tries.md)."]
    for title, reasons in (("Failed", results.failures), ("Skipped", results.skipped)):
        lines += [f"\n## {title}: {name}\n\n```\n{reason}\n```" for name, reason in reasons.items()]
    lines += ["", "## Machine", "", *(f"- {name}: {value}" for name, value in results.machine.items())]
    one, many = (max(peaks) for peaks in zip(*results.gemm, strict=True))
    lines.append(
        f"- GEMM peak, best of all turns: {one:.0f} GFLOP/s in one process with {results.cores} threads, "
        f"{many:.0f} in {results.cores} processes with one; the higher one is the peak meant above"
    )
    return "\n".join(lines) + "\n"


def table(results: Results) -> str:
    """One row for each contender and case."""
    rows: list[tuple[str, ...]] = [HEADINGS]
    for clients, samples in results.cases():
        by_name = results.of(clients, samples)
        ours = find(by_name, "repshare")
        rows += [row(results, turns, ours) for turns in by_name.values()]
    widths = [max(len(cell) for cell in column) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, cells, widths)) + " |" for cells in rows]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def row(results: Results, turns: list[Timing], ours: list[Timing]) -> tuple[str, ...]:
    first, seconds = turns[0], pooled(turns)
    speed = rate(first.clients, first.samples, median(seconds))
    usage = results.usage(first.contender, first.clients, first.samples)
    return (
        f"{first.clients:,}" + ("" if first.samples == COMPARED_SAMPLES else f" ({first.samples})"),
        first.contender,
        f"{median(seconds):.3f}",
        f"{min(seconds):.3f}–{max(seconds):.3f}",
        f"{median(seconds) / first.clients * 1e3:.1f}",
        spread(ratios(turns, ours)) if first.peer != "repshare" else "",
        f"{speed:.1f}",
        f"{speed / results.peak:.0%}",
        f"{usage.peak / 1e6:,.0f}" if usage else "",
        f"{median(turn.start_up for turn in turns):.1f}",
        f"{median(turn.accuracy for turn in turns):.1%}" if first.peer != "convolutions" else "",
    )


def read_targets(results: Results) -> list[str]:
    """Each target with what was measured."""
    lines = []
    for clients, samples in results.cases():
        by_name = results.of(clients, samples)
        ours = find(by_name, "repshare")
        if not ours or samples != COMPARED_SAMPLES:
            continue
        least = find(by_name, "convolutions")
        for peer, target in TARGETS.items():
            theirs = find(by_name, peer)
            if not theirs:
                lines.append(f"N = {clients}: {peer} was not measured.")
                continue
            found = ratios(theirs, ours)
            best = f" ({theirs[0].contender}, its best of those that ran)" if peer == "pfl" else ""
            limit = f" The convolutions alone: {spread(ratios(theirs, least))}×." if least else ""
            good = verdict(median(found) >= target, f"{target}×")
            lines.append(f"N = {clients}: {spread(found)}× {peer}{best}; {good}.{limit}")
        share = rate(clients, samples, median(pooled(ours))) / results.peak
        good = verdict(share >= PEAK_SHARE, f"{PEAK_SHARE:.0%}")
        lines.append(f"N = {clients}: {share:.0%} of the GEMM peak; {good}.")
    return lines


def read_growth(results: Results) -> list[str]:
    """What a client costs as their number grows."""
    costs, usages, busy = {}, {}, {}
    for clients, samples in results.cases():
        ours = find(results.of(clients, samples), "repshare")
        if samples == GROWTH_SAMPLES and ours:
            costs[clients] = median(pooled(ours)) / clients
            busy[clients] = median(turn.busy for turn in ours)
            usages[clients] = results.usage(ours[0].contender, clients, samples)
    if len(costs) < 2:
        return ["Growth was not measured."]
    listed = ", ".join(f"{cost * 1e3:.2f} ms at N = {clients:,}" for clients, cost in costs.items())
    few, many = min(costs), max(costs)
    factor = costs[many] / costs[few]
    good = verdict(factor <= GROWTH_FACTOR, f"at most {GROWTH_FACTOR}×")
    lines = [f"A client's round ({GROWTH_SAMPLES} samples) costs {listed}: {factor:.2f}×; {good}."]
    shares = ", ".join(f"{share:.0%} at N = {clients:,}" for clients, share in busy.items())
    lines.append(f"The parent process computes during this share of a round: {shares}.")
    if (low := usages[few]) and (high := usages[many]):
        peak = (high.peak - low.peak) / (many - few) / 1e6
        steady = (high.peak_in_rounds - low.peak_in_rounds) / (many - few) / 1e6
        good = verdict(peak <= CLIENT_MEGABYTES, f"at most {CLIENT_MEGABYTES} MB")
        lines.append(f"An additional client takes {peak:.2f} MB at the peak, {steady:.2f} MB in later rounds; {good}.")
    return lines


def read_drift(results: Results) -> str:
    """How far the same thing measured twice was apart."""
    drifts = []
    for clients, samples in results.cases():
        for name, turns in results.of(clients, samples).items():
            medians = [turn.median for turn in turns]
            drifts.append((max(medians) / min(medians), f"{name}, N = {clients:,}"))
    worst, where = max(drifts)
    typical = median(drift for drift, _ in drifts)
    peaks = [max(pair) for pair in results.gemm]
    return (
        f"Medians of different turns differ by {typical - 1:.0%} typically, {worst - 1:.0%} at worst ({where}); "
        f"the GEMM peak was between {min(peaks):.0f} and {max(peaks):.0f} GFLOP/s."
    )


def find(by_name: dict[str, list[Timing]], peer: str) -> list[Timing]:
    """A peer's turns; those of its fastest configuration if it has several."""
    found = [turns for turns in by_name.values() if turns[0].peer == peer]
    return min(found, key=lambda turns: median(pooled(turns)), default=[])


def spread(values: list[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f}–{max(values):.2f})" if values else ""


def verdict(good: bool, target: object) -> str:
    return f"target {target}: {'met' if good else 'missed'}"


def describe_machine() -> dict[str, str]:
    """What the numbers depend on."""
    names = re.findall(r"^model name\s*: (.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "CPU": f"{names[0] if names else platform.processor()}, {len(names)} cores",
        "Python": platform.python_version(),
        "PyTorch": version("torch"),
        "Flower": FLOWER,
        "pfl": PFL,
    }
