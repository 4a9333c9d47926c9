"""Clients side by side. PyTorch promises nothing about the bits of grouped convolutions: these tests do."""

from dataclasses import replace

import pytest
import torch

from repshare.config import Policy
from repshare.learning.models import LeNet5
from repshare.learning.objective import Lesson
from repshare.learning.samples import Samples
from repshare.learning.training import Learner
from repshare.simulation.stacked import describe, forward, train_together

KNOWN = torch.arange(10) < 7


def make_learner(splits, client, *, samples=43, policy=None, lesson=True, channels=1, size=8, **given):
    """One of LeNet5s with weights and samples of its own: batches of 16, 16 and 11."""
    torch.manual_seed(client)
    rows = torch.randperm(len(splits.train.labels))[:samples]
    images, labels = torch.from_numpy(splits.train.images)[rows], torch.from_numpy(splits.train.labels)[rows]
    images = (images.float() / images.max()).repeat(1, channels, size // 8, size // 8)
    policy = policy or Policy(batch_size=16)
    learner = Learner(LeNet5(channels), Samples((images, labels)), policy, name=f"client {client}", seed=0, **given)
    if lesson:
        learner.lesson = Lesson(torch.randn(10, 84), KNOWN, torch.randn(2, 10, 84), KNOWN)
    return learner


def bits(learner):
    """All numbers that training changes."""
    state = learner.state()
    kept = [*state["model"].values(), state["batches"], state["pairing"]]
    return [each.clone() for each in kept + [t for s in state["optimizer"]["state"].values() for t in s.values()]]


def same(some, others):
    return all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in zip(some, others, strict=True))


def train_first(splits, others, place, rounds=2, **given):
    """Train client 0 at this place among these others; its bits, and its losses."""
    group = [make_learner(splits, client, **given) for client in others]
    group.insert(place, make_learner(splits, 0, **given))
    losses = [train_together(group)[place] for _ in range(rounds)]
    return bits(group[place]), losses


@pytest.mark.parametrize(("samples", "channels", "size"), [(43, 1, 8), (1, 1, 8), (27, 1, 32), (18, 3, 16)])
def test_a_clients_bits_do_not_depend_on_whom_it_trains_with(splits, samples, channels, size):
    given = {"samples": samples, "channels": channels, "size": size}
    alone, losses = train_first(splits, [], 0, **given)
    for others, place in [([1], 0), ([1], 1), ([2, 3], 1), ([3, 2, 1], 3), ([4, 3, 2, 1], 2), (range(1, 10), 7)]:
        bits, heard = train_first(splits, others, place, **given)
        assert same(bits, alone), (others, place)
        assert heard == losses


def test_side_by_side_is_the_same_training_up_to_rounding(splits):
    usual = Policy(batch_size=16, optimizer="sgd", learning_rate=0.1)  # Adam makes steps of rounding errors
    for policy in (usual, replace(usual, discriminator="external", lambda_length=1.0, epochs=2)):
        single, stacked = ([make_learner(splits, client, policy=policy) for client in range(3)] for _ in range(2))
        for one, other in zip([learner.train() for learner in single], train_together(stacked), strict=True):
            assert other[:5] == pytest.approx(one[:5], rel=1e-4)
        for one, other in zip(single, stacked, strict=True):
            assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(bits(one), bits(other), strict=True))


def test_the_outputs_are_the_networks_own(splits):
    learners = [make_learner(splits, client) for client in range(4)]
    batches = [learner.samples.batch(torch.arange(11))[0] for learner in learners]
    outputs = forward([learner.network.model for learner in learners], batches)
    for learner, batch, (features, logits) in zip(learners, batches, outputs, strict=True):
        expected = learner.network(batch)
        torch.testing.assert_close(features, expected[0], atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(logits, expected[1], atol=1e-6, rtol=1e-5)


def test_clients_with_fewer_samples_change_nothing_for_the_others(splits):
    def train(sizes):
        group = [make_learner(splits, client, samples=size) for client, size in enumerate(sizes)]
        for _ in range(2):
            train_together(group)
        return [bits(learner) for learner in group]

    unequal, alone = train([43, 10, 5, 60]), [train([43]), train([43, 10])[1:]]
    assert same(unequal[0], alone[0][0])
    assert same(unequal[1], alone[1][0])


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 1e30])
def test_one_clients_broken_numbers_leave_the_others_alone(splits, number):
    healthy = train_first(splits, [1, 2], 1)[0]
    group = [make_learner(splits, client) for client in (1, 0, 2)]
    with torch.no_grad():
        group[0].network.model.features[0].weight[0, 0, 0, 0] = number
        before = bits(group[0])[:10]
    for _ in range(2):
        train_together(group)
    assert same(bits(group[1]), healthy)
    assert group[0].left_out["steps"] == 6 or number == 1e30
    assert same(bits(group[0])[:10], before) or number == 1e30


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_learner_that_was_saved_goes_on_to_the_same_bits(splits, optimizer):
    policy = Policy(batch_size=16, optimizer=optimizer)
    whole = [make_learner(splits, client, policy=policy) for client in range(3)]
    for _ in range(2):
        train_together(whole)
    first = [make_learner(splits, client, policy=policy) for client in range(3)]
    train_together(first)
    again = [make_learner(splits, client, policy=policy) for client in range(3)]
    for one, other in zip(again, first, strict=True):
        one.load_state(other.state())
    for one in again:
        train_together([one])
    assert all(same(bits(a), bits(b)) for a, b in zip(whole, again, strict=True))


def test_who_trains_in_another_way_is_not_stacked(splits):
    class Own(Learner):
        def _descend(self, loss):
            super()._descend(loss)

    usual = make_learner(splits, 0)
    assert describe(usual) == describe(make_learner(splits, 1)) is not None
    assert describe(make_learner(splits, 0, policy=Policy(compute="bf16"))) is None
    assert describe(make_learner(splits, 0, policy=Policy(learning_rate=0.1))) != describe(usual)
    assert describe(Own(LeNet5(), usual.samples, Policy(), name="own", seed=0)) is None
