import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from repshare.config import Policy
from repshare.errors import ConfigError, ModelError, Refused, WorkerFailed
from repshare_lab.config import Run, Setting
from repshare_lab.experiments.comparison import plan_comparison
from repshare_lab.simulation import Checkpoint, Inline, Processes, resolve, schedule, simulate
from repshare_lab.simulation.plan import choose_noisy, make_plan
from repshare_lab.simulation.rounds import Simulation
from repshare_lab.simulation.workers import Worker
from support.simulations import bits

SMALL = Setting(dataset="digits", samples=150, clients=3, rounds=3, eval_every=2, model=("lenet5",))
HEADER = 320  # bytes: names, types, shapes and the round, as JSON
ABSENT = "cuda:99"  # here and elsewhere
METHODS = ["CL", "IL", "FL", "FD", "RS", "FC"]


def test_the_same_seed_gives_the_same_bits_and_another_does_not(splits, inline):
    first, again, other = (bits(Run("RS", seed, SMALL), splits, inline) for seed in (1, 1, 2))
    assert first == again != other


def test_sharing_with_both_lambdas_zero_equals_independent_learning(splits, inline):
    none = replace(SMALL, policy=Policy(lambda_kd=0.0, lambda_disc=0.0))
    alone, sharing = (bits(Run(method, 0, none), splits, inline) for method in ("IL", "RS"))
    for a, s in zip(alone[-1], sharing[-1], strict=True):
        assert (a.ce, a.train_accuracy, a.test_accuracy) == (s.ce, s.train_accuracy, s.test_accuracy)


def test_fixed_codes_are_as_far_from_zero_as_the_setting_says(splits, inline):
    near, far = (bits(Run("FC", 0, replace(SMALL, code_size=size)), splits, inline) for size in (0.1, 0.9))
    assert near[0][0].kd < 0.2 < far[0][0].kd


def test_codes_of_zero_equal_independent_learning_with_short_features(splits, inline):
    short = replace(SMALL, policy=Policy(lambda_length=10.0))
    coded, alone = (
        bits(run, splits, inline) for run in (Run("FC", 0, replace(SMALL, code_size=0.0)), Run("IL", 0, short))
    )
    for c, a in zip(coded[-1], alone[-1], strict=True):
        assert (c.ce, c.train_accuracy, c.test_accuracy) == (a.ce, a.train_accuracy, a.test_accuracy)


def test_all_methods_see_the_same_split_and_centralized_sees_all_of_it(splits):
    plans = {method: make_plan(Run(method, 0, SMALL), splits) for method in METHODS}
    parts = {m: [plan.part(i).tolist() for i in range(plan.clients)] for m, plan in plans.items()}
    assert all(parts[method] == parts["IL"] for method in METHODS if method != "CL")
    assert parts["CL"] == [sorted(i for part in parts["IL"] for i in part)] == [list(range(150))]


def test_centralized_learning_never_misses_a_round(splits, inline):
    away = replace(SMALL, dropout=0.9, participation=0.5)
    assert bits(Run("CL", 0, away), splits, inline) == bits(Run("CL", 0, SMALL), splits, inline)


def test_tests_happen_at_their_cadence_and_after_the_last_round(splits, inline):
    tested = [records[0].test_accuracy is not None for records in bits(Run("IL", 0, SMALL), splits, inline)]
    assert tested == [False, True, True]


@pytest.mark.parametrize(("rounds", "every"), [(1, 1), (39, 1), (40, 2), (60, 2), (100, 4), (5000, 128)])
def test_by_default_there_are_twenty_to_forty_tests_and_one_after_the_first_round(rounds, every):
    def due(of):
        return {number for number in range(1, rounds + 1) if schedule.test_is_due(of, number)}

    setting = resolve(Setting(dataset="digits", rounds=rounds), 1200)
    assert due(setting) == {1, *range(every, rounds + 1, every), rounds}
    assert due(replace(setting, rounds=3 * rounds)) <= due(setting)  # so that a run can go on to more rounds


