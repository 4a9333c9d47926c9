import math

import numpy as np
import pytest
import torch
from torch import nn

from repshare import Board, Client, LeNet5, LocalExchange, MemoryStore, Policy, Task
from repshare.board import Wants
from repshare.errors import ConfigError, DataError, Malformed, Refused, Unreachable
from repshare.exchange import Exchange
from repshare.methods import CS, IL, RS
from repshare.sharing import wire
from repshare_lab import load
from repshare_lab.methods import FD, FL


@pytest.fixture
def halves(digits):
    (images, labels), test = digits
    return [(images[i:400:2], labels[i:400:2]) for i in range(2)], test


def lenet(seed=0, **options):
    torch.manual_seed(seed)
    return LeNet5(**options)


def pair(data, board=None, policies=(None, None), models=None, **options):
    board = board or Board(Task(classes=10, dimension=84), MemoryStore())
    models = models or (lenet(0), lenet(1))
    return [
        Client(model, part, LocalExchange(board, name), name=name, policy=policy, **options)
        for model, part, name, policy in zip(models, data, "ab", policies, strict=True)
    ]


def test_rounds_yield_a_record_each_and_others_teach_from_the_second(halves):
    data, test = halves
    a, b = pair(data, test=test)
    records = list(zip(a.rounds(3), b.rounds(3), strict=True))
    first, last = records[0][0], records[-1][0]
    assert [record.round for record, _ in records] == [1, 2, 3]
    assert first.disc is None
    assert last.disc > 0
    assert last.bound < math.log(9)
    assert 0 < last.test_accuracy < 1
    assert last.bytes_up > 2 * 10 * 84 * 4
    assert last.bytes_down > 2 * 10 * 84 * 4


@pytest.mark.parametrize("method", [RS, FD], ids=lambda method: method.name)
def test_round_1_has_a_teacher_that_keeps_outputs_short(halves, method):
    data, _ = halves
    strict, free = (
        pair(
            data,
            policies=[Policy(start=start, epochs=20)] * 2,
            board=Board(Task(10, 84 if method is RS else 10)),
            method=method,
        )[0]
        for start in ("zeros", "none")
    )
    taught, alone = strict.round(), free.round()
    assert alone.kd is None
    assert taught.kd > 0
    lengths = [float(np.linalg.norm(each.learner.represent()[0], axis=1).mean()) for each in (strict, free)]
    assert lengths[0] < 0.5 * lengths[1]


def test_a_client_that_comes_later_is_taught_by_others_at_once(halves):
    data, _ = halves
    a, b = pair(data)
    a.round()
    b.round()
    shared = wire.decode_release(a.learner.release(1)).means.vectors
    assert b.learner.targets.means.abs().max() > 0
    assert np.allclose(b.learner.targets.means.numpy(), shared, atol=1e-5)


def test_a_client_that_stays_alone_is_held_short_in_round_1_only(halves):
    data, _ = halves
    alone, _ = pair(data)
    records = list(alone.rounds(2))
    assert records[0].kd is not None
    assert records[1].kd is None


@pytest.mark.parametrize("optimizer", ["adam", "sgd"])  # plain SGD has no state that would tell of training
def test_a_client_that_has_trained_alone_loses_nothing_to_a_board_without_releases(halves, optimizer):
    data, _ = halves
    alone, _ = pair(data, policies=[Policy(optimizer=optimizer)] * 2)
    alone.exchange, later = None, alone.exchange
    alone.round()
    alone.exchange = later
    assert alone.round().kd is None


def test_clients_of_different_architectures_and_policies_learn_together(halves):
    data, _ = halves
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Flatten(), nn.Linear(64, 84), nn.Tanh(), nn.Linear(84, 10))
    a, b = pair(data, models=(lenet(), wide), policies=(Policy(m_down=2, epochs=2), Policy(lambda_disc=0.0, n_avg=3)))
    record_a, record_b = list(zip(a.rounds(3), b.rounds(3), strict=True))[-1]
    assert record_a.kd is not None
    assert record_b.kd is not None


def test_a_client_whose_representations_do_not_fit_the_task_is_refused(halves):
    data, _ = halves
    _, b = pair(data, models=(lenet(), lenet(dimension=50)))
    with pytest.raises(Malformed, match="representations have 84 numbers, this model's 50"):
        b.learner.absorb(b.exchange.collect(Wants(1, 0)))
    assert "representations of 50 numbers; the task's have 84" in b.round().trouble
    with pytest.raises(Refused, match="representations of 50 numbers; the task's have 84"):
        b.exchange.publish(b.learner.release(1))


