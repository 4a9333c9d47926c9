"""DP-SGD: each sample's gradient is its own, the noise is what was planned, and ε covers training and releases."""

import logging
import math
from copy import deepcopy
from dataclasses import replace

import dp_accounting
import numpy as np
import pytest
import torch
from dp_accounting import GaussianDpEvent, NeighboringRelation, PoissonSampledDpEvent
from scipy import stats
from torch import nn

from repshare import Board, Client, LeNet5, LocalExchange, Policy, Task
from repshare.cli import main
from repshare.commands.privacy import cautions
from repshare.errors import ConfigError
from repshare.joining import make_report
from repshare.methods import IL
from repshare.models import ResNet9
from repshare.objective import Lesson
from repshare.privacy.accounting import Charge
from repshare.privacy.whole import Steps, plan_training, whole_epsilon
from repshare.private_training import PrivateLearner, make_private
from repshare.samples import Samples
from repshare.training import Learner

DELTA = 1e-5
WHOLE = Policy(epsilon=8.0, end_to_end=True, planned_releases=2, seeded_noise=True)


@pytest.fixture
def data(digits):
    (images, labels), _ = digits
    return images[:40], labels[:40]


def lesson(observations=2, taught=(0, 1, 2, 3, 4, 5, 6)):
    """A teacher who knows not every class."""
    rng = torch.Generator().manual_seed(0)
    has = torch.zeros(10, dtype=torch.bool)
    has[list(taught)] = True
    vectors = torch.rand(1 + observations, 10, 84, generator=rng)
    return Lesson(vectors[0], has, vectors[1:], has.roll(1))


def make_model(seed=0):
    torch.manual_seed(seed)
    return LeNet5()


def client(data, policy=WHOLE, board=None, name="alice", **options):
    exchange = None if board is None else LocalExchange(board, name)
    return Client(make_model(), data, exchange, name=name, policy=policy, **options)


@pytest.mark.parametrize("summed", [False, True])
@pytest.mark.parametrize("observations", [0, 1], ids=["means", "observations"])
def test_a_samples_gradient_is_what_it_would_be_alone(data, observations, summed):
    """The oracle is Algorithm 2 itself on batches of one."""
    policy = Policy(epsilon=8.0, end_to_end=True, seeded_noise=True, summed=summed, lambda_length=3.0)
    samples, taught = Samples(data), lesson(observations)
    private = PrivateLearner(make_model(), samples, policy, name="a", seed=0)
    plain = Learner(make_model(), samples, policy, name="a", seed=0)
    private.lesson = plain.lesson = taught
    inputs, labels = samples.batch(torch.arange(8))
    private.network.model.train()
    private._look(inputs, labels)
    for index in range(8):
        terms = plain.terms(*plain.network(inputs[index : index + 1]), labels[index : index + 1])
        weighed = ((10.0, terms.kd), (1.0, terms.disc), (3.0, terms.length))
        loss = terms.ce + sum(weight * term for weight, term in weighed if term is not None)
        expected = torch.autograd.grad(loss, list(plain.network.model.parameters()))
        for ours, theirs in zip(private.network.model.parameters(), expected, strict=True):
            torch.testing.assert_close(ours.grad_sample[index], theirs, rtol=1e-4, atol=1e-5)


def test_the_noise_on_a_step_is_what_the_guard_planned(data):
    policy = Policy(
        epsilon=0.05, end_to_end=True, seeded_noise=True, optimizer="sgd", learning_rate=1.0, batch_size=40,
        planned_releases=1,
    )  # fmt: skip
    one = client(data, policy)
    before = torch.cat([p.detach().flatten().clone() for p in one.learner.network.model.parameters()])
    one.round()
    after = torch.cat([p.detach().flatten() for p in one.learner.network.model.parameters()])
    moved = (after - before).double().numpy()
    deviation = one.guard.steps.noise * policy.grad_clip / policy.batch_size
    assert deviation > 1, "far more than the 40 clipped gradients, of length 1 at most, together"
    low, high = stats.chi2.ppf([0.0005, 0.9995], len(moved)) / len(moved)
    assert low < np.mean(np.square(moved)) / deviation**2 < high + 1e-3


def test_gradients_are_clipped_one_by_one(data):
    """Without noise, a step moves the weights by no more than the bound, however long the gradients are."""
    policy = Policy(epsilon=8.0, end_to_end=True, seeded_noise=True, optimizer="sgd", learning_rate=1.0, grad_clip=0.01)
    one = client(data, policy)
    one.learner._prepare().noise_multiplier = 0.0
    one.learner.rate, one.learner.steps = 1.0, 1
    before = torch.cat([p.detach().flatten().clone() for p in one.learner.network.model.parameters()])
    one.learner.train()
    after = torch.cat([p.detach().flatten() for p in one.learner.network.model.parameters()])
    assert 0 < float((after - before).norm()) <= 40 * policy.grad_clip / policy.batch_size * 1.001


def test_a_step_without_a_sample_adds_noise_all_the_same(data):
    images, labels = data
    one = client((images[:3], labels[:3]))
    one.learner._prepare()
    one.learner.rate = 0.0
    before = [p.detach().clone() for p in one.learner.network.model.parameters()]
    one.learner.train()
    after = list(one.learner.network.model.parameters())
    assert all((a != b).all() for a, b in zip(before, after, strict=True))