@pytest.mark.parametrize("method", ["IL", "FL"])
def test_clients_are_tested_on_what_they_have_and_on_what_they_lack(method, splits, inline):
    setting = replace(SMALL, clients=5, partition="shards", classes_per_client=2, rounds=20, eval_every=20)
    *_, last = simulate(Run(method, 0, setting), splits, inline)
    for record in last:
        assert record.test_own is not None
        assert 0 <= record.test_unseen <= 1
        if method == "IL":  # it knows two classes of ten
            assert record.test_unseen == 0
            assert record.test_own > 2 * record.test_accuracy
    uniform = list(simulate(Run(method, 0, SMALL), splits, inline))[-1]
    assert {record.test_unseen for record in uniform} == {None}
    assert uniform[0].test_own == pytest.approx(uniform[0].test_accuracy, abs=0.1)


def test_traffic_is_counted_to_the_byte(splits, inline):
    records = bits(Run("RS", 0, SMALL), splits, inline)
    mean_and_observation = 2 * 10 * (84 * 4 + 4 + 4)  # rows of d' numbers, a class and a count
    for record in records[-1]:
        assert 0 < record.bytes_up - mean_and_observation < HEADER
        assert 0 < record.bytes_down - mean_and_observation < HEADER
    assert all(record.bytes_down < HEADER for record in records[0])  # nobody had shared anything
    assert {record.bytes_up for records in bits(Run("IL", 0, SMALL), splits, inline) for record in records} == {0}


def test_a_look_changes_nothing_and_sees_the_same_from_anywhere(splits, inline, processes):
    run, seen = Run("RS", 0, SMALL), []
    expected = bits(run, splits, inline)
    for workers in (inline, processes):
        records = []
        for each in simulate(run, splits, workers):
            records.append([replace(record, seconds=0.0) for record in each])
            views = workers.look()
        assert records == expected
        seen.append([[array.tolist() for array in view] for view in views.values()])
    assert seen[0] == seen[1]


def test_a_run_leaves_nothing_on_disk_once_the_next_has_begun(splits, inline, processes):
    for workers in (inline, processes):
        scratch, rooms = Path(workers._scratch.name), []
        for seed in (0, 1):
            next(simulate(Run("IL", seed, SMALL), splits, workers))
            rooms += scratch.iterdir()
        assert len(rooms) == len(set(rooms)) == 2
        assert scratch.name.startswith("repshare-")


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
        "class Shy(nn.Sequential):\n"
        "    def forward(self, images):\n"
        "        if self.training: raise RuntimeError('not while training')\n"
        "        return super().forward(images)\n"
        "def shy(channels, classes):\n"
        "    return Shy(nn.Flatten(), nn.Linear(64, 84), nn.Tanh(), nn.Linear(84, classes))\n"
    )
    with Processes(1) as workers:
        with pytest.raises(WorkerFailed, match="not while training"):
            list(simulate(Run("IL", 0, replace(SMALL, model=(f"{file}:shy",))), splits, workers))
        an_interrupt_leaves_them_out_of_step(splits, workers, tmp_path)
    with pytest.raises(ModelError), Inline() as workers:
        list(simulate(Run("IL", 0, replace(SMALL, model=("resnet9",))), splits, workers))  # 8 × 8 is too small for it


def an_interrupt_leaves_them_out_of_step(splits, workers, tmp_path):
    """What a worker says after it was interrupted is not taken for what it was asked next."""
    now = tmp_path / "now"
    (tmp_path / "loud.py").write_text(
        "import os, signal\n"
        "from torch import nn\n"
        "class Loud(nn.Sequential):\n"
        "    def forward(self, images):\n"
        f"        if os.path.exists({str(now)!r}):\n"
        f"            os.unlink({str(now)!r})\n"
        f"            os.kill({os.getpid()}, signal.SIGINT)\n"
        "        return super().forward(images)\n"
        "def loud(channels, classes):\n"
        "    return Loud(nn.Flatten(), nn.Linear(64, 84), nn.Tanh(), nn.Linear(84, classes))\n"
    )
    run = Run("IL", 0, replace(SMALL, model=(f"{tmp_path}/loud.py:loud",)))
    rounds = simulate(run, splits, workers, Checkpoint(tmp_path / "c", run))
    next(rounds)
    now.touch()
    with pytest.raises(KeyboardInterrupt):
        workers.look()
    with pytest.raises(WorkerFailed, match="interrupted before they had answered"):
        rounds.close()
    assert Checkpoint(tmp_path / "c", run).manifest.round == 0


