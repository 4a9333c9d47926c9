"""DP-SGD: each sample's gradient is its own, the noise is what was planned, and ε covers training and releases."""

import io
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
from repshare.cli.main import main
from repshare.cli.privacy import policy_warnings
from repshare.errors import CheckpointError, ConfigError
from repshare.exchange.relay import Membership
from repshare.learning.dp_training import PrivateLearner, make_private
from repshare.learning.models import ResNet9
from repshare.learning.objective import Lesson
from repshare.learning.samples import Samples
from repshare.learning.training import Learner
from repshare.methods import IL
from repshare.party.state import State, make_report, take_part
from repshare.privacy.accounting import Charge
from repshare.privacy.end_to_end import Steps, plan_training, total_epsilon

DELTA = 1e-5
WHOLE = Policy(epsilon=8.0, end_to_end=True, planned_releases=2, seeded_noise=True)
SMALL = replace(WHOLE, epsilon=0.5, planned_releases=1, batch_size=40, m_up=0)  # quick to account for


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
    private._backward_each(inputs, labels)
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
    one.learner._private.noise_multiplier = 0.0
    one.learner.rate, one.learner.epoch_steps = 1.0, 1
    before = torch.cat([p.detach().flatten().clone() for p in one.learner.network.model.parameters()])
    one.learner.train()
    after = torch.cat([p.detach().flatten() for p in one.learner.network.model.parameters()])
    assert 0 < float((after - before).norm()) <= 40 * policy.grad_clip / policy.batch_size * 1.001


def test_a_step_without_a_sample_adds_noise_all_the_same(data):
    images, labels = data
    one = client((images[:3], labels[:3]))
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
    one = client(data, SMALL, board, ledger=path)
    one.round()
    one.learner._forget()  # as the next round will
    twin = Learner(make_model(), one.learner.samples, SMALL, name="alice", seed=0)
    twin.network.model.load_state_dict(one.learner.network.model.state_dict())
    twin.optimizer.load_state_dict(deepcopy(one.learner.optimizer.state_dict()))
    one.learner.lesson = None
    one.learner.train()
    twin.train()
    for ours, theirs in zip(one.learner.network.model.parameters(), twin.network.model.parameters(), strict=True):
        torch.testing.assert_close(ours, theirs)
    richer = client(data, replace(SMALL, epsilon=2.0, planned_releases=4), board, ledger=path)  # could pay
    assert "nothing of this model may leave" in richer.round().trouble


def test_the_budget_covers_training_and_releases_and_then_only_training_goes_on(data):
    board = Board(Task(10, 84))
    one = client(data, board=board)
    records = list(one.rounds(3))
    assert [record.bytes_up > 0 for record in records] == [True, True, False]
    assert records[0].epsilon < records[1].epsilon == records[2].epsilon <= WHOLE.epsilon
    assert "the training before each cost" in records[2].trouble
    assert one.guard.mode == "end to end"
    twice = one.guard.steps._replace(number=2 * one.guard.steps.number)
    assert records[1].epsilon == total_epsilon(frozenset({twice}), frozenset({(one.guard.charge, 2)}), DELTA)


def test_the_whole_is_each_part_where_the_other_is_nothing():
    """And where they are as much as each other, more than either."""
    steps, silent = Steps(0.1, 200, 2.0), Steps(0.1, 200, 1e6)
    charge, nothing = Charge(5.0, 1), Charge(1e6, 1)

    def cost(training, release):
        return total_epsilon(frozenset({training}), frozenset({(release, 4)}), DELTA)

    accountant = dp_accounting.pld.PLDAccountant(NeighboringRelation.REPLACE_ONE)
    training = accountant.compose(PoissonSampledDpEvent(0.1, GaussianDpEvent(2.0)), 200).get_epsilon(DELTA)
    releases = dp_accounting.get_epsilon_gaussian(5.0 / math.sqrt(8), DELTA)
    assert cost(steps, nothing) == pytest.approx(training, rel=1e-2)
    assert cost(silent, charge) == pytest.approx(releases, rel=1e-2)
    assert max(training, releases) < cost(steps, charge) < training + releases


