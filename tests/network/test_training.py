import copy
import math

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import Dataset, TensorDataset

from repshare.config import Policy
from repshare.errors import ConfigError, DataError, Malformed, ModelError
from repshare.measures import Score
from repshare.network.learner import OPTIMIZERS, NetworkLearner
from repshare.network.models import LeNet5
from repshare.samples import Samples
from repshare.sharing.representations import Teacher, nothing, stack


def learner(data, policy=None, model=None, **options):
    torch.manual_seed(0)
    return NetworkLearner(model or LeNet5(), Samples(data), policy or Policy(), name="a", seed=0, **options)


@pytest.fixture
def few(digits):
    (images, labels), _ = digits
    return images[:50], labels[:50]


def weights(learner):
    return torch.cat([p.detach().flatten() for p in learner.network.model.parameters()])


def teacher(rng, classes=range(10), m=1, d=84):
    means = [(rng.uniform(-1, 1, d), c, 3) for c in classes]
    return Teacher(stack(means, d), stack([(rng.uniform(-1, 1, d), c, 3) for c in classes for _ in range(m)], d))


@pytest.mark.parametrize("length", [0.0, 5.0], ids=["the paper's", "short features too"])
def test_local_training_is_algorithm_2_written_out(few, length):
    """One epoch against a plain loop with its own losses, its own Adam and no shared code but the model."""
    rng = np.random.default_rng(0)
    given = teacher(rng)
    ours = learner(few, Policy(lambda_kd=10.0, lambda_disc=1.0, lambda_length=length))
    ours.targets = ours.make_targets(given)

    torch.manual_seed(0)
    model = LeNet5().to(memory_format=torch.channels_last)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    order = torch.randperm(50, generator=torch.Generator().set_state(ours.batches.get_state()))
    means, observed = (torch.from_numpy(rows.vectors) for rows in given[:2])
    for batch in order.split(32):
        x, y = few[0][batch], few[1][batch]
        s = model.features(x)
        p, q = F.softmax(model.head(s), dim=1), F.softmax(model.head(observed), dim=1)
        kd = sum(((s[i] - means[y[i]]) ** 2).sum() for i in range(len(y))) / len(y) / 84
        disc = 0.0
        for i in range(len(y)):
            for c in range(10):
                h = (p[i] * q[c]).sum()
                disc = disc - (torch.log(h) if c == y[i] else torch.log(1 - h)) / len(y) / 10
        short = (s**2).sum() / len(y) / 84
        loss = F.cross_entropy(model.head(s), y) + 10 * kd + disc + length * short
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    ours.train()
    assert torch.allclose(weights(ours), torch.cat([p.flatten() for p in model.parameters()]), atol=2e-5)


class OfSeveralTypes(LeNet5):
    def __init__(self):
        super().__init__()
        self.offset = nn.Parameter(torch.zeros(3, dtype=torch.float64))


