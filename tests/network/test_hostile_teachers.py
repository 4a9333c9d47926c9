"""No teacher, finite or not, makes a client's model non-finite; what was left out of training is told."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from repshare import Board, Client, LeNet5, Policy
from repshare.errors import CheckpointError, Malformed
from repshare.exchange import Exchange
from repshare.exchange.relay import Membership
from repshare.network.objective import Targets
from repshare.party.rounds import take_part
from repshare.party.state import State
from repshare.sharing import wire
from repshare.sharing.parts import BESIDE, Part, as_release
from repshare.sharing.representations import Teacher, stack
from repshare.sharing.task import Task
from repshare.space import choose
from repshare.space.agreement import Agreement
from repshare_lab.methods import FL

DIGITS = Membership("digits", "alice", Task(10, 84))


class Giving(Exchange):
    """Teaches always the same."""

    def __init__(self, body):
        self.body = body

    def publish(self, body):
        pass

    def collect(self, wants):
        return self.body


class Lying(Exchange):
    """An exchange that teaches what a function of the round says."""

    def __init__(self, teach):
        self.teach, self.round = teach, 0

    def publish(self, body):
        wire.decode_release(body)

    def collect(self, wants):
        self.round += 1
        return wire.encode_teacher(self.teach(self.round))


def teacher(value, dimension=84):
    rows = [(np.full(dimension, value), label, 10) for label in range(10)]
    return Teacher(stack(rows, dimension), stack(rows, dimension))


def samples(count=40):
    generator = torch.Generator().manual_seed(0)
    return torch.rand(count, 1, 8, 8, generator=generator), torch.arange(count) % 10


def relu_model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 84), nn.BatchNorm1d(84), nn.ReLU(), nn.Linear(84, 10))


def lenet():
    torch.manual_seed(0)
    return LeNet5()


def numbers(client):
    return torch.cat([tensor.flatten().double() for tensor in client.learner.network.model.state_dict().values()])


@pytest.mark.parametrize("value", [3e38, 1e20, 1e10, 900.0, math.inf, math.nan])
@pytest.mark.parametrize("model", [lenet, relu_model])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_one_huge_teacher_is_refused_and_the_model_is_as_if_it_had_never_come(value, model, optimizer, tmp_path):
    """The attack as it was: one bad teacher in round 3, good ones before and after."""
    policy, kept = Policy(optimizer=optimizer, learning_rate=0.01), []
    for bad in (value, None):
        exchange = Lying(lambda round, bad=bad: teacher(0.1 if round != 3 or bad is None else bad))
        client = Client(model(), samples(), exchange, name="alice", policy=policy)
        state = State(tmp_path / str(bad), client, DIGITS)
        state.restore()
        told = list(take_part(state, 5))
        kept.append((numbers(client), [record.ce for record in told], [record.trouble for record in told]))
    (weights, losses, trouble), (expected, *_) = kept
    assert "of the teacher" in trouble[2]
    assert [each for number, each in enumerate(trouble, 1) if number != 3] == [None] * 4
    assert all(map(math.isfinite, losses))
    assert torch.equal(weights, expected)  # the teacher before went on teaching, and it was the same
    assert weights.isfinite().all()


def test_a_vector_longer_than_the_task_allows_is_refused():
    client = Client(lenet(), samples(), Lying(lambda _: teacher(1.0)), policy=Policy(), norm_bound=5.0)
    assert "9.165 long; the task's norm_bound is 5" in client.round().trouble
    assert Client(lenet(), samples(), Lying(lambda _: teacher(1.0)), norm_bound=9.2).round().trouble is None


@pytest.mark.parametrize("optimizer", ["adam", "adamw", "sgd"])
def test_a_teacher_that_swings_within_the_bounds_leaves_the_model_finite(optimizer):
    def swing(round):
        own = 9.0 * max(math.sqrt(84), longest(client))
        return teacher((-1) ** round * own / math.sqrt(84))

    def longest(client):
        return float(np.linalg.norm(client.learner.represent()[0], axis=1).max())

    client = Client(relu_model(), samples(), Lying(swing), policy=Policy(optimizer=optimizer, learning_rate=0.1))
    for _ in client.rounds(40):
        assert numbers(client).isfinite().all()


def lesson(value):
    everyone = torch.ones(10, dtype=torch.bool)
    return Targets(torch.full((10, 84), value), everyone, torch.full((1, 10, 84), value), everyone)


@pytest.mark.parametrize("value", [3e38, 1e30, math.inf, math.nan])
@pytest.mark.parametrize(
    "policy", [Policy(), Policy(optimizer="sgd"), Policy(compute="bf16")], ids=["adam", "sgd", "bf16"]
)
def test_steps_that_are_not_finite_are_left_out_and_told(value, policy):
    """Should such a lesson ever get past the door."""
    client = Client(lenet(), samples(), policy=policy)
    client.round()
    before = numbers(client)
    client.learner.targets = lesson(value)
    told = client.round()
    assert "2 steps" in told.trouble
    assert "not finite" in told.trouble
    assert torch.equal(numbers(client), before)
    client.learner.targets = None
    assert client.round().trouble is None
    assert not torch.equal(numbers(client), before)


class Long(nn.Module):
    """A layer that remembers a number whose square overflows, and one that is infinite, as attention's mask is."""

    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(1))
        self.register_buffer("mask", torch.tensor([-math.inf]))

    def forward(self, inputs):
        self.seen.fill_(1e30)
        return inputs


