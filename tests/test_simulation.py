import os
import signal
from dataclasses import replace

import pytest

from repshare.config import Policy, Run, Setting
from repshare.errors import ConfigError, ModelError, WorkerFailed
from repshare.simulation import Inline, Processes, resolve, simulate
from repshare.simulation.plan import make_plan

SMALL = Setting(dataset="digits", samples=150, clients=3, rounds=3, eval_every=2, model=("lenet5",))
HEADER = 320  # bytes: names, types, shapes and the round, as JSON
METHODS = ["CL", "IL", "FL", "FD", "RS"]


def bits(run, splits, workers):
    """Everything a run says, but for how long it took."""
    return [[replace(record, seconds=0.0) for record in records] for records in simulate(run, splits, workers)]


@pytest.fixture(scope="module")
def inline():
    with Inline() as workers:
        yield workers


@pytest.fixture(scope="module", params=[1, 2, 4])
def processes(request):
    with Processes(request.param) as workers:
        yield workers


@pytest.mark.parametrize("method", METHODS)
def test_any_number_of_workers_gives_the_same_bits(method, splits, inline, processes):
    run = Run(method, 0, SMALL)
    assert bits(run, splits, processes) == bits(run, splits, inline)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(splits, inline):
    first, again, other = (bits(Run("RS", seed, SMALL), splits, inline) for seed in (1, 1, 2))
    assert first == again != other


def test_sharing_with_both_lambdas_zero_equals_independent_learning(splits, inline):
    none = replace(SMALL, policy=Policy(lambda_kd=0.0, lambda_disc=0.0))
    alone, sharing = (bits(Run(method, 0, none), splits, inline) for method in ("IL", "RS"))
    for a, s in zip(alone[-1], sharing[-1], strict=True):
        assert (a.ce, a.train_accuracy, a.test_accuracy) == (s.ce, s.train_accuracy, s.test_accuracy)


def test_all_methods_see_the_same_split_and_centralized_sees_all_of_it(splits):
    plans = {method: make_plan(Run(method, 0, SMALL), splits) for method in METHODS}
    parts = {m: [plan.part(i).tolist() for i in range(plan.clients)] for m, plan in plans.items()}
    assert parts["IL"] == parts["RS"] == parts["FL"] == parts["FD"]
    assert parts["CL"] == [sorted(i for part in parts["IL"] for i in part)] == [list(range(150))]


def test_tests_happen_at_their_cadence_and_after_the_last_round(splits, inline):
    tested = [records[0].test_accuracy is not None for records in bits(Run("IL", 0, SMALL), splits, inline)]
    assert tested == [False, True, True]


def test_traffic_is_counted_to_the_byte(splits, inline):
    records = bits(Run("RS", 0, SMALL), splits, inline)
    mean_and_observation = 2 * 10 * (84 * 4 + 4 + 4)  # rows of d' numbers, a class and a count
    for record in records[-1]:
        assert 0 < record.bytes_up - mean_and_observation < HEADER
        assert 0 < record.bytes_down - mean_and_observation < HEADER
    assert all(record.bytes_down < HEADER for record in records[0])  # nobody had shared anything
    assert {record.bytes_up for records in bits(Run("IL", 0, SMALL), splits, inline) for record in records} == {0}


def test_clients_that_lack_classes_take_part(splits, inline):
    shards = replace(SMALL, partition="shards", classes_per_client=4, clients=5)
    records = bits(Run("RS", 0, shards), splits, inline)[-1]
    assert all(record.kd is not None for record in records)


def test_different_models_share_and_fedavg_refuses_them(splits, inline, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from torch import nn\n"
        "def mlp(channels, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 84), nn.Tanh(), nn.Linear(84, classes))\n"
    )
    mixed = replace(SMALL, model=("lenet5", f"{file}:mlp"))
    for method in ("IL", "FD", "RS"):
        assert bits(Run(method, 0, mixed), splits, inline)
    with pytest.raises(ConfigError, match=r"FL averages weights, so it needs one model, not lenet5, .*mine\.py:mlp"):
        bits(Run("FL", 0, mixed), splits, inline)


def test_representations_of_different_lengths_are_refused_with_both_named(splits, inline, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from torch import nn\n"
        "def mlp(channels, classes):\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 30), nn.Tanh(), nn.Linear(30, classes))\n"
    )
    mixed = replace(SMALL, model=("lenet5", f"{file}:mlp"))
    with pytest.raises(ConfigError, match=r"84 \(lenet5\), 30 \(.*mlp\); give one with --dimension"):
        bits(Run("RS", 0, mixed), splits, inline)
    assert bits(Run("FD", 0, mixed), splits, inline)  # logits agree whatever the features


def test_a_worker_that_is_killed_is_reported(splits):
    with pytest.raises(WorkerFailed, match="exit code -9"), Processes(2) as workers:
        for _ in simulate(Run("RS", 0, SMALL), splits, workers):
            os.kill(workers._processes[1].pid, signal.SIGKILL)


def test_a_workers_own_errors_arrive_as_they_were(splits, tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(
        "from torch import nn\n"
        "import os\n"
        "def shy(channels, classes):\n"
        f"    if os.getpid() != {os.getpid()}: raise RuntimeError('not in a worker')\n"
        "    return nn.Sequential(nn.Flatten(), nn.Linear(64, 84), nn.Tanh(), nn.Linear(84, classes))\n"
    )
    with pytest.raises(WorkerFailed, match="not in a worker"), Processes(1) as workers:
        list(simulate(Run("IL", 0, replace(SMALL, model=(f"{file}:shy",))), splits, workers))
    with pytest.raises(ModelError), Inline() as workers:
        list(simulate(Run("IL", 0, replace(SMALL, model=("resnet9",))), splits, workers))  # 8 × 8 is too small for it


def test_what_is_left_open_is_the_papers():
    filled = resolve(Setting(dataset="mnist"), 60_000)
    assert (filled.samples, filled.rounds, filled.model) == (1200, 100, ("lenet5",))
    filled = resolve(Setting(dataset="cifar10"), 50_000)
    assert (filled.samples, filled.rounds, filled.model) == (10_000, 20, ("resnet18",))


def test_more_samples_than_there_are_is_refused():
    with pytest.raises(ConfigError, match="1200 training samples: 1300 are too many"):
        resolve(Setting(dataset="digits", samples=1300), 1200)
