"""Findings of a comparison, from its records: by client and class mix, the clear best, and what still improves."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from repshare.records import Line
from repshare_lab.results.records import Summary, find, group

STILL_RISING = 1.0  # percentage points, from the last fifth but one of the tests to the last


class OwnMix(NamedTuple):
    """One method's last tests where clients' classes differ: for each seed an accuracy in percent."""

    own: list[float]
    """Mean over clients, each tested with classes weighted as in its own data."""
    unseen: list[float]
    """Mean over clients that lack classes, on those classes."""
    worst: list[float]
    """The lowest of the clients' accuracies in `own`; none where there is one client only."""

    def means(self) -> dict[str, float | None]:
        """Return the means over seeds, by the names that a user sees."""
        names = {"own_mix": self.own, "unseen": self.unseen, "worst_client": self.worst}
        return {name: statistics.fmean(values) if values else None for name, values in names.items()}


def clients_differ(setting: Mapping[str, Any], lines: Iterable[Line]) -> bool:
    """Whether clients' classes differ: the partition is not uniform, or a client lacks a class."""
    return setting.get("partition", "uniform") != "uniform" or any(
        line.get("test_unseen") is not None for line in lines
    )


def summarise_own(lines: Sequence[Line]) -> OwnMix:
    """Return the findings in one method's lines by client, each seed after its last test."""
    own, unseen, worst = [], [], []
    for of_seed in group((line for line in lines if line.get("test_own") is not None), "seed").values():
        last = max(line["round"] for line in of_seed)
        final = [line for line in of_seed if line["round"] == last]
        accuracies = [100 * accuracy for accuracy in find(final, "test_own")]
        own.append(statistics.fmean(accuracies))
        if lacking := find(final, "test_unseen"):
            unseen.append(100 * statistics.fmean(lacking))
        if len(accuracies) > 1:
            worst.append(min(accuracies))
    return OwnMix(own, unseen, worst)


def find_best(summaries: Mapping[str, Summary]) -> str | None:
    """Return the method that is better than all others by more than its and their spread; None if there is none.

    The spread is that over seeds; with one seed, over clients. CL, which has all the data, is no rival.
    """
    rivals = {name: each for name, each in summaries.items() if name != "CL" or len(summaries) == 1}
    if not rivals:
        return None
    best = max(rivals, key=lambda name: rivals[name].accuracy)
    for name, other in rivals.items():
        apart = rivals[best].accuracy - other.accuracy
        if name != best and apart <= max(_spread(rivals[best]), _spread(other)):
            return None
    return best


def _spread(summary: Summary) -> float:
    return summary.std_over_clients if summary.std_over_seeds is None else summary.std_over_seeds


def still_improving(lines: Sequence[Line]) -> list[str]:
    """Return the methods whose mean accuracy still rose at the end, of those that go on to the last round of all."""
    tested, rising = [line for line in lines if line["test_accuracy"] is not None], []
    end = max((line["round"] for line in tested), default=0)
    for method, own in group(tested, "method").items():
        by_round = sorted(group(own, "round").items())
        means = [100 * statistics.fmean(find(here, "test_accuracy")) for _, here in by_round]
        fifth = len(means) // 5
        if not fifth or by_round[-1][0] < end:
            continue
        if statistics.fmean(means[-fifth:]) - statistics.fmean(means[-2 * fifth : -fifth]) > STILL_RISING:
            rising.append(method)
    return rising


def name_setting(setting: Mapping[str, Any]) -> str:
    """Return the data set, the number of clients and how the data are divided, in a few words."""
    parts = [Path(setting["dataset"]).name, f"{setting['clients']} clients", name_partition(setting)]
    return ", ".join(filter(None, parts))


def name_partition(setting: Mapping[str, Any]) -> str:
    """The division of the data in a few words; nothing for a uniform one."""
    match setting.get("partition"):
        case "dirichlet":
            return f"Dirichlet {setting['alpha']:g}"
        case "shards":
            return f"{setting['classes_per_client']} classes each"
    return ""