def test_numbers_whose_squares_overflow_are_finite_all_the_same():
    model = nn.Sequential(nn.Flatten(), Long(), nn.Linear(64, 84), nn.Tanh(), nn.Linear(84, 10))
    client = Client(model, samples(47), policy=Policy(batch_size=40))
    assert client.round().trouble is None
    assert model[1].seen == 1e30


def test_a_state_with_weights_that_are_not_finite_is_not_gone_on_with(tmp_path):
    """What an earlier version may have kept."""
    client = Client(lenet(), samples(), name="alice")
    state = State(tmp_path / "s", client, DIGITS)
    told = client.round()
    with torch.no_grad():
        client.learner.network.head.weight.fill_(math.nan)
    state.keep(told)
    with pytest.raises(CheckpointError, match="weights that are not finite"):
        State(tmp_path / "s", Client(lenet(), samples(), name="alice"), DIGITS).restore()


def test_an_average_of_weights_that_is_not_finite_is_refused():
    client = Client(lenet(), samples(), method=FL)
    weights = {name: tensor.numpy() for name, tensor in client.learner.network.model.state_dict().items()}
    weights["head.bias"] = np.full(10, np.inf, np.float32)
    with pytest.raises(Malformed, match="not finite"):
        client.learner.absorb(wire.encode_weights(weights, round=1, samples=3))


def make_total(classes, dimension, **changed):
    """A total that passes for one: all of its numbers are within their bounds."""
    shares = np.full(classes, 1 / classes, np.float32)
    part = Part(
        vectors=np.full((classes, dimension), 3.9, np.float32),
        weights=np.full(classes, -3.9, np.float32),
        shares=shares,
        hits=np.repeat(shares[:, None], BESIDE - 2, axis=1),
        centre=np.full(dimension, 0.99, np.float32),
        samples=100,
        shrinkage=1.0,
    )
    return part._replace(**changed)


@pytest.mark.parametrize("changed", [
    {"first": 0.99, "shrinkage": math.exp(25)}, {"first": 0.99, "shrinkage": math.exp(-25)}, {"samples": 2**62},
    {"samples": 1}, {"first": 0.5, "shrinkage": math.exp(-25), "samples": 2**62}, {"first": 1.0, "samples": 2**62},
])  # fmt: skip
def test_no_total_of_a_common_space_stops_a_client_or_spoils_its_classifier(changed):
    data = samples(80)
    common = Agreement(choose((), data[0][:1], 0))
    client = Client(None, data, space=common, classes=10, test=data, policy=Policy(accept_exposure=True))
    total = as_release(make_total(10, common.space.dimension, **changed), 1, common.name)
    body = wire.encode_teacher(Teacher(total.means, total.observations, common.name))
    client.exchange = Giving(body)
    for record in client.rounds(3):
        assert math.isfinite(record.ce)
        learner = client.learner
        assert learner.classifier().is_finite
        assert np.isfinite(learner.model.published.alpha).all()
    Board(common.task(10)).accept("b", learner.release(9))  # and what it shares is still what others take