def test_the_noise_planned_for_training_spends_the_budget_and_no_more():
    steps = plan_training(4.0, DELTA, 10, Steps(0.05, 40), Charge(20.0, 1))
    cost = total_epsilon(frozenset({steps._replace(number=400)}), frozenset({(Charge(20.0, 1), 10)}), DELTA)
    assert 3.9 < cost <= 4.0


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
    with pytest.raises(ConfigError, match="discriminator classifier"):
        Policy(end_to_end=True, epsilon=1.0, discriminator="external")
    with pytest.raises(ConfigError, match="training_share"):
        Policy(training_share=1.0)
    with pytest.raises(ConfigError, match="adjacency replace"):
        client(data, Policy(epsilon=1.0, end_to_end=True, adjacency="add-remove"))


def test_it_says_which_mode_it_is(data, tmp_path, capsys):
    assert any("end to end" in line for line in policy_warnings(WHOLE))
    assert any("release-only mode" in line for line in policy_warnings(Policy(epsilon=1.0)))
    one = client(data, board=Board(Task(10, 84)), ledger=tmp_path / "privacy.jsonl")
    one.round()
    main(["privacy", "ledger", str(tmp_path / "privacy.jsonl")])
    assert "end to end" in capsys.readouterr().out
    told = make_report(one, one.round())
    assert told["privacy"]["mode"] == "end to end, replace"
    assert not {"train_accuracy", "ce", "kd", "disc", "bound"} & set(told), "of training samples nothing is told"


def small(exchange=True, activation=nn.Tanh, first=0.5, **policy):
    """A client with a network of a few weights, and a step of DP-SGD a round."""
    torch.manual_seed(1)
    inputs, labels = torch.randn(40, 3), torch.arange(40) % 2
    inputs[0] = first
    model = nn.Sequential(nn.Linear(3, 4), activation(), nn.Linear(4, 2))
    return Client(model, (inputs, labels), alone() if exchange else None, name="a", policy=replace(SMALL, **policy))


def alone():
    return LocalExchange(Board(Task(2, 4)), "a")


def paid(one):
    return [[Steps(*each) for each in entry["steps"]] for entry in one.guard.ledger.entries if "steps" in entry]


def test_a_release_pays_for_all_training_before_it_whoever_planned_it():
    first = small(release_every=3)
    list(first.rounds(2))
    richer, poorer = small(epsilon=1.0, planned_releases=2), small(epsilon=0.2)
    for one in (richer, poorer):
        one.load(first.save())
    told, refused = richer.round(), poorer.round()
    assert first.guard.steps.number == 3
    steps = {first.guard.steps._replace(number=2), richer.guard.steps}
    assert set(*paid(richer)) == steps
    assert told.epsilon == total_epsilon(frozenset(steps), frozenset({(richer.guard.charge, 1)}), DELTA)
    assert (refused.bytes_up, refused.epsilon) == (0, 0.0)
    assert "the privacy budget is spent" in refused.trouble


def test_rounds_that_released_nothing_are_paid_for_with_the_next_release():
    absent, lonely = (small(release_every=2, planned_releases=4) for _ in range(2))
    for number in (1, 3, 5, 6):  # away when it was to release, as a simulation has it
        absent.round_number = number - 1
        absent.round()
    lonely.exchange = None
    list(lonely.rounds(3))
    lonely.exchange = alone()
    lonely.learner.policy = lonely.guard.policy = replace(lonely.policy, minimum_count=100)
    assert lonely.round().bytes_up, "a release of nothing, which nothing was charged for"
    assert lonely.guard.ledger.entries == []
    lonely.learner.policy = lonely.guard.policy = lonely.policy
    list(lonely.rounds(2))
    assert [[steps.number for steps in each] for each in paid(absent)] == [[4]]
    assert [[steps.number for steps in each] for each in paid(lonely)] == [[6]]


def test_a_budget_that_cannot_pay_for_the_training_so_far_is_closed():
    one = small(exchange=False)
    list(one.rounds(2))
    assert one.guard.closed
    assert one.guard.ledger.entries == [{"epsilon": 0.0, "delta": DELTA, "closed": True}]


def test_a_model_trained_without_noise_never_leaves_whatever_becomes_of_its_ledger():
    one, again = small(), small()
    list(one.rounds(2))
    saved, kept = torch.load(io.BytesIO(one.save()), weights_only=True), io.BytesIO()
    saved["guard"]["ledger"] = "[]"
    torch.save(saved, kept)
    again.load(kept.getvalue())
    assert again.round().bytes_up == 0
    assert again.guard.closed