def test_what_a_setting_leaves_open_is_filled_in(splits, inline):
    left = Setting(dataset="digits", samples=40, clients=2)
    filled = resolve(left, len(splits.train.labels))
    assert resolve(filled, len(splits.train.labels)) == filled
    rounds = [simulate(Run("RS", 0, setting), splits, inline) for setting in (left, filled)]
    first, same = ([replace(record, seconds=0.0) for record in next(each)] for each in rounds)
    assert first == same
    assert len(first) == 2
    assert Simulation(Run("RS", 0, left), splits, inline, None).run.setting.rounds == 60


DROPOUT = """
from torch import nn
def model(channels, classes):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 84), nn.Tanh(), nn.Dropout(0.5), nn.Linear(84, classes))
"""


def test_every_client_and_seed_starts_from_weights_of_its_own(splits):
    starts = []
    for seed in (0, 1):
        worker = Worker(make_plan(Run("IL", seed, SMALL), splits), None, {})
        starts += [worker._build(index).learner.network.head.weight.detach().flatten().tolist() for index in range(3)]
    assert len({tuple(start) for start in starts}) == 6


def test_images_are_normalised_by_the_samples_that_are_used(splits):
    plan = make_plan(Run("IL", 0, SMALL), splits)
    assert plan.train_inputs.shape[0] == 150
    assert abs(plan.train_inputs.mean()) < 1e-6
    assert plan.train_inputs.std() == pytest.approx(1, abs=1e-5)
    assert plan.test_inputs.std() != pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"policy": Policy(peers=("client 9",))}, "there is no peer 'client 9'"),
        ({"device": "nowhere"}, "^unknown device 'nowhere': use cpu, cuda, mps, or auto$"),
        ({"device": ABSENT}, f"^device {ABSENT} is not available here: use cpu, or auto$"),
        ({"head": "features.0"}, "no linear layer 'features.0'"),
    ],
)
def test_what_cannot_be_carried_out_is_refused_before_it_begins(splits, inline, change, words):
    with pytest.raises((ConfigError, ModelError), match=words):
        bits(Run("RS", 0, replace(SMALL, **change)), splits, inline)


def test_peers_can_be_named_whatever_methods_are_compared(splits):
    known, unknown = (replace(SMALL, policy=Policy(peers=("client 1", name))) for name in ("client 3", "client 4"))
    assert len(plan_comparison(known, METHODS, 1, splits)) == len(METHODS)
    for method in METHODS:
        with pytest.raises(ConfigError, match="no peer 'client 4': clients are called client 1 to client 3"):
            plan_comparison(unknown, [method], 1, splits)


def test_a_refused_release_is_told_with_round_and_client(splits, inline):
    with pytest.raises(Refused, match=r"round 1, client 1: a vector of length .* norm_bound is 0.001"):
        bits(Run("RS", 0, replace(SMALL, norm_bound=0.001)), splits, inline)


def test_accuracies_are_of_the_clients_with_data_not_of_their_partners_of_noise(splits, inline):
    for share, noisy in ((0.5, 1), (1.0, 1)):
        run = Run("IL", 0, replace(SMALL, noise_partners=share, clients=2))
        *_, last = bits(run, splits, inline)
        assert [record.test_accuracy is None for record in last].count(True) == noisy


def test_partners_of_noise_are_the_seeds_choice_and_keep_their_labels(splits):
    run = Run("IL", 0, resolve(replace(SMALL, noise_partners=0.4, clients=5), splits))
    plan, usual = (
        make_plan(run, splits),
        make_plan(replace(run, setting=replace(run.setting, noise_partners=0)), splits),
    )
    noisy = choose_noisy(run.setting, 0, 5)
    assert len(noisy) == 2
    assert noisy == choose_noisy(run.setting, 0, 5) != choose_noisy(run.setting, 1, 5)
    for client in range(5):
        same = plan.train_inputs[plan.part(client)] == usual.train_inputs[plan.part(client)]
        assert same.all() == (client not in noisy)
    assert (plan.train_labels == usual.train_labels).all()
