"""Which samples classifiers get right that have not seen them: the same as making each of these classifiers."""

import numpy as np
import pytest
import torch

from repshare.board import Board, Wants
from repshare.config import Policy
from repshare.samples import as_samples
from repshare.sharing import wire
from repshare.sharing.sums import Sums, scales
from repshare.space import Fourier, Patches
from repshare.space.agreement import Agreement
from repshare.space.discriminant import Discriminant
from repshare.space.dual import Dual
from repshare.space.learner import SpaceLearner
from repshare.space.solution import Total

CLASSES, N, SHRINKAGE = 10, 60, 0.01
SPACE = Patches((1, 8, 8), sizes=(3,), filters=8)


@pytest.fixture(scope="module")
def data(digits):
    (images, labels), _ = digits
    return SPACE(images[:N]).numpy(), labels[:N].numpy()


def settle(clients, rounds):
    """Rounds of all clients; then the total."""

    agreement = Agreement(SPACE, shrinkage=SHRINKAGE)
    board = Board(agreement.task(CLASSES))
    for number in range(1, rounds + 1):
        for name, client in enumerate(clients):
            client.improve()
            board.accept(str(name), wire.encode_release(client.release(number, agreement.name), "fp32"))
            client.acknowledge()
        for name, client in enumerate(clients):
            client.absorb(agreement.read(board.teach(str(name), Wants(0, 0)), CLASSES))
    return clients


@pytest.mark.parametrize("own", [12, 30])
def test_leave_one_out_is_what_a_classifier_without_the_sample_says(data, own):
    vectors, labels = data
    clients = [Dual(vectors[rows], labels[rows], CLASSES, shrinkage=SHRINKAGE) for rows in (slice(own), slice(own, N))]
    mine, _ = settle(clients, 150)
    together, alone = mine.leave_one_out()
    left = mine.linear()(mine.vectors).argmax(axis=1) == mine.labels
    view = mine._read(mine.published)
    centred = vectors - view.linear.centre
    others = mine.own_scores(view.linear) - centred[:own] @ centred[:own].T @ mine.published.alpha / view.scale
    expected = np.zeros(own, bool)
    for out in range(own):
        rest = np.arange(own) != out
        kernel = centred[:own][rest] @ centred[:own][rest].T / view.scale
        alpha = np.linalg.solve(np.eye(own - 1) + kernel, mine.targets[rest] - others[rest])
        score = others[out] + centred[out] @ centred[:own][rest].T @ alpha / view.scale
        expected[out] = score.argmax() == labels[out]
    np.testing.assert_array_equal(together, expected)
    assert left.all(), "all are right by the classifier that has seen them"
    assert not together.all(), "and some are not without"
    by_hand = [
        Dual(vectors[:own][rest], labels[:own][rest], CLASSES, shrinkage=SHRINKAGE * own / (own - 1))
        .alone()(vectors[out : out + 1]).argmax() == labels[out]
        for out in range(own)
        for rest in [np.arange(own) != out]
    ]  # fmt: skip
    assert np.mean(alone == by_hand) >= 0.9, "the centre and the shares of classes are those of all own samples"


def test_before_its_part_is_in_the_total_a_client_has_seen_nothing_of_others_samples(data):
    vectors, labels = data
    other = Dual(vectors[12:], labels[12:], CLASSES, shrinkage=SHRINKAGE)
    other.improve()
    mine = Dual(vectors[:12], labels[:12], CLASSES, shrinkage=SHRINKAGE)
    mine.absorb(Total(other.part()))
    together, _ = mine.leave_one_out()
    np.testing.assert_array_equal(together, mine.linear()(vectors[:12]).argmax(axis=1) == labels[:12])


def test_sums_are_judged_by_tenths(data):
    vectors, labels = data
    mine = Discriminant(vectors[:30], labels[:30], CLASSES, personal=True)

    factor, _ = scales(vectors.shape[1])
    sums = np.zeros((CLASSES, vectors.shape[1]))
    np.add.at(sums, labels, vectors.astype(np.float64) * factor)
    mine.absorb(Sums(sums, np.bincount(labels, minlength=CLASSES).astype(float), 0.0, 2))
    seen = mine.leave_one_out()[0]
    mine.acknowledge()
    unseen, alone = mine.leave_one_out()
    rest = np.arange(30) % 10 != 0
    kept = np.concatenate([vectors[:30][rest], vectors[30:]]), np.concatenate([labels[:30][rest], labels[30:]])
    sums = np.zeros((CLASSES, vectors.shape[1]))
    np.add.at(sums, kept[1], kept[0].astype(np.float64) * factor)
    fewer = Discriminant(vectors[:30][rest], labels[:30][rest], CLASSES, personal=True)
    fewer.absorb(Sums(sums, np.bincount(kept[1], minlength=CLASSES).astype(float), 0.0, 2))
    np.testing.assert_array_equal(unseen[~rest], fewer.linear()(vectors[:30][~rest]).argmax(1) == labels[:30][~rest])
    np.testing.assert_array_equal(alone[~rest], fewer.alone()(vectors[:30][~rest]).argmax(1) == labels[:30][~rest])
    assert seen.mean() > unseen.mean()


@pytest.mark.parametrize(
    ("sizes", "right", "doubts"),
    [
        ((60, 3), ((60, 0), (45, 3)), False),  # classes count the same: the rare one gains more than the other loses
        ((30, 30), ((28, 28), (15, 15)), True),
        ((50, 0), ((50, 0), (40, 0)), False),  # alone it knows nothing else
        ((6, 6), ((6, 6), (3, 3)), True),
    ],
)
def test_others_are_doubted_where_they_cost_more_than_chance_class_by_class(data, sizes, right, doubts):
    labels = np.repeat([0, 1], sizes)
    vectors = np.resize(data[0], (len(labels), data[0].shape[1]))
    given = as_samples((torch.from_numpy(vectors), torch.from_numpy(labels)), "cpu")
    policy = Policy(prefer_own=True, share_inputs=True)
    learner = SpaceLearner(given, policy, Agreement(Fourier((-4.0,) * 144, (4.0,) * 144, features=8)), classes=2)
    alone, together = (
        np.concatenate([np.arange(size) < good for size, good in zip(sizes, each, strict=True)]) for each in right
    )
    assert (learner._doubt(together, alone) is not None) == doubts


@pytest.mark.parametrize(("lost", "gained", "doubts"), [(4, 0, False), (5, 0, True), (7, 2, False), (9, 2, True)])
def test_of_held_out_samples_so_many_must_be_lost_that_chance_has_less_than_a_twentieth(data, lost, gained, doubts):
    vectors = np.resize(data[0], (400, data[0].shape[1]))
    given = as_samples((torch.from_numpy(vectors), torch.arange(400) % 2), "cpu")
    policy = Policy(prefer_own=True, share_inputs=True)
    learner = SpaceLearner(given, policy, Agreement(Fourier((-4.0,) * 144, (4.0,) * 144, features=8)), classes=2)
    assert learner.judged_on == "held-out samples"
    places = np.arange(40)
    alone, together = places >= gained, (places < 40 - lost)
    assert (learner._doubt(together, alone) is not None) == doubts