def test_only_what_the_policy_allows_leaves(halves):
    data, _ = halves
    board = Board(Task(10, 84), MemoryStore())
    allowed = tuple(i for i, label in enumerate(data[0][1].tolist()) if label in (1, 2))[:9]
    policy = Policy(share_classes=(1, 7), share_samples=allowed, minimum_count=2, m_up=3)
    a, _ = pair(data, board, policies=(policy, None))
    a.round()
    left = wire.decode_teacher(board.teach("b", Wants(10, 0)))
    ones = sum(data[0][1][i].item() == 1 for i in allowed)
    assert left.means.labels.tolist() == [1]
    assert left.means.counts.tolist() == [ones]
    assert left.observations.labels.tolist() == [1, 1, 1]


def test_a_client_learns_only_from_the_peers_it_names(halves):
    data, _ = halves
    board = Board(Task(10, 84))
    a, b = pair(data, board, policies=(Policy(peers=("c",)), Policy(peers=("a",))))
    record_a, record_b = list(zip(a.rounds(3), b.rounds(3), strict=True))[-1]
    assert record_a.kd is None
    assert record_b.kd is not None


class Tapped(Exchange):
    """A local exchange that keeps what passed through."""

    def __init__(self, exchange):
        self.exchange, self.bodies = exchange, []

    def publish(self, body):
        self.bodies.append(body)
        self.exchange.publish(body)

    def collect(self, wants):
        return self.exchange.collect(wants)