@pytest.mark.parametrize("make", [LeNet5, OfSeveralTypes], ids=["one type", "several types"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_steps_are_the_optimizers_own_to_the_last_bit_and_leave_no_gradients(few, make, optimizer):
    ours = learner(few, Policy(optimizer=optimizer), make())
    model = copy.deepcopy(ours.network.model)
    plain = OPTIMIZERS[optimizer](model.parameters(), lr=1e-3, fused=True)
    for without in (("head.bias",), (), ("head.weight",), (), (), ("head.bias",)):  # which then do not count the step
        for (name, own), theirs in zip(ours.network.model.named_parameters(), model.parameters(), strict=True):
            own.grad = None if name in without else torch.randn_like(own)
            theirs.grad = copy.deepcopy(own.grad)
        plain.step()
        ours._descend(torch.tensor(1.0))
        assert all(parameter.grad is None for parameter in ours.network.model.parameters())
    for own, theirs in zip(ours.network.model.parameters(), model.parameters(), strict=True):
        assert torch.equal(own, theirs)
    kept, expected = ours.optimizer.state_dict()["state"], plain.state_dict()["state"]
    assert kept.keys() == expected.keys()
    for index, values in expected.items():
        assert kept[index].keys() == values.keys()
        assert all(torch.equal(kept[index][name], values[name]) for name in values if values[name] is not None)


def test_without_gradients_a_step_is_made_if_the_loss_is_finite(few):
    ours = learner(few)
    for loss in (1.0, math.nan):
        ours._descend(torch.tensor(loss))
    assert ours._left_out == 1


def test_without_a_teacher_only_cross_entropy_is_reported(few):
    losses = learner(few).train()
    assert losses.ce > 0
    assert losses.kd is losses.disc is losses.bound is None
    assert 0 <= losses.train_accuracy <= 1


def test_the_bound_is_reported_also_when_the_discriminator_does_not_count(few):
    on, off = (learner(few, Policy(lambda_kd=0.0, lambda_disc=weight, epochs=20)) for weight in (10.0, 0.0))
    for each in (on, off):
        each.targets = each.make_targets(teacher(np.random.default_rng(0)))
    bounds = [each.train().bound for each in (on, off)]
    assert all(bound < math.log(9) for bound in bounds)
    assert bounds[0] > bounds[1]  # training for it raises it


def test_both_lambdas_zero_leave_the_weights_of_training_alone(few):
    alone, taught = learner(few), learner(few, Policy(lambda_kd=0.0, lambda_disc=0.0, m_down=3))
    taught.targets = taught.make_targets(teacher(np.random.default_rng(0), m=3))
    alone.train()
    assert taught.train().kd is not None
    assert torch.equal(weights(alone), weights(taught))


def test_classes_nobody_shared_leave_no_trace(few):
    """A lesson on classes that this client lacks only ever enters as what its samples are not."""
    images, labels = few
    held = labels < 5
    absent = learner((images[held], labels[held]), Policy(lambda_disc=0.0))
    absent.targets = absent.make_targets(teacher(np.random.default_rng(0), classes=range(5, 10)))
    alone = learner((images[held], labels[held]))
    assert absent.train().kd is None
    alone.train()
    assert torch.equal(weights(absent), weights(alone))


def test_each_sample_meets_each_of_several_observations_sometimes(few):
    several = learner(few, Policy(m_down=3))
    several.targets = several.make_targets(teacher(np.random.default_rng(0), m=3))
    drawn = several._pair(several.targets.observations, 200)  # (200, C, d)
    assert len({tuple(row[0].tolist()) for row in drawn}) == 3


def test_a_class_with_fewer_observations_repeats_them(few):
    mine = learner(few, Policy(m_down=3))
    rng = np.random.default_rng(0)
    rows = [(rng.uniform(-1, 1, 84), 0, 1) for _ in range(3)] + [(rng.uniform(-1, 1, 84), 1, 1)]
    lesson = mine.make_targets(Teacher(nothing(84), stack(rows, 84)))
    assert lesson.observations.shape == (3, 10, 84)
    assert lesson.has_observation.tolist() == [True, True] + [False] * 8
    assert (lesson.observations[:, 1] == lesson.observations[0, 1]).all()


@pytest.mark.parametrize(
    "bad", [Teacher(nothing(83), nothing(83)), Teacher(stack([(np.zeros(84), 10, 1)], 84), nothing(84))]
)
def test_a_teacher_of_another_task_is_refused(few, bad):
    with pytest.raises(Malformed):
        learner(few).make_targets(bad)


def test_a_teacher_with_more_than_was_asked_for_is_refused(few):
    with pytest.raises(Malformed, match="3 observations of a class; 2 were asked for"):
        learner(few, Policy(m_down=2)).make_targets(teacher(np.random.default_rng(0), m=3))


def test_representing_and_testing_leave_the_model_untouched(few):
    mine = learner(few)
    before = weights(mine)
    vectors, labels = mine.represent()
    assert vectors.shape == (50, 84)
    assert labels.tolist() == few[1].tolist()
    assert mine.evaluate(Samples(few)).accuracy == pytest.approx(
        float((mine.network.model.eval()(few[0]).argmax(1) == few[1]).float().mean())
    )
    assert torch.equal(before, weights(mine))


def test_a_test_counts_each_class_apart(few):
    images, labels = few[0][few[1] != 3], few[1][few[1] != 3]
    mine = learner(few)
    mine.train()
    score = mine.evaluate(Samples((images, labels)))
    right = mine.network.model.eval()(images).argmax(1) == labels
    assert score.right.tolist() == [int(right[labels == c].sum()) for c in range(10)]
    assert score.totals.tolist() == [int((labels == c).sum()) for c in range(10)]


def test_a_score_can_be_weighted_by_what_someone_has():
    score = Score(np.array([3, 1, 0]), np.array([4, 2, 0]))
    assert score.accuracy == 4 / 6
    assert score.weighted(np.array([1, 3, 5])) == pytest.approx((0.75 + 3 * 0.5) / 4)  # nobody can test the last
    assert score.weighted(np.array([0, 0, 5])) is None


def test_one_sample_is_enough_to_train_on(few):
    losses = learner((few[0][:1], few[1][:1])).train()
    assert math.isfinite(losses.ce)


def test_a_last_batch_of_one_joins_the_one_before_it(few):
    sizes = [len(labels) for _, labels in Samples((few[0][:33], few[1][:33])).shuffled(32, torch.Generator())]
    assert sizes == [33]


class Pictures(Dataset):
    """A user's dataset: mappings, not tensors in a row."""

    def __init__(self, images, labels):
        self.images, self.labels = images, labels

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"images": self.images[index]}, int(self.labels[index])


class Keyword(nn.Module):
    def __init__(self):
        super().__init__()
        self.lenet = LeNet5()

    def forward(self, images):
        return self.lenet(images)


def test_any_dataset_trains_as_its_tensors_would(few):
    tensors, pictures = learner(few), learner(Pictures(*few), model=_seeded(Keyword))
    tensors.train()
    pictures.train()
    assert torch.equal(weights(tensors), weights(pictures))


def _seeded(make):
    torch.manual_seed(0)
    return make()


def test_labels_that_the_model_has_no_logit_for_are_refused(few):
    with pytest.raises(DataError, match="sample 3 has label 10; labels must be 0 to 9"):
        learner((few[0], few[1].clone().index_fill_(0, torch.tensor([3]), 10)))


def test_inputs_that_are_not_finite_are_refused(few):
    broken = few[0].clone()
    broken[7, 0, 0, 0] = float("nan")
    with pytest.raises(DataError, match="NaN"):
        Samples((broken, few[1]))


def test_no_sample_at_all_is_refused(few):
    with pytest.raises(DataError, match="no sample"):
        Samples((few[0][:0], few[1][:0]))


@pytest.mark.parametrize(
    "change",
    [{"learning_rate": 3e-3}, {"optimizer": "sgd"}, {"optimizer": "adamw"}, {"batch_size": 16}, {"epochs": 2},
     {"lambda_kd": 1.0}, {"lambda_disc": 5.0}, {"lambda_length": 1.0}],
    ids=str,
)  # fmt: skip
def test_every_choice_about_training_shows_in_the_weights(few, change):
    usual, changed = learner(few), learner(few, Policy(**change))
    for each in (usual, changed):
        each.targets = each.make_targets(teacher(np.random.default_rng(0)))
        each.train()
    assert not torch.equal(weights(usual), weights(changed))


def noisy(seed=0):
    torch.manual_seed(seed)
    layers = [nn.Flatten(), nn.Linear(64, 20), nn.BatchNorm1d(20), nn.Tanh(), nn.Dropout(0.5), nn.Linear(20, 10)]
    return nn.Sequential(*layers)


def test_training_is_noisy_and_representing_is_not(few):
    mine = learner(few, model=noisy())
    mine.train()
    statistics = mine.network.model[2].running_mean.clone()
    assert statistics.abs().sum() > 0
    first, second = mine.represent()[0], mine.represent()[0]
    assert np.array_equal(first, second)
    assert torch.equal(mine.network.model[2].running_mean, statistics)
    mine.train()
    assert not torch.equal(mine.network.model[2].running_mean, statistics)


def test_dropout_draws_from_the_clients_own_stream(few):
    finals = []
    for consumed in (0, 7):
        mine = learner(few, model=noisy())
        torch.rand(consumed)
        before = torch.random.get_rng_state()
        mine.train()
        assert torch.equal(before, torch.random.get_rng_state())
        finals.append(weights(mine))
    assert torch.equal(*finals)


def test_clients_of_other_names_and_seeds_draw_other_numbers(few):
    def draws(name, seed):
        mine = NetworkLearner(LeNet5(), Samples(few), Policy(), name=name, seed=seed)
        batch = next(mine.samples.shuffled(32, mine.batches))[1].tolist()
        return batch, mine.averaging.integers(2**60), int(torch.randint(2**60, (), generator=mine.noise))

    reference = draws("a", 0)
    assert draws("a", 0) == reference
    for other in (draws("b", 0), draws("a", 1)):
        assert all(mine != theirs for mine, theirs in zip(reference, other, strict=True))


def test_reported_accuracy_counts_every_sample_once(few):
    accuracy = learner(few).train().train_accuracy  # batches of 32 and 18
    assert accuracy * 50 == pytest.approx(round(accuracy * 50), abs=1e-4)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"share_samples": (0, 50)}, "share_samples has 50"), ({"share_samples": (-1,)}, "share_samples has -1"),
     ({"share_classes": (10,)}, "share_classes has 10")],
)  # fmt: skip
def test_what_may_be_shared_is_named_by_indices_that_exist(few, change, words):
    with pytest.raises(ConfigError, match=words):
        learner(few, Policy(**change))


