"""Each loss against plain loops on small vectors that a reader can follow."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from repshare.network.objective import (
    Targets,
    contrast,
    cross_entropy,
    discrimination,
    distillation,
    information_bound,
    log_one_minus,
    log_same_class,
)

NORTH, EAST, SOUTH, WEST = (0.0, 1.0), (1.0, 0.0), (0.0, -1.0), (-1.0, 0.0)


def lesson(means=((0.0, 0.0),) * 3, has_mean=(True, True, True), observations=None, has_observation=None):
    observations = torch.zeros(0, len(means), 2) if observations is None else torch.tensor(observations)
    has_observation = [False] * len(means) if has_observation is None else has_observation
    return Targets(torch.tensor(means), torch.tensor(has_mean), observations, torch.tensor(has_observation))


def softmax(logits):
    weights = [math.exp(z - max(logits)) for z in logits]
    return [weight / sum(weights) for weight in weights]


def loop_same_class(s, t):
    return sum(p * q for p, q in zip(softmax(s), softmax(t), strict=True))


def test_cross_entropy_is_minus_the_log_of_the_right_class():
    logits, labels = [[1.0, 2.0, 0.5], [0.0, 0.0, 3.0]], [1, 0]
    expected = -sum(math.log(softmax(z)[c]) for z, c in zip(logits, labels, strict=True)) / 2
    assert float(cross_entropy(torch.tensor(logits), torch.tensor(labels))) == pytest.approx(expected)


def test_distillation_is_the_squared_distance_to_the_mean_of_the_own_class():
    features, labels = torch.tensor([NORTH, EAST]), torch.tensor([0, 2])
    teacher = lesson(means=(EAST, SOUTH, WEST))  # ‖north − east‖² = 2, ‖east − west‖² = 4
    assert float(distillation(features, labels, teacher)) == pytest.approx((2 + 4) / 2 / 2)  # two samples, two features


def test_samples_of_a_class_nobody_shared_do_not_count_in_distillation():
    features, labels = torch.tensor([NORTH, EAST]), torch.tensor([0, 2])
    teacher = lesson(means=(EAST, SOUTH, WEST), has_mean=(True, True, False))
    assert float(distillation(features, labels, teacher)) == pytest.approx(2 / 2)


def test_distillation_without_any_shared_class_is_nothing():
    assert distillation(torch.tensor([NORTH]), torch.tensor([0]), lesson(has_mean=(False,) * 3)) is None


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_discriminator_is_the_inner_product_of_two_softmaxes(dtype):
    s, t = [0.3, -1.0, 2.0], [1.0, 0.5, 0.0]
    same, other = log_same_class(torch.tensor(s, dtype=dtype), torch.tensor(t, dtype=dtype))
    assert float(same.exp()) == pytest.approx(loop_same_class(s, t), rel=1e-5)
    assert float(other.exp()) == pytest.approx(1 - loop_same_class(s, t), rel=1e-5)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=6), st.randoms())
def test_same_and_other_class_are_complementary(s, random):
    t = [random.uniform(-5, 5) for _ in s]
    same, other = log_same_class(torch.tensor(s, dtype=torch.float64), torch.tensor(t, dtype=torch.float64))
    assert float(same.exp() + other.exp()) == pytest.approx(1)


@pytest.mark.parametrize(
    ("s", "t", "same", "other"),
    [
        # Certain of the same class: 1 − ĥ = 2·e⁻²⁰⁰ to first order, for both softmaxes lack e⁻²⁰⁰.
        ([100.0, -100.0], [100.0, -100.0], 0.0, math.log(2) - 200),
        ([100.0, -100.0], [-100.0, 100.0], math.log(2) - 200, 0.0),
        ([100.0, -100.0], [0.0, 0.0], math.log(0.5), math.log(0.5)),
    ],
)
def test_logits_of_100_give_finite_and_right_values(s, t, same, other):
    log_same, log_other = log_same_class(torch.tensor(s), torch.tensor(t))
    assert float(log_same) == pytest.approx(same, abs=1e-4)
    assert float(log_other) == pytest.approx(other, abs=1e-4)


def test_the_gradient_at_logits_of_100_pulls_a_confident_mistake_back():
    # ĥ ≈ 2·e⁻²⁰⁰, so −log ĥ = 200 − log 2 and grows with slope 1 in s₀ − s₁ (half on each softmax's share).
    s = torch.tensor([100.0, -100.0], requires_grad=True)
    log_same, _ = log_same_class(s, torch.tensor([-100.0, 100.0]))
    (-log_same).backward()
    assert torch.isfinite(s.grad).all()
    assert s.grad.tolist() == pytest.approx([0.5, -0.5], abs=1e-5)


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8), st.randoms())
def test_no_logits_within_100_give_a_gradient_that_is_not_finite(logits, random):
    s = torch.tensor(logits, requires_grad=True)
    t = torch.tensor([random.uniform(-100, 100) for _ in logits], requires_grad=True)
    for value in log_same_class(s, t):
        gradients = torch.autograd.grad(value, (s, t), retain_graph=True)
        assert torch.isfinite(value)
        assert all(torch.isfinite(gradient).all() for gradient in gradients)


def test_gradients_agree_with_finite_differences():
    s = torch.randn(4, 1, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    t = torch.randn(1, 3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1), requires_grad=True)
    assert torch.autograd.gradcheck(log_same_class, (s, t))


def test_log_one_minus_is_exact_where_a_probability_rounds_to_one():
    log_q = F.log_softmax(torch.tensor([50.0, 0.0]), dim=0)
    assert float(log_q[0].exp()) == 1.0
    assert log_one_minus(log_q).tolist() == pytest.approx([-50.0, 0.0], abs=1e-5)


def loop_discrimination(student, teacher, labels, has_observation):
    """ℓ_disc(1, s, t^y) + Σ_{c ≠ y} ℓ_disc(0, s, t^c) of each sample, as Algorithm 2 writes it."""
    totals = []
    for s, y in zip(student, labels, strict=True):
        total = 0.0
        for c, t in enumerate(teacher):
            if has_observation[c]:
                h = loop_same_class(s, t)
                total -= math.log(h) if c == y else math.log(1 - h)
        totals.append(total)
    return totals


STUDENT = [[2.0, 0.1, -1.0], [0.0, 1.0, 0.5], [-0.3, 0.2, 1.5], [1.0, 1.0, 1.0]]
TEACHER = [[1.5, 0.0, -0.5], [0.2, 2.0, 0.0], [-1.0, 0.3, 0.9]]
LABELS = [0, 1, 2, 0]


@pytest.mark.parametrize("has_observation", [(True, True, True), (True, False, True), (False, True, False)])
def test_discrimination_equals_the_loop_of_algorithm_2(has_observation):
    pairs = contrast(
        torch.tensor(STUDENT), torch.tensor([TEACHER]), torch.tensor(LABELS), torch.tensor(has_observation)
    )
    totals = loop_discrimination(STUDENT, TEACHER, LABELS, has_observation)
    assert float(discrimination(pairs)) == pytest.approx(np.mean(totals) / sum(has_observation), rel=1e-5)


def test_discrimination_without_observations_is_nothing():
    pairs = contrast(torch.tensor(STUDENT), torch.tensor([TEACHER]), torch.tensor(LABELS), torch.tensor([False] * 3))
    assert discrimination(pairs) is None
    assert information_bound(pairs, torch.tensor(LABELS)) is None


def test_the_bound_is_log_k_minus_the_summed_loss_of_samples_whose_class_was_observed():
    has_observation = (True, True, False)
    pairs = contrast(
        torch.tensor(STUDENT), torch.tensor([TEACHER]), torch.tensor(LABELS), torch.tensor(has_observation)
    )
    totals = loop_discrimination(STUDENT, TEACHER, LABELS, has_observation)
    expected = math.log(1) - np.mean([totals[0], totals[1], totals[3]])
    assert float(information_bound(pairs, torch.tensor(LABELS))) == pytest.approx(expected, rel=1e-5)


# The theorem on a distribution whose mutual information is known exactly: Y uniform on three classes, the student
# and the teacher each see Y through a channel that errs with probability `error`.


def channel(error):
    return np.full((3, 3), error / 2) + np.eye(3) * (1 - 1.5 * error)


def exact_information(joint):
    product = joint.sum(1, keepdims=True) @ joint.sum(0, keepdims=True)
    kept = joint > 0
    return float((joint[kept] * np.log(joint[kept] / product[kept])).sum())


def exact_bound(joint, h, K):
    """log K − L_disc with both expectations summed exactly."""
    product = joint.sum(1, keepdims=True) @ joint.sum(0, keepdims=True)
    return math.log(K) + float((joint * np.log(h)).sum()) + K * float((product * np.log(1 - h)).sum())


def discriminators(joint, K):
    product = joint.sum(1, keepdims=True) @ joint.sum(0, keepdims=True)
    posterior = joint / (joint + K * product)  # q(i = 1 | s, t), the best there is
    logits = torch.eye(3, dtype=torch.float64) * 2  # τ of three one-hot features: the paper's classifier-based ĥ
    classifier = log_same_class(logits[:, None, :], logits[None, :, :])[0].exp().numpy()
    return {"posterior": posterior, "constant": np.full((3, 3), 0.5), "classifier": classifier,
            "wrong": 1 - posterior, "overconfident": posterior**3}  # fmt: skip


@pytest.mark.parametrize("error", [0.0, 0.05, 0.3, 2 / 3])
@pytest.mark.parametrize("K", [2, 9])
def test_the_bound_never_exceeds_the_mutual_information(error, K):
    joint = channel(error).T @ channel(error) / 3
    information = exact_information(joint)
    if error == 0:
        assert information == pytest.approx(math.log(3))
    if error == 2 / 3:
        assert information == pytest.approx(0, abs=1e-12)
    bounds = {}
    for name, h in discriminators(joint, K).items():
        bounds[name] = exact_bound(joint, np.clip(h, 1e-300, 1 - 1e-16), K)
        assert bounds[name] <= information + 1e-9, name
    assert max(bounds, key=bounds.get) == "posterior"


def test_our_estimate_of_the_bound_is_the_theorems_on_a_sample_of_every_pair():
    # One sample and one observation of each class, noiseless: both expectations are then plain averages.
    logits = torch.eye(3) * 2
    pairs = contrast(logits, logits[None], torch.arange(3), torch.ones(3, dtype=torch.bool))
    h = log_same_class(logits[:, None, :], logits[None])[0].exp().double().numpy()
    others = np.where(np.eye(3, dtype=bool), 0, np.log(1 - h)).sum() / 3
    expected = math.log(2) + np.log(np.diag(h)).mean() + others
    assert float(information_bound(pairs, torch.arange(3))) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("counts", [[1] * 10, [30], [5, 5], [8, 1, 1], [2, *[1] * 9]])
def test_the_bound_of_a_one_sided_client_is_too_high_by_at_most_what_we_say(counts):
    labels = torch.tensor([label for label, count in enumerate(counts) for _ in range(count)])
    certain = 20 * torch.eye(10)  # s and t say their class and nothing else: the information is the labels' entropy
    pairs = contrast(certain[labels], certain[None], labels, torch.ones(10, dtype=torch.bool))
    shares = np.array(counts) / len(labels)
    information = -float((shares * np.log(shares)).sum())
    excess = float(information_bound(pairs, labels)) - information
    assert excess <= math.log(9 * shares.max()) + 1e-6
    assert (excess > 0) == (len(counts) < 10)