def test_batch_normalisation_gives_way_to_group_normalisation_and_it_is_said(caplog):
    model = ResNet9()
    with caplog.at_level(logging.WARNING, "repshare"):
        private = make_private(model)
    kinds = {type(layer) for layer in private.modules()}
    assert nn.GroupNorm in kinds
    assert nn.BatchNorm2d not in kinds
    assert nn.BatchNorm2d in {type(layer) for layer in model.modules()}, "one's own model is left as it was"
    assert "8 batch normalisations are now group normalisations" in caplog.text


def test_once_nothing_can_leave_training_needs_no_noise_and_nothing_leaves_for_good(data, tmp_path):
    path, board = tmp_path / "privacy.jsonl", Board(Task(10, 84))
    policy = replace(WHOLE, planned_releases=1)
    one = client(data, policy, board, ledger=path)
    one.round()
    one.learner._forget()  # as the next round will
    twin = Learner(make_model(), one.learner.samples, policy, name="alice", seed=0)
    twin.network.model.load_state_dict(one.learner.network.model.state_dict())
    twin.optimizer.load_state_dict(deepcopy(one.learner.optimizer.state_dict()))
    one.learner.lesson = None
    one.learner.train()
    twin.train()
    for ours, theirs in zip(one.learner.network.model.parameters(), twin.network.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    richer = client(data, replace(policy, epsilon=24.0, planned_releases=4), board, ledger=path)  # could pay
    assert "nothing of this model may leave" in richer.round().trouble


def test_the_budget_covers_training_and_releases_and_then_only_training_goes_on(data):
    board = Board(Task(10, 84))
    one = client(data, board=board)
    records = list(one.rounds(3))
    assert [record.bytes_up > 0 for record in records] == [True, True, False]
    assert records[0].epsilon < records[1].epsilon == records[2].epsilon <= WHOLE.epsilon
    assert "the training before each cost" in records[2].trouble
    assert one.guard.mode == "end to end"
    parts = frozenset({((one.guard.steps, one.guard.charge), 2)})
    assert records[1].epsilon == whole_epsilon(parts, DELTA)


def test_the_whole_is_each_part_where_the_other_is_nothing():
    """And where they are as much as each other, more than either."""
    steps, silent = Steps(0.1, 50, 2.0), Steps(0.1, 50, 1e6)
    charge, nothing = Charge(5.0, 1), Charge(1e6, 1)

    def cost(*parts):
        return whole_epsilon(frozenset({(parts, 4)}), DELTA)

    accountant = dp_accounting.pld.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    training = accountant.compose(PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0)), 200).get_epsilon(DELTA)
    releases = dp_accounting.get_epsilon_gaussian(5.0 / math.sqrt(8), DELTA)
    assert cost(steps, nothing) == pytest.approx(training, rel=1e-2)
    assert cost(silent, charge) == pytest.approx(releases, rel=1e-2)
    assert max(training, releases) < cost(steps, charge) < training + releases


def test_the_noise_planned_for_training_spends_the_budget_and_no_more():
    steps = plan_training(4.0, DELTA, 10, Steps(0.05, 40), Charge(20.0, 1))
    assert 3.9 < whole_epsilon(frozenset({((steps, Charge(20.0, 1)), 10)}), DELTA) <= 4.0


def test_a_run_that_was_cut_off_goes_on_to_the_same_bits(data):
    whole, cut = client(data), client(data)
    list(whole.rounds(2))
    cut.round()
    saved, again = cut.save(), client(data)
    again.load(saved)
    again.round()
    for ours, theirs in zip(*(each.learner.network.model.parameters() for each in (whole, again)), strict=True):
        assert torch.equal(ours, theirs)


def test_noise_from_the_system_is_never_the_same_twice(data):
    policy = Policy(epsilon=8.0, end_to_end=True, planned_releases=2)
    one, other = (client(data, policy) for _ in range(2))
    one.round()
    other.round()
    pairs = zip(*(each.learner.network.model.parameters() for each in (one, other)), strict=True)
    assert all((ours != theirs).any() for ours, theirs in pairs)


def test_one_who_shares_nothing_trains_as_ever(data):
    assert type(client(data, method=IL).learner) is Learner


def test_what_does_not_fit_is_refused(data):
    with pytest.raises(ConfigError, match="set epsilon"):
        Policy(end_to_end=True)
    with pytest.raises(ConfigError, match="training_share"):
        Policy(training_share=1.0)
    with pytest.raises(ConfigError, match="adjacency replace"):
        client(data, Policy(epsilon=1.0, end_to_end=True, adjacency="add-remove"))


def test_it_says_which_mode_it_is(data, tmp_path, capsys):
    assert any("end to end" in line for line in cautions(WHOLE))
    assert any("release-only mode" in line for line in cautions(Policy(epsilon=1.0)))
    one = client(data, board=Board(Task(10, 84)), ledger=tmp_path / "privacy.jsonl")
    one.round()
    main(["privacy", "ledger", str(tmp_path / "privacy.jsonl")])
    assert "end to end" in capsys.readouterr().out
    told = make_report(one, one.round())
    assert told["privacy"]["mode"] == "end to end, replace"
    assert not {"train_accuracy", "ce", "kd", "disc", "bound"} & set(told), "of training samples nothing is told"
