"""What the records of a comparison show, by hand."""

import pytest

from repshare_lab.results.findings import clients_differ, find_best, name_partition, still_improving, summarise_own
from repshare_lab.results.records import Summary


def line(round, accuracy, method="RS", seed=0, **others):
    return {"method": method, "seed": seed, "round": round, "test_accuracy": accuracy, **others}


def test_accuracies_by_own_mix_are_those_of_the_last_test():
    tested = [
        line(1, 0.1, test_own=0.99, test_unseen=None),
        line(2, 0.1, test_own=0.6, test_unseen=0.25),
        line(2, 0.1, test_own=0.8, test_unseen=None),
        line(2, 0.1, seed=1, test_own=0.5, test_unseen=None),
        line(3, None, seed=1, test_own=None, test_unseen=None),
    ]
    mix = summarise_own(tested)
    assert mix.own == pytest.approx([70, 50])
    assert mix.unseen == [25]
    assert mix.worst == [60]  # of several clients
    assert mix.means() == pytest.approx({"own_mix": 60, "unseen": 25, "worst_client": 60})
    assert summarise_own([line(1, 0.5)]).means() == {"own_mix": None, "unseen": None, "worst_client": None}


def test_clients_differ_by_their_partition_or_by_a_class_that_one_lacks():
    assert clients_differ({"partition": "dirichlet"}, [])
    assert clients_differ({"partition": "uniform"}, [line(1, 0.1, test_unseen=0.0)])
    assert not clients_differ({"partition": "uniform"}, [line(1, 0.1, test_unseen=None), line(1, 0.1)])


def summary(accuracy, seeds=None, clients=0.0):
    return Summary(accuracy, seeds, clients, 0, 0, 0.0, 1)


def test_the_best_is_better_by_more_than_the_spread():
    assert find_best({"RS": summary(90.71, 0.37), "FL": summary(90.06, 1.68)}) is None
    assert find_best({"RS": summary(90.71, 0.37), "FL": summary(90.06, 0.5)}) == "RS"
    assert find_best({"RS": summary(90.0, None, 2.0), "IL": summary(85.0, None, 3.0)}) == "RS"
    assert find_best({"RS": summary(90.0, None, 2.0), "IL": summary(85.0, None, 6.0)}) is None
    assert find_best({"CL": summary(99.0), "RS": summary(90.0), "IL": summary(85.0)}) == "RS"
    assert find_best({"CL": summary(99.0)}) == "CL"
    assert find_best({}) is None


def curve(method, *accuracies):
    return [line(number, accuracy, method) for number, accuracy in enumerate(accuracies, start=1)]


def test_what_still_improves_is_what_rises_by_a_point_in_the_last_fifth():
    rising, flat = [0.1 * number for number in range(10)], [0.1, 0.5, 0.8, 0.8, 0.8, 0.81, 0.8, 0.8, 0.81, 0.8]
    late = curve("CS", *rising[:5])  # ends by itself, before the others
    assert still_improving(curve("RS", *rising) + curve("IL", *flat) + late) == ["RS"]
    assert still_improving(curve("RS", 0.1, 0.9)) == []  # too few tests to tell
    assert still_improving([line(1, None)]) == []


def test_a_partition_has_a_name_in_titles():
    assert name_partition({"partition": "dirichlet", "alpha": 0.3}) == "Dirichlet 0.3"
    assert name_partition({"partition": "shards", "classes_per_client": 2}) == "2 classes each"
    assert name_partition({"partition": "uniform"}) == ""