def test_a_ledger_of_an_earlier_version_is_read():
    one, other = small(planned_releases=4, release_every=2), small(planned_releases=4, release_every=2)
    list(one.rounds(2))
    (entry,) = one.guard.ledger.entries
    other.guard.ledger.entries = [{**entry, "charge": list(entry["charge"]), "steps": list(entry["steps"][0])}]
    list(one.rounds(2))
    list(other.rounds(2))
    assert other.guard.spent == one.guard.spent > entry["epsilon"]
    other.guard.delta = DELTA / 100
    assert other.guard.spent > one.guard.spent


def test_a_run_that_was_cut_off_after_its_budget_was_spent_goes_on_to_the_same_bits(data):
    whole, cut, again = (client(data, SMALL, Board(Task(10, 84))) for _ in range(3))
    list(whole.rounds(4))
    list(cut.rounds(3))
    assert cut.guard.closed
    again.load(cut.save())
    again.round()
    for ours, theirs in zip(*(each.learner.network.model.parameters() for each in (whole, again)), strict=True):
        assert torch.equal(ours, theirs)


def test_a_model_that_was_trained_without_dp_sgd_is_refused():
    plain = small()
    plain.learner = Learner(plain.learner.network.model, plain.learner.samples, plain.policy, name="a", seed=0)
    with pytest.raises(CheckpointError, match="begin again"):
        small().load(plain.save())


@pytest.mark.parametrize("first", [1e15, 1e25], ids=["squared", "itself"])
def test_a_sample_whose_gradient_overflows_moves_a_step_no_farther_than_others(first):
    weights = []
    for value in (0.5, first):
        one = small(activation=nn.ReLU, first=value, optimizer="sgd", learning_rate=1.0, lambda_length=1.0)
        one.learner.train()
        weights.append(torch.cat([p.detach().flatten() for p in one.learner.network.model.parameters()]))
    assert 0 < float((weights[0] - weights[1]).norm()) <= 2 * SMALL.grad_clip / SMALL.batch_size


def test_secret_draws_are_of_a_mersenne_twister_that_no_seed_gives():
    """The oracle is NumPy's: PyTorch's own seeds are of 32 bits, few enough to try them all."""
    stream = small(seeded_noise=False).learner.secret
    words = stream.get_state().numpy()[24 : 24 + 624 * 8].view(np.uint64)
    twister = np.random.MT19937()
    twister.state = {"bit_generator": "MT19937", "state": {"key": words.astype(np.uint32), "pos": 624}}
    assert (torch.randint(2**20, (2000,), generator=stream).numpy() == twister.random_raw(2000) % 2**20).all()
    seeded = [(1812433253 * (word ^ word >> 30) + i) % 2**32 for i, word in enumerate(words.tolist(), start=1)]
    assert sum(ours == theirs for ours, theirs in zip(words[1:].tolist(), seeded, strict=False)) < 3


PLAIN = {"epsilon": None, "end_to_end": False}


def kept(folder, **policy):
    """A small client whose folder is ready to go on from."""
    state = State(folder, small(**policy), Membership("task", "a", Task(2, 4)))
    state.restore()
    return state


@pytest.mark.parametrize("end_to_end", [True, False])
def test_no_exact_averages_leave_from_a_folder_that_promised_noise(tmp_path, end_to_end):
    (told,) = take_part(kept(tmp_path / "s", end_to_end=end_to_end), 1)
    assert told.epsilon > 0
    with pytest.raises(ConfigError, match="give --epsilon again, or another --state"):
        kept(tmp_path / "s", **PLAIN)
    assert kept(tmp_path / "s", end_to_end=end_to_end).client.round_number == 1


def test_a_model_that_no_ledger_speaks_of_is_not_gone_on_with_end_to_end(tmp_path):
    list(take_part(kept(tmp_path / "plain", **PLAIN), 1))
    list(take_part(kept(tmp_path / "lost"), 1))
    (tmp_path / "lost/privacy.jsonl").unlink()
    for name in ("plain", "lost"):
        with pytest.raises(ConfigError, match="--restart"):
            kept(tmp_path / name)
        state = State(tmp_path / name, small(), Membership("task", "a", Task(2, 4)))
        state.clear()
        state.restore()
        assert state.client.round_number == 0


def test_a_report_tells_accuracies_only_of_a_model_whose_training_is_paid_for():
    one = small(release_every=2, planned_releases=4)
    one.test, told = one.learner.samples, []
    for _ in range(6):
        told.append("test_accuracy" in make_report(one, one.round()))
        one.guard.epsilon = 0.5 if len(told) < 4 else 0.01  # so that then all is spent
    assert one.guard.closed
    assert told == [False, True, False, True, False, False]