def test_a_model_with_nothing_to_train_is_refused(few):
    with pytest.raises(ModelError, match="frozen"):
        learner(few, model=noisy().requires_grad_(False))


def test_one_sample_cannot_be_batch_normalised(few):
    with pytest.raises(DataError, match="a cannot train on a batch of 1"):
        learner((few[0][:1], few[1][:1]), model=noisy()).train()


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_models_of_other_precisions_learn_from_a_teacher(few, kind):
    images = few[0].to(kind)
    mine = learner((images, few[1]), model=noisy().to(kind))
    mine.targets = mine.make_targets(teacher(np.random.default_rng(0), d=20))
    assert math.isfinite(mine.train().kd)


@pytest.mark.parametrize(
    "labels",
    [np.arange(50) / 2, np.zeros((50, 1), int), np.zeros((50, 10)), np.arange(49), "text"],
    ids=["halves", "column", "one-hot", "one too few", "text"],
)
def test_labels_that_are_not_one_whole_number_a_sample_are_refused(few, labels):
    with pytest.raises(DataError):
        Samples((few[0], labels))


class Rows(Pictures):
    """The same in tensors, with labels as they are."""

    def __getitem__(self, index):
        return self.images[index], self.labels[index]


@pytest.mark.parametrize("wrap", [Rows, TensorDataset])
@pytest.mark.parametrize("labels", [torch.arange(50) + 0.9, torch.zeros(50, 1, dtype=int)], ids=["floats", "column"])
def test_such_labels_of_a_dataset_are_refused_too(few, wrap, labels):
    with pytest.raises(DataError, match="labels must be whole numbers in a row, not torch"):
        Samples(wrap(few[0], labels))
    with pytest.raises(DataError, match=r"labels are words \('seven'\): number them"):
        Samples(Rows(few[0], ["seven"] * 50))


def test_arrays_that_pytorch_cannot_look_at_are_copied(few):
    images, labels = few[0].numpy(), few[1].numpy()
    reversed_ = Samples((images[::-1], labels[::-1]))
    frozen = images.copy()
    frozen.flags.writeable = False
    assert reversed_.labels.tolist() == labels[::-1].tolist()
    assert torch.equal(Samples((frozen, labels)).batch(torch.arange(3))[0], few[0][:3])


def test_a_network_that_computes_in_bf16_learns_nearly_the_same_with_weights_in_fp32(few):
    exact, coarse = (learner(few, Policy(compute=compute, epochs=3)) for compute in ("fp32", "bf16"))
    losses = [each.train() for each in (exact, coarse)]
    assert losses[0].ce != losses[1].ce == pytest.approx(losses[0].ce, rel=0.02)
    assert {parameter.dtype for parameter in coarse.network.model.parameters()} == {torch.float32}
    vectors, _ = coarse.represent()
    assert vectors.dtype == np.float32