@pytest.mark.parametrize("method", [RS, FD], ids=lambda method: method.name)
def test_no_raw_sample_and_no_weight_is_in_the_bytes_that_leave(halves, method):
    data, _ = halves
    board = Board(Task(10, 84 if method is RS else 10), MemoryStore())
    tapped = Tapped(LocalExchange(board, "a"))
    client = Client(lenet(), data[0], tapped, name="a", method=method)
    for _ in client.rounds(3):
        pass
    sent = b"".join(tapped.bodies)
    network = client.learner.network
    with torch.inference_mode():
        features, logits = network(data[0][0])
    private = [image.numpy() for image in data[0][0]] + [p.detach().numpy() for p in network.model.parameters()]
    private += [row.numpy() for row in (*features, *logits)]  # nor the representation of a single sample
    for array in private:
        for piece in np.array_split(array.astype(np.float32).ravel(), max(1, array.size // 4)):
            if len(piece) >= 2 and np.ptp(piece) > 0:  # a piece of two different numbers or more tells something
                assert piece.tobytes() not in sent
    assert len(sent) < 3 * 2 * 10 * (client.learner.dimension + 2) * 4 + 3 * 500


def test_the_search_for_leaks_would_find_one(halves):
    data, _ = halves
    tapped = Tapped(LocalExchange(FL.serve(Task(10, 84), None), "a"))
    client = Client(lenet(), data[0], tapped, name="a", method=FL)
    client.round()
    piece = client.learner.network.head.weight.detach().numpy().ravel()[:4]
    assert piece.tobytes() in tapped.bodies[0]


class Moody(Exchange):
    """An exchange that is away in the rounds it is told to be."""

    def __init__(self, exchange, away):
        self.exchange, self.away, self.calls = exchange, away, 0

    def publish(self, body):
        self._answer()
        self.exchange.publish(body)

    def collect(self, wants):
        self.calls += 1
        self._answer()
        return self.exchange.collect(wants)

    def _answer(self):
        if self.calls in self.away:
            raise Unreachable(f"away in round {self.calls}")


def test_a_client_goes_on_training_while_the_exchange_is_away_and_publishes_when_it_is_back(halves):
    data, _ = halves
    board = Board(Task(10, 84), MemoryStore())
    a, b = pair(data, board)
    a.exchange = Moody(a.exchange, away={2, 3})
    records = [record for record, _ in zip(a.rounds(5), b.rounds(5), strict=True)]
    assert [record.trouble for record in records] == [None, "away in round 2", "away in round 3", None, None]
    assert [record.bytes_up > 0 for record in records] == [True, False, False, True, True]
    assert records[-1].ce < records[0].ce
    assert wire.decode_release(board.store.items()["release/a"]).round == 5


class Spoiling(Tapped):
    """An exchange whose teachers go bad in round 3."""

    def collect(self, wants):
        self.rounds = getattr(self, "rounds", 0) + 1
        teacher = wire.decode_teacher(super().collect(wants))
        if self.rounds == 3:
            teacher.means.vectors[:] = np.inf
        return wire.encode_teacher(teacher)


def test_a_teacher_that_does_not_fit_costs_neither_the_training_nor_the_last_teacher(halves):
    data, _ = halves
    a, b = pair(data)
    a.exchange = Spoiling(a.exchange)
    records = [record for record, _ in zip(a.rounds(4), b.rounds(4), strict=True)]
    assert [record.trouble for record in records] == [None, None, "a vector of the teacher is not finite", None]
    assert [record.bytes_down > 0 for record in records] == [True, True, False, True]
    assert all(record.bytes_up for record in records)
    assert math.isfinite(records[2].kd)


def test_a_client_needs_no_exchange_to_train(halves):
    data, test = halves
    record = Client(lenet(), data[0], test=test).round()
    assert (record.bytes_up, record.bytes_down, record.kd) == (0, 0, None)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(halves):
    data, _ = halves

    def weights(seed):
        a, b = pair(data, seed=seed)
        for _ in zip(a.rounds(2), b.rounds(2), strict=True):
            pass
        return torch.cat([p.detach().flatten() for p in a.learner.network.model.parameters()])

    assert torch.equal(weights(1), weights(1))
    assert not torch.equal(weights(1), weights(2))


def test_sharing_with_both_lambdas_zero_equals_independent_learning_bit_for_bit(halves):
    data, _ = halves

    def weights(method, policy):
        a, b = pair(data, method=method, policies=(policy, policy))
        for _ in zip(a.rounds(3), b.rounds(3), strict=True):
            pass
        return torch.cat([p.detach().flatten() for p in b.learner.network.model.parameters()])

    neither = Policy(lambda_kd=0.0, lambda_disc=0.0, m_down=2, m_up=2)
    assert torch.equal(weights(RS, neither), weights(IL, Policy()))


@pytest.mark.parametrize(
    "change",
    [{"lambda_kd": -1}, {"lambda_disc": -0.1}, {"lambda_length": -1.0}, {"n_avg": 0}, {"m_up": -1}, {"m_down": -1},
     {"epochs": 0}, {"batch_size": 0}, {"minimum_count": 0}, {"learning_rate": 0.0}, {"lambda_kd": float("nan")}],
)  # fmt: skip
def test_a_policy_that_makes_no_sense_is_refused(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        Policy(**change)


def test_precision_makes_what_leaves_smaller(halves):
    data, _ = halves
    up = [pair(data, policies=(Policy(precision=p), None))[0].round().bytes_up for p in ("fp32", "fp16", "int8")]
    assert up[0] > up[1] > up[2] > 2 * 10 * 84


def test_a_refusal_is_reported_and_training_goes_on(halves):
    data, _ = halves
    board = Board(Task(10, 84, minimum_count=10_000))
    a, _ = pair(data, board)
    records = list(a.rounds(2))
    assert all("the task wants 10000" in record.trouble for record in records)
    assert records[1].ce < records[0].ce


def test_test_labels_are_checked_before_anything_is_trained(halves):
    data, test = halves
    with pytest.raises(DataError, match="label 10"):
        Client(lenet(), data[0], test=(test[0], test[1] + 1))


@pytest.mark.parametrize(
    "change", [{"precision": "bf16"}, {"optimizer": "foo"}, {"peers": "bob"}, {"n_avg": 2.5}, {"lambda_kd": math.inf}]
)
def test_a_policy_of_the_wrong_kind_is_refused(change):
    with pytest.raises(ConfigError, match=next(iter(change))):
        Policy(**change)


def test_a_client_predicts_and_gives_its_model_and_features():
    data = load("digits").normalised().train
    inputs, labels = torch.from_numpy(data.images[:80]), torch.from_numpy(data.labels[:80])
    client = Client(LeNet5(), (inputs, labels), policy=Policy(epochs=30), test=(inputs, labels))
    client.round(test=False)
    model = client.model
    assert not model.training
    with torch.inference_mode():
        assert torch.equal(client.predict(inputs), model(inputs).argmax(1))
    assert client.evaluate() == (client.predict(inputs) == labels).double().mean()
    assert client.features(inputs[:3]).shape == (3, 84)
    common = Client(LeNet5(), (inputs, labels), method=CS, test=(inputs, labels))
    common.round(test=False)
    assert common.evaluate() == (common.predict(inputs) == labels).double().mean() > 0.5
    assert common.features(inputs[:3]).shape == (3, common.learner.dimension)
